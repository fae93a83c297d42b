"""What was said of faults, from judged runs, as tables of Markdown: by kind, the misses, and false findings."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from accuracy.pages.markdown_tables import MISSED, table
from accuracy.runs.results import Result

Verdict = Mapping[str, Any]

WANTED = {"told": 0.95, "first_right": 0.9, "kind_right": 0.9}
"""Ratios that are wanted of the faults that are asked for."""

PAGES_PER_HOUR, FALSE_PER_HOUR = 1 / 200, 1 / 50
"""Wanted at most, per hour of a job in which nothing is wrong: messages about nothing, and diagnoses of nothing."""

MEANINGS = (
    "*Asked for*: faults that lengthen a step by more than three standard deviations of its job's steps, leave no "
    "step, or halve the pace of a device; the effect is measured, on the same platform without the fault, or on the "
    "steps of a capture beside it. *Told*: a diagnosis of its job and time, or of its device. *First*: the first "
    "suspect is the device, or a set of at most three with it. *Kind*: it is called what it is. *Seconds*: "
    "from the onset to the end of the window with the first row, median and longest. "
    "A row about a single slow step in which its job pauses on purpose, as to evaluate, is not counted as false. "
    f"{MISSED} marks what misses 95 %, 90 % or 90 %."
)


def faults_table(verdicts: Sequence[Verdict]) -> str:
    """Return a table with a row for each kind of fault, and one for all."""
    kinds = sorted({one["kind"] for one in verdicts})
    rows = [_row(kind, [one for one in verdicts if one["kind"] == kind]) for kind in kinds]
    head = ("fault", "drawn", "asked for", "told", "first", "kind", "seconds")
    return table(head, [*rows, _row("all", verdicts, mark=True)])


def _row(name: str, verdicts: Sequence[Verdict], *, mark: bool = False) -> list[str]:
    asked = [one for one in verdicts if one["asked"]]
    cells = []
    for figure, wanted in WANTED.items():
        met = sum(one[figure] for one in asked)
        missed = f" {MISSED}" if mark and asked and met < wanted * len(asked) else ""
        cells.append(f"{met} of {len(asked)}{missed}" if asked else "-")
    seconds = [one["seconds"] for one in asked if one["seconds"] is not None]
    after = f"{statistics.median(seconds):.0f}, {max(seconds):.0f}" if seconds else "-"
    return [name, str(len(verdicts)), str(len(asked)), *cells, after]


def misses(results: Mapping[str, Result]) -> Iterator[str]:
    """Yield a line of Markdown for each fault that was asked for and missed, by cause, and each false finding."""
    missed: dict[str, list[str]] = {"Not told": [], "Another suspect came first": [], "Called otherwise": []}
    for name, result in results.items():
        for one in result["verdicts"]:
            cause = _cause(one)
            if one["asked"] and cause:
                missed[cause].append(_words(name, one))
    for cause, lines in missed.items():
        if lines:
            yield f"{cause}:"
            yield "\n".join(f"- {line}" for line in lines)
    false = [
        f"- {name}: {row['kind']} of {row['subject_type']} {row['subject']}"
        for name, result in results.items()
        for row in result["false"]
    ]
    if false:
        yield "False:"
        yield "\n".join(false)


def _cause(verdict: Verdict) -> str | None:
    if not verdict["told"]:
        return "Not told"
    if not verdict["first_right"]:
        return "Another suspect came first"
    return None if verdict["kind_right"] else "Called otherwise"


def _words(name: str, one: Verdict) -> str:
    effect = "no step ends" if one["effect"] is None else f"steps {100 * one['effect']:+.0f} %"
    longest = "" if one["longest"] is None else f", longest {100 * one['longest']:+.0f} %"
    said = f"; first: {one['first']}" if one["first"] else ""
    return f"{name}, {one['kind']} of {one['subject_type']} {one['subject']} ({effect}{longest}){said}; {one['said']}"


def quiet(results: Iterable[Result]) -> str:
    """Return a sentence on false findings, by hours of jobs in which nothing was wrong."""
    results = list(results)
    hours = sum(one["healthy_job_hours"] for one in results)
    pages, false = (sum(len(one[name]) for one in results) for name in ("false_pages", "false"))
    marks = [f" {MISSED}" if hours and count / hours > most else "" for count, most in
             ((pages, PAGES_PER_HOUR), (false, FALSE_PER_HOUR))]  # fmt: skip
    return (
        f"In {hours:.1f} hours of jobs with which nothing was wrong: {pages} messages about nothing{marks[0]}, {false} "
        f"rows about nothing{marks[1]} (wanted: at most one in 200 hours, and one in 50)."
    )
