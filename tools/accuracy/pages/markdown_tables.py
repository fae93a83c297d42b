"""Tallies as tables of Markdown: a row for each method, and a mark on what misses its bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from accuracy.families.registry import FAMILIES, Bound
from accuracy.pages.run_totals import Tally, missed

MISSED = "✗"

HEAD = (
    "", "method", "jobs exact", "DP pairs", "PP pairs", "EP pairs", "CP pairs", "layouts", "steps found", "extra",
    "error median", "p95", "ids changed", "faults named", "false per job-hour",
)  # fmt: skip

MEANINGS = (
    "*Jobs exact*: windows of jobs with exactly the true NICs. *Pairs*: precision / recall over windows in which a job "
    "has shown five steps. *Layouts*: windows with `tp`, `pp` and `dp` all right, NULL counting as not right. *Extra*: "
    "steps found where there is none. *Error*: of the steps' durations, against the true ones. *Ids changed*: a job "
    "was called otherwise though half of its NICs stayed. *Faults named*: by a subject that counts as right. "
    "*False per job-hour*: diagnoses of no fault. "
    f"{MISSED} marks what misses its bound; the published method has no bounds."
)

WORDS = {
    "exact": "job sets exact",
    "layouts": "layouts right",
    "steps_found": "steps found",
    "steps_extra": "extra steps",
    "changed_ids": "ids changed",
    "error_median": "median error of durations",
    "error_p95": "95th percentile of errors",
    "invented": "jobs invented",
    "called_other": "jobs called other",
    "called_pp": "DP, EP or CP pairs called PP",
    "extra_ratio": "ratio of extra steps",
    "degrees_wrong": "degrees wrong, by windows",
}
"""What figures are called where there is room; precision and recall call themselves."""


def families_table(tallies: Mapping[str, Mapping[str, Tally | None]], bounds: Mapping[str, Sequence[Bound]]) -> str:
    """Return a table with a row for each part (a family, a capture) and method, and the columns that tell something.

    Parameters
    ----------
    tallies : by part and method; None where nothing was measured
    bounds : of the joint method, by part
    """
    rows = []
    for part, methods in tallies.items():
        for index, (method, tallied) in enumerate(methods.items()):
            name = part if index == 0 else ""
            if tallied is None:
                rows.append((name, method, "not measured", *[""] * (len(HEAD) - 3)))
                continue
            judged = bounds.get(part, ()) if method == "joint" else ()
            cells = _cells(tallied, {bound.figure for bound in missed(judged, tallied)})
            rows.append((name, method, *cells))
    told = [at for at in range(len(HEAD)) if at < 2 or any(row[at] not in {"", "-"} for row in rows)]
    return table([HEAD[at] for at in told], ([row[at] for at in told] for row in rows))


def _cells(tallied: Tally, marked: set[str]) -> list[str]:
    counts = tallied["counts"]

    def of(figure: str, part: str, whole: str) -> str:
        return f"{counts[part]:,} of {counts[whole]:,}{_mark(figure, marked)}" if counts[whole] else "-"

    def single(figure: str) -> str:
        return shown(figure, tallied[figure]) + _mark(figure, marked)

    def pairs(kind: str) -> str:
        sides = [single(f"{kind}_{side}") for side in ("precision", "recall")]
        return "-" if sides == ["-", "-"] else " / ".join(sides)

    return [
        of("exact", "exact", "windows"),
        *(pairs(kind) for kind in ("dp", "pp", "ep", "cp")),
        of("layouts", "layouts_right", "layouts"),
        of("steps_found", "steps_found", "steps"),
        *(single(figure) for figure in ("steps_extra", "error_median", "error_p95", "changed_ids")),
        of("faults_named", "faults_named", "faults"),
        shown("false_per_job_hour", tallied["false_per_job_hour"]),
    ]


def _mark(figure: str, marked: set[str]) -> str:
    return f" {MISSED}" if figure in marked else ""


def wanted_list(bounds: Mapping[str, Sequence[Bound]]) -> str:
    """Return a list of what is wanted, said once for all parts of which the same is."""
    parts: dict[tuple[Bound, ...], list[str]] = {}
    for part, wanted in bounds.items():
        parts.setdefault(tuple(wanted), []).append(part)
    return "\n".join(f"- {', '.join(names)}: {_wanted(wanted) or 'nothing'}." for wanted, names in parts.items())


def misses_table(tallies: Mapping[str, Tally | None], bounds: Mapping[str, Sequence[Bound]]) -> str:
    """Return a table of how many of its bounds each part meets, and what misses the others."""
    rows = []
    for part, wanted in bounds.items():
        tallied = tallies.get(part)
        if tallied is None or not wanted:
            rows.append((part, "not measured" if wanted else "-", ""))
            continue
        short = missed(wanted, tallied)
        words = "; ".join(f"{figure_words(one.figure)} {shown(one.figure, tallied[one.figure])}" for one in short)
        rows.append((part, f"{len(wanted) - len(short)} of {len(wanted)}{f' {MISSED}' if short else ''}", words))
    return table(("", "bounds met", "missed by"), rows)


def _wanted(bounds: Iterable[Bound]) -> str:
    """Say bounds in words; those that are the same of several kinds and sides once."""
    said: dict[str, list[str]] = {}
    for one in bounds:
        limit = f"{'at most' if one.at_most else 'at least'} {shown(one.figure, one.bound)}"
        kind, _, side = one.figure.rpartition("_")
        name = f"{kind.upper()} pairs" if side in ("precision", "recall") else figure_words(one.figure)
        if name not in said.setdefault(limit, []):
            said[limit].append(name)
    return "; ".join(f"{', '.join(names)} {limit}" for limit, names in said.items())


def figure_words(figure: str) -> str:
    """Return what a column of figures is called on a page."""
    kind, _, side = figure.rpartition("_")
    return WORDS.get(figure, f"{side} of {kind.upper()} pairs")


def shown(figure: str, value: float | None) -> str:
    """Return a figure as text: errors in percent, counts whole, ratios to four digits, never rounded up to 1."""
    if value is None:
        return "-"
    if figure.startswith("error_"):
        return f"{100 * value:.3f} %" if value < 0.01 else f"{100 * value:.1f} %"
    if figure == "false_per_job_hour":
        return f"{value:.3g}"
    if isinstance(value, int) and figure in {
        "steps_extra",
        "changed_ids",
        "invented",
        "called_other",
        "called_pp",
        "degrees_wrong",
    }:
        return f"{value:,}"
    return "1" if value == 1 else f"{min(value, 0.9999):.4f}".rstrip("0").rstrip(".")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown; every row has as many cells as the head."""
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def families_described() -> str:
    """Return the table of the families and what each breaks."""
    return table(
        ("family", "what it breaks of the published assumptions"),
        ((name, one.breaks) for name, one in FAMILIES.items()),
    )


def floors_table(floors: Mapping[str, Mapping[str, float | None]]) -> str:
    """Return a table of the floors of runs, by their names."""
    rows = [(name, *(shown(f"error_{of}", found[of]) for of in ("median", "p95"))) for name, found in floors.items()]
    return table(("", "error median", "p95"), rows)
