"""What is wrong in a result, job by job, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accuracy.runs.results import Result

LEAST_STEPS, LARGEST_P95 = 0.98, 0.03
"""Ratio of steps found, and error of durations, that are worth a word."""


def wrongs(result: Result) -> Iterator[tuple[str, str]]:
    """Yield each true job of which something is wrong, with what was expected and found.

    A degree that is told of no job at all is no news about one.
    """
    figures = result["figures"]
    told = {row["degree"] for row in figures["degrees"] if row["right"] or row["wrong"]}
    degrees = _rows_of([row for row in figures["degrees"] if row["degree"] in told])
    confused = _rows_of(figures["confusions"])
    for job, row in figures["jobs"].items():
        words = [*_words(row), *_degrees(degrees.get(job, [])), *_confusions(confused.get(job, []))]
        if words:
            yield job, "; ".join(words)
    for who in sorted({row["who"] for row in figures["invented"]}):
        windows = sum(row["who"] == who for row in figures["invented"])
        yield "nobody's", f"{windows} windows of jobs called training were of {who}"


def _rows_of(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    by_job: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_job.setdefault(row["job"], []).append(row)
    return by_job


def _words(row: dict[str, Any]) -> Iterator[str]:
    if row["exact"] < row["windows"]:
        yield f"members exact in {row['exact']} of {row['windows']} windows"
    if row["called_other"]:
        yield f"called other in {row['called_other']} windows"
    if row["steps_found"] < LEAST_STEPS * row["steps"]:
        yield f"{row['steps_found']} of {row['steps']} steps found"
    if row["steps_extra"]:
        yield f"{row['steps_extra']} steps found that are none"
    if (row["duration_error"]["p95"] or 0) > LARGEST_P95:
        yield f"95th percentile of duration errors {100 * row['duration_error']['p95']:.1f} %"
    if row["changed_ids"]:
        yield f"id changed {row['changed_ids']} times"
    if row["false_diagnoses"]:
        yield f"{row['false_diagnoses']} false diagnoses"
    if row["faults_named"] < row["faults"]:
        yield f"{row['faults'] - row['faults_named']} of {row['faults']} faults not named"


def _degrees(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        said = [f"{row[verdict]} {verdict}" for verdict in ("wrong", "unknown") if row[verdict]]
        if said:
            yield f"{row['degree']} {' and '.join(said)} of {row['right'] + row['wrong'] + row['unknown']} windows"


def _confusions(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield f"{row['pairs']} pairs that are {row['true']} called {row['kind']}"
