"""What the joint method does not know, in words, from what it missed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from accuracy.families.registry import Bound
from accuracy.pages.markdown_tables import table
from accuracy.pages.run_totals import KINDS, Tally, confusions, ratio, tally
from accuracy.runs.results import Result

LEAST = 0.98
"""Ratio below which a figure without a bound is worth a line."""

SHOWN = 3
"""How many of the mix-ups of pairs are told, the most frequent first."""

MAIN = ("tp", "pp", "dp")
"""Degrees that a layout is right by."""

SURE = ("0.9 to 0.99", "0.99 to 1")
"""Bands of confidence in which a reader takes a row for right."""


def gaps(parts: Mapping[str, Sequence[Result]], bounds: Mapping[str, Sequence[Bound]]) -> str:
    """Return a list of Markdown: an entry for each part in which something was missed, and a line on the others."""
    entries, whole = [], []
    for part, results in parts.items():
        if not results:
            continue
        words = list(_gaps_of(results, tally(results), _least(bounds.get(part, ()))))
        if words:
            entries.append(f"- **{part}**: {'; '.join(words)}.")
        else:
            whole.append(part)
    if whole:
        entries.append(f"- Nothing of this is missing in: {', '.join(whole)}.")
    return "\n".join(entries)


def _least(bounds: Sequence[Bound]) -> dict[str, float]:
    return {bound.figure: bound.bound for bound in bounds if not bound.at_most}


def _gaps_of(results: Sequence[Result], tallied: Tally, least: Mapping[str, float]) -> Iterator[str]:
    counts = tallied["counts"]

    def short(figure: str) -> bool:
        value = tallied[figure]
        return value is not None and value < least.get(figure, LEAST)

    if short("exact"):
        yield f"the NICs of a job are not exact in {counts['windows'] - counts['exact']} of {counts['windows']} windows"
    kinds = [kind for kind in KINDS if short(f"{kind}_recall") or short(f"{kind}_precision")]
    for kind in kinds:
        sides = [f"{side} {tallied[f'{kind}_{side}'] or 0:.3f}" for side in ("precision", "recall")]
        yield f"{kind.upper()} pairs, {' and '.join(sides)}"
    if kinds:
        mixed = [f"{row['pairs']:,} {row['true']} called {row['kind']}" for row in confusions(results)[:SHOWN]]
        yield f"of pairs, {', '.join(mixed)}"
    if short("layouts"):
        yield _degrees(results)
    if short("steps_found"):
        yield f"{counts['steps'] - counts['steps_found']} of {counts['steps']} steps are not found"
    if counts["steps_extra"]:
        yield f"{counts['steps_extra']} steps are found that are none"
    if tallied["called_other"] or tallied["invented"]:
        yield f"{tallied['called_other']} windows of jobs called other, {tallied['invented']} of jobs invented"
    if counts["faults_named"] < counts["faults"]:
        yield f"{counts['faults'] - counts['faults_named']} of {counts['faults']} faults are not named"
    if certain := _certain(results):
        yield f"{certain} windows of jobs claim something wrong with a confidence of at least 0.9"


def _degrees(results: Sequence[Result]) -> str:
    counted = Counter[tuple[str, str]]()
    for result in results:
        for degree in MAIN:
            row = result["figures"]["all"]["degrees"].get(degree, {})
            counted.update({(degree, verdict): row.get(verdict, 0) for verdict in ("wrong", "unknown")})
    said = [f"{degree} {verdict} in {windows}" for (degree, verdict), windows in sorted(counted.items()) if windows]
    return f"of layouts, {', '.join(said)} windows"


def _certain(results: Sequence[Result]) -> int:
    rows = (row for result in results for row in result["figures"]["confidence"])
    return sum(row["wrong"] for row in rows if row["of"] == "jobs" and row["band"] in SURE)


def confidence_table(results: Sequence[Result]) -> str:
    """Return a table of how often rows were right, by how sure they were said to be."""
    counted = Counter[tuple[str, str, str]]()
    for result in results:
        for row in result["figures"]["confidence"]:
            counted.update({(row["band"], row["of"], verdict): row[verdict] for verdict in ("right", "wrong")})
    rows = []
    for band in sorted({band for band, _, _ in counted}):
        cells = [band]
        for of in ("jobs", "pairs"):
            right, wrong = (counted[band, of, verdict] for verdict in ("right", "wrong"))
            share = ratio(right, right + wrong)
            cells += [f"{right + wrong:,}", "-" if share is None else f"{min(share, 1):.3f}"]
        rows.append(cells)
    return table(("confidence", "windows of jobs", "of them right", "pairs", "of them right"), rows)


def confidence_shares(results: Sequence[Result], of: str) -> list[tuple[float, float, int]]:
    """Return for each band of confidence its middle, the ratio of rows in it that are right, and their number."""
    counted = Counter[tuple[str, str]]()
    for result in results:
        for row in result["figures"]["confidence"]:
            if row["of"] == of:
                counted.update({(row["band"], verdict): row[verdict] for verdict in ("right", "wrong")})
    shares = []
    for band in sorted({band for band, _ in counted}):
        right, wrong = counted[band, "right"], counted[band, "wrong"]
        low, high = (float(edge) for edge in band.split(" to "))
        if right + wrong:
            shares.append(((low + high) / 2, right / (right + wrong), right + wrong))
    return shares


def sure_and_right(results: Sequence[Result], of: str) -> float | None:
    """Return the ratio of rows with a confidence of at least 0.9 that are right; None without any."""
    rows = [row for result in results for row in result["figures"]["confidence"] if row["of"] == of]
    right, wrong = (sum(row[verdict] for row in rows if row["band"] in SURE) for verdict in ("right", "wrong"))
    return ratio(right, right + wrong)
