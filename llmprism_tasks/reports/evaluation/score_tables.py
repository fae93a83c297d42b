"""Score tables: accuracy figures as text, one row per job or run and one for all together, 100 columns wide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.table import Table
from rich.text import Text

Row = dict[str, Any]

WIDTH = 100

COLUMNS = (
    "jobs\nexact",
    "pairs\nright",
    "layout\nright",
    "steps\nfound",
    "\nextra",
    "error\nmed.",
    "in %\np95",
    "\nmax",
    "ids\nlost",
    "faults\nnamed",
    "false\nones",
    "sure\nin %",
)

MEANINGS = (
    "jobs exact: windows with exactly the true NICs. pairs right: the lower of precision and recall for the kinds dp, "
    "pp, ep and cp. layout right: windows with tp, pp and dp right. steps extra: found steps that match no true step; "
    "error: of the steps' durations. ids lost: a job's id changed although half of its NICs stayed. faults named: with"
    " a subject that counts as right; false ones: diagnoses without a fault. sure: windows of jobs with a confidence "
    "of at least 75 %."
)
"""Explanation of the table's columns."""


def render(scores: Row, *, of: str = "job", parts: Mapping[str, Row] | None = None) -> RenderableType:
    """Return a `headline.all_figures` value as tables: a row for each part, then the counts over all parts.

    Parameters
    ----------
    of : what a part is, such as `job`
    parts : headline of each part by its name; the jobs if None
    """
    rows = table({**(scores["jobs"] if parts is None else parts), "all": scores["all"]}, of=of)
    shown: list[RenderableType] = [rows, Text()]
    for counts in (_kinds(scores), _degrees(scores), _confidence(scores)):
        shown += [counts, Text()] if counts.row_count else []
    return Constrain(Group(*shown, *_wrong(scores), Text(MEANINGS, "dim")), WIDTH)


def table(headlines: Mapping[str, Row], *, of: str) -> Table:
    """Return a table of headlines (`evaluation.headline`), one row per name."""
    table = _table(of, *COLUMNS)
    for name, figures in headlines.items():
        table.add_row(Text(name, overflow="fold"), *_cells(figures))
    return table


def _cells(row: Row) -> list[str]:
    errors = row["duration_error"]
    return [
        _of(row["exact"], row["windows"]),
        _share(min((row[name] for name in ("precision", "recall") if row[name] is not None), default=None)),
        _of(row["layouts_right"], row["layouts"]),
        _of(row["steps_found"], row["steps"]),
        str(row["steps_extra"]),
        *(_percent(errors[name]) for name in ("median", "p95", "max")),
        str(row["changed_ids"]),
        _of(row["faults_named"], row["faults"]),
        str(row["false_diagnoses"]),
        "-" if row["unsure_ratio"] is None else f"{100 * (1 - row['unsure_ratio']):.0f}",
    ]


def _kinds(scores: Row) -> Table:
    table = _table("kind of pair", "true", "called so", "missing", "precision", "recall")
    for kind, row in scores["pairs"].items():
        counts = (f"{row[name]:,}" for name in ("true", "found", "absent"))
        table.add_row(kind, *counts, _share(row["precision"]), _share(row["recall"]))
    return table


def _degrees(scores: Row) -> Table:
    table = _table("degree, windows", "right", "wrong", "unknown")
    for degree, row in scores["all"]["degrees"].items():
        table.add_row(degree, *(f"{row[name]:,}" for name in ("right", "wrong", "unknown")))
    return table


def _confidence(scores: Row) -> Table:
    table = _table("confidence", "jobs right", "jobs wrong", "pairs right", "pairs wrong")
    counts: dict[str, dict[tuple[str, str], int]] = {}
    for row in scores["confidence"]:
        band = counts.setdefault(row["band"], {})
        for verdict in ("right", "wrong"):
            band[row["of"], verdict] = band.get((row["of"], verdict), 0) + row[verdict]
    cells = [(of, verdict) for of in ("jobs", "pairs") for verdict in ("right", "wrong")]
    for name, band in sorted(counts.items()):
        table.add_row(name, *(f"{band.get(cell, 0):,}" for cell in cells))
    return table


def _wrong(scores: Row) -> list[Text]:
    """Return sentences about wrong results for which the tables have no room."""
    every = scores["all"]
    lines = [] if every["windows"] else ["The truth covers no window of the warehouse, so nothing was compared."]
    lines += [
        f"{row['pairs']:,} pairs of {row['job']} are {row['true']} and were classified as {row['kind']}."
        for row in scores["confusions"]
    ]
    if every["not_done"]:
        lines.append(f"{every['not_done']:,} windows of jobs were not finished; they count as they are.")
    if every["called_other"]:
        lines.append(f"{every['called_other']:,} windows of training jobs were classified as other.")
    if scores["invented"]:
        who = sorted({row["who"] for row in scores["invented"]})
        lines.append(
            f"{len(scores['invented']):,} windows of jobs classified as training belong to {' or '.join(who)}."
        )
    if every["reused_ids"]:
        lines.append(f"{every['reused_ids']:,} ids were given to a second job.")
    lines += [_fault(row) for row in scores["faults"] if not (row["first_right"] and row["delay"] == 0)]
    return [*map(Text, lines), Text()] if lines else []


def _fault(row: Row) -> str:
    what = f"The {row['kind'].replace('_', ' ')} of {row['subject']}"
    if not row["named"]:
        return f"{what} was not named" + (f"; {row['first']} was." if row["first"] else ".")
    first = "" if row["first_right"] else f", after {row['first']}"
    return f"{what} was named {row['delay']} windows after it began{first}."


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _of(part: int, whole: int) -> str:
    return f"{part}/{whole}" if whole else "-"


def _share(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"


def _percent(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{100 * ratio:.2f}" if ratio < 0.1 else f"{100 * ratio:.0f}"
