"""Refusals: jobs whose rows break an expectation, so that what is told of the other jobs can stand.

A refusal is kept with the expectation's result: `observed`, as JSON, names the jobs that were set aside for it and how
many rows of each broke it. They are told nowhere else, so nothing can disagree.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import polars as pl

SET_ASIDE = "set_aside"
"""What jobs and their rows are called in `observed`."""

REASON = "set aside: "
"""What in `windows.reason` is said of jobs begins with."""

REFUSED = ~pl.col("success") & pl.col("observed").str.json_path_match(f"$.{SET_ASIDE}").is_not_null()
"""Which rows of `validation_results` are refusals."""

Refusals: TypeAlias = dict[str, dict[str, Any]]
"""An expectation's full name to what was observed of it, with the rows of each job under `SET_ASIDE`."""


def refusal(observed: str, rows: Mapping[str, int]) -> dict[str, Any]:
    """Return what was observed, as JSON text, together with the rows of each job that broke the expectation."""
    return {**json.loads(observed), SET_ASIDE: dict(rows)}


def told(results: pl.DataFrame) -> Refusals:
    """Return the refusals among rows of `validation_results`."""
    found = results.filter(REFUSED).select("expectation", "observed")
    return {name: json.loads(observed) for name, observed in found.iter_rows()}


def standing(earlier: Refusals, jobs: Collection[str]) -> Refusals:
    """Return earlier refusals but for jobs that are back: who was set aside stays so until it is derived again.

    Parameters
    ----------
    jobs : those that the window has now
    """
    absent = {
        name: one | {SET_ASIDE: {job: rows for job, rows in one[SET_ASIDE].items() if job not in jobs}}
        for name, one in earlier.items()
    }
    return {name: one for name, one in absent.items() if one[SET_ASIDE]}


def joined(earlier: Refusals, later: Refusals) -> Refusals:
    """Return both; of an expectation in both, all jobs, and otherwise what was observed later."""
    nothing: dict[str, Any] = {SET_ASIDE: {}}
    return earlier | {
        name: one | {SET_ASIDE: earlier.get(name, nothing)[SET_ASIDE] | one[SET_ASIDE]} for name, one in later.items()
    }


def by_job(refusals: Refusals) -> dict[str, dict[str, int]]:
    """Return for each job, in order, the expectations it was set aside for and how many of its rows broke each."""
    broken = sorted((job, name, rows) for name, one in refusals.items() for job, rows in one[SET_ASIDE].items())
    jobs: dict[str, dict[str, int]] = {}
    for job, name, rows in broken:
        jobs.setdefault(job, {})[name] = rows
    return jobs


def noted(results: pl.DataFrame, refusals: Refusals) -> pl.DataFrame:
    """Return rows of `validation_results`, in which expectations that jobs were set aside for do not hold.

    What the rows that remain break is left as it is: that is more than a refusal.
    """
    return pl.DataFrame(
        [
            row | _row(refusals[row["expectation"]]) if row["success"] and row["expectation"] in refusals else row
            for row in results.iter_rows(named=True)
        ],
        schema=results.schema,
    )


def _row(observed: Mapping[str, Any]) -> dict[str, object]:
    rows = sum(observed[SET_ASIDE].values())
    return {"success": False, "observed": json.dumps(observed, sort_keys=True), "unexpected_count": rows}


def sentence(refusals: Refusals) -> str:
    """Say which jobs were set aside and for what; empty when none was."""
    jobs = [
        f"job {job} (unexpected rows: {', '.join(f'{rows} in {name}' for name, rows in broken.items())})"
        for job, broken in by_job(refusals).items()
    ]
    return REASON + ", ".join(jobs) if jobs else ""


def reason(before: str | None, refusals: Refusals) -> str | None:
    """Return a window's `reason`: what else was odd in it before, and which jobs are set aside now."""
    odd = (before or "").partition(REASON)[0].removesuffix("; ")
    return "; ".join(filter(None, (odd, sentence(refusals)))) or None
