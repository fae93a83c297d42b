"""The page `docs/diagnosis.md`: what can be said of a trouble, and how often that is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from accuracy.families.registry import TROUBLES
from accuracy.pages.judged_tables import MEANINGS, faults_table, misses, quiet
from accuracy.pages.markdown_tables import MISSED, shown, table
from accuracy.pages.run_totals import LEAST_EFFECT, culprits, is_loud, missed
from accuracy.runs.fault_costs import PUBLISHED_SEEDS, WITHIN
from accuracy.runs.results import Result, kept, kept_prices, kept_unseen, version
from accuracy.runs.sources import Source, family_sources
from llmprism_tasks.contract.fault_catalogue import KINDS

FIGURES = ("faults", "above the floor", "detected", "first right", "kind right", "false", "per job-hour")

HARDER = ("uneven_gpu", "exchanging_gpu", "exchanging_nic", "exchanging_stalls")
"""Troubles beside which all work differs: by samples' lengths, or by waiting for others in every layer."""

EXPLAINED = Path(__file__).with_name("diagnosis_explained.md")
"""What no measurement changes: the split of a step, how a culprit is found and priced."""

MEASURED = "## How right it is"
"""Heading from which on the page holds what was measured."""


def write_diagnosis(out: Path, seeds: Sequence[int] | None) -> Path:
    """Write the page; returns its file."""
    families = _measured(family_sources(TROUBLES, seeds))
    unseen = {f"seed {name}": one for name, one in kept_unseen("fault-").items()}
    unseen |= {f"healthy {name}": one for name, one in kept_unseen("healthy-").items()}
    captures = {f"capture {name}": one for name, one in kept_unseen("capture-").items()}
    results = [*(result for _, result in families), *unseen.values(), *captures.values()]
    sections = [
        explained(),
        *_how(results),
        *_unseen(unseen, captures),
        *_families(families),
        *_prices(seeds),
    ]
    out.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    return out


def explained() -> str:
    """Return what no measurement changes: how a culprit is found, and what to do about each kind of fault."""
    kinds = ((f"`{name}`", one.words, one.next) for name, one in KINDS.items())
    next_ = table(("kind", "the subject", "what to do"), kinds)
    return "\n\n".join([EXPLAINED.read_text(encoding="utf-8").rstrip(), "## What to do next", next_])


def explained_anew(page: str) -> str:
    """Return the page with the explained part as it is now; what was measured stays."""
    return f"{explained()}\n\n{page[page.index(MEASURED) :]}"


def _measured(sources: Iterator[Source] | Sequence[Source]) -> list[tuple[Source, Result]]:
    pairs = ((source, kept(source, "joint", of_any_version=True)) for source in sources)
    return [(source, result) for source, result in pairs if result is not None]


def _how(results: Sequence[Result]) -> Iterator[str]:
    versions = sorted({str(result["version"]) for result in results})
    minutes = sum(result["cpu_s"] + result.get("simulate_cpu_s", 0.0) for result in results) / 60
    yield MEASURED
    yield (
        "Written by `make diagnosis`; no figure below is typed by hand. Scenarios are drawn by seeds that nothing was "
        "built with (`tools/accuracy/families/fault_families.py`) and analysed with every setting at its default. "
        f"{len(results)} runs, {minutes:.0f} CPU minutes. Code: {', '.join(versions) or 'none'}."
    )
    if versions not in ([], [version()]):
        yield f"Some or all of it was measured by other code than the present {version()}."


def _families(measured: Sequence[tuple[Source, Result]]) -> Iterator[str]:
    if not measured:
        yield "Not measured with these seeds: `python -m accuracy run --families troubles`, two hours of CPU."
        return
    by_family: dict[str, list[Result]] = {name: [] for name in TROUBLES}
    for source, result in measured:
        by_family[source.group].append(result)
    groups = {
        "dense jobs of 64 to 2,048 GPUs": [name for name in TROUBLES if name not in HARDER and not _is_well(name)],
        "ranks that exchange in every layer, or samples that differ by a fifth": HARDER,
        "all is well": ("healthy", "healthy_platform"),
        "all is well, and the collector loses records": ("healthy_damaged",),
    }
    yield table(
        ("in short", *FIGURES),
        (
            [group, *_cells(names[0], [one for name in names for one in by_family[name]])]
            for group, names in groups.items()
        ),
    )
    yield table(
        (
            "trouble",
            "what goes wrong",
            *FIGURES,
        ),
        ([name, TROUBLES[name].breaks, *_cells(name, results)] for name, results in by_family.items()),
    )
    yield (
        f"*Above the floor*: faults that make steps longer by {LEAST_EFFECT:.0%} on average, or leave none; of these "
        "the rest is asked. *Detected*: named within two windows of the onset, by a subject that counts as right. "
        "*First right*: nobody else was named before. *Kind right*: called what it is. *False*: diagnoses of no fault. "
        f"{MISSED} marks what misses its bound (98 %, 95 %, 90 %, and 0.01 per job-hour where all is well)."
    )
    yield "What was wrong, faults below the floor left out:"
    yield "\n".join(_wrongs(measured)) or "Nothing."


def _is_well(name: str) -> bool:
    return name.startswith("healthy")


def _cells(name: str, results: Sequence[Result]) -> list[str]:
    if not results:
        return ["not measured", *[""] * 6]
    tallied = culprits(results)
    counts, short = tallied["counts"], {one.figure for one in missed(TROUBLES[name].bounds, tallied)}

    def of(figure: str) -> str:
        return f"{counts[figure]} of {counts['loud']}{_mark(figure, short)}" if counts["loud"] else "-"

    return [
        str(counts["faults"]),
        str(counts["loud"]),
        *(of(figure) for figure in ("detected", "first_right", "kind_right")),
        f"{counts['false_diagnoses']} in {counts['job_hours']:.1f} h",
        shown("false_per_job_hour", tallied["false_per_job_hour"]) + _mark("false_per_job_hour", short),
    ]


def _mark(figure: str, short: set[str]) -> str:
    return f" {MISSED}" if figure in short else ""


def _unseen(unseen: Mapping[str, Result], captures: Mapping[str, Result]) -> Iterator[str]:
    """Yield what was said of faults that nothing was built with: of another simulator, and of real training."""
    yield "### Faults of another model"
    yield (
        "Their effect follows from the order of operations of the second source of traffic (`docs/second_source.md`). "
        "Nothing was built with these seeds."
    )
    verdicts = [one for result in unseen.values() for one in result["verdicts"]]
    yield faults_table(verdicts) if verdicts else "Not measured."
    yield MEANINGS
    if unseen:
        yield quiet(unseen.values())
        yield from misses(unseen)
    yield "### Faults of real training"
    yield "Captures that nothing was built with (`docs/accuracy.md`), each with fine and with coarse records."
    verdicts = [one for result in captures.values() for one in result["verdicts"]]
    yield faults_table(verdicts) if verdicts else "Not measured."
    if captures:
        yield quiet(captures.values())
        yield from misses(captures)
    yield "### Faults of the first simulator"


def _prices(seeds: Sequence[int] | None) -> Iterator[str]:
    every = {seed: kept_prices(seed) for seed in seeds or PUBLISHED_SEEDS}
    rows = [row for _, of_seed in every.values() for row in of_seed]
    yield "## What it costs"
    yield (
        "What the replay says a repair would give back, against what the fault truly cost: the same job and seed with "
        "the fault and without it (`tools/accuracy/runs/fault_costs.py`, `python -m accuracy prices`). Replicas: 8 "
        "GPUs; pipelines: 4 stages, 4 replicas; tensors: 8 GPUs a host, 2 stages, 2 replicas. Steps that are longer by "
        f"less than {LEAST_EFFECT:.0%} are diagnosed by nobody, so that what they cost is never priced: "
        "they are here to show what the replay does with next to nothing."
    )
    diagnosed = [row["error"] for row in rows if row["share"] >= LEAST_EFFECT]
    if diagnosed:
        within = sum(error is not None and abs(error) <= WITHIN for error in diagnosed)
        yield f"Within {WITHIN:.0%} of the truth: {within} of {len(diagnosed)} that are diagnosed."
    if others := [str(seed) for seed, (by, _) in every.items() if by not in (None, version())]:
        yield f"Measured by other code than the present {version()}: seeds {', '.join(others)}."
    heads = ("job", "fault", "steps are longer by", "true GPU-s", "by replay", "error")
    alike: dict[tuple[str, str, float], list[Mapping[str, Any]]] = {}
    for row in rows:
        alike.setdefault((row["job"], row["fault"], row["slower"] or 0.0), []).append(row)
    yield table(heads, map(_price, alike.values())) if rows else "Not measured."


def _price(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the line of a fault of a job: what its seeds gave, from the least to the most."""
    first = rows[0]
    slower = f", {first['slower']:.1f} times" if first["slower"] else ""
    priced = [row["recoverable_gpu_s"] for row in rows if row["recoverable_gpu_s"] is not None]
    unpriced = len(rows) - len(priced)
    errors = [100 * row["error"] for row in rows if row["error"] is not None]
    return [
        first["job"],
        first["fault"] + slower,
        _span([100 * row["share"] for row in rows], ".1f") + " %",
        _span([row["true_gpu_s"] for row in rows], ",.1f"),
        ", ".join(([_span(priced, ",.1f")] if priced else []) + ([f"{unpriced} not priced"] if unpriced else [])),
        _span(errors, "+.1f") + " %" if errors else "-",
    ]


def _span(values: Sequence[float], form: str) -> str:
    least, most = format(min(values), form), format(max(values), form)
    return least if least == most else f"{least} to {most}"


def _told(row: Mapping[str, Any]) -> str:
    if not row["named"]:
        return f"{row['kind']} of {row['subject']}: not named" + (f", but {row['first']} was" if row["first"] else "")
    after = f"after {row['delay']} windows" if row["delay"] else "at once"
    return f"{row['kind']} of {row['subject']}: {row['first']} first, {after}, as {', '.join(row['kinds'])}"


def _wrongs(measured: Sequence[tuple[Source, Result]]) -> Iterator[str]:
    for source, result in measured:
        for row in result["figures"]["faults"]:
            effect = "no steps" if row["effect"] is None else f"{row['effect']:+.0%}"
            if is_loud(row) and not (row["named"] and row["first_right"] and row["kind_right"]):
                yield f"- {source.group} {source.label} ({effect}): {_told(row)}"
        for row in result["figures"]["false_diagnoses"]:
            yield f"- {source.group} {source.label}: {row['kind']} of {row['subject_type']} {row['subject']} is false"
