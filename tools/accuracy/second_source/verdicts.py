"""What was said of faults, against what may be said of them: told, named, called what they are, and how soon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from llmprism_tasks.reports.evaluation.diagnoses import DEVICES

NANOSECONDS = 1e9
LARGEST_SET = 3
"""Devices that data may fail to tell apart, and the fault still counts as named."""

NOISES = 3.0
"""Standard deviations of its job's steps by which a fault must lengthen one of them to be asked for."""

Row = dict[str, Any]


def asked(fault: Row) -> bool:
    """Say whether a fault has to be told: no step ends in it, it lengthens one beyond noise, or it halves a pace."""
    longest = fault["longest"]
    return bool(fault["halved"] or longest is None or longest > NOISES * (fault["noise"] or 0.0))


def fault_verdicts(faults: pl.DataFrame, diagnoses: pl.DataFrame, windows: pl.DataFrame) -> list[Row]:
    """Judge what was said of each fault.

    Parameters
    ----------
    faults : `truth_faults` with `accept`, `right_kinds`, `halved`, `effect`, `longest`, `noise`
    diagnoses : as `reports.evaluation.diagnoses.judged` returns: with the true `job` of each row
    windows : `window_start_ns`, `window_end_ns`

    Returns
    -------
    for each fault its kind, job, subject and effect; `asked`; `told` (a row of its job and time, or one that names its
    device); `first` (the first suspect: a device, a set of candidates, or a job that counts as right; by window, rank,
    severity) and `first_right` (it is accepted, or is a set of at most three with an accepted one); `said` (the kind of
    the row that first named the fault, or else of the first suspect) and `kind_right`; `seconds` from the onset to the
    end of the window of the first row
    """
    ends = dict(windows.select("window_start_ns", "window_end_ns").rows())
    said = diagnoses.sort(
        "window_start_ns", "rank", "severity", "subject", descending=[False, False, True, False], nulls_last=True
    ).to_dicts()
    return [_verdict(fault, said, ends) for fault in faults.to_dicts()]


def _verdict(fault: Row, said: Sequence[Row], ends: dict[int, int]) -> Row:
    met = [row for row in said if row["start_ns"] <= fault["end_ns"] and row["end_ns"] >= fault["start_ns"]]
    own = [row for row in met if (row["job"] == fault["job"] if fault["job"] else True) or _right(row, fault)]
    suspects = [row for row in own if row["subject_type"] in DEVICES or row["candidates"] or _right(row, fault)]
    naming = [row for row in suspects if _right(row, fault)]
    first = suspects[0] if suspects else None
    spoken = naming[0] if naming else first or (own[0] if own else None)
    kept = ("kind", "job", "subject_type", "subject", "severity", "effect", "longest", "noise", "halved")
    return {
        **{name: fault[name] for name in kept},
        "asked": asked(fault),
        "told": bool(own),
        "named": bool(naming),
        "first": first and _words(first),
        "first_right": first is not None and _right(first, fault),
        "said": spoken and spoken["kind"],
        "kind_right": spoken is not None and spoken["kind"] in fault["right_kinds"],
        "seconds": (ends[own[0]["window_start_ns"]] - fault["start_ns"]) / NANOSECONDS if own else None,
    }


def names_one(row: Row, faults: Sequence[Row]) -> bool:
    """Say whether a diagnosis names a fault of its time, or few devices that the fault's is among."""
    met = (one for one in faults if row["start_ns"] <= one["end_ns"] and row["end_ns"] >= one["start_ns"])
    return any(_right(row, one) for one in met)


def _words(row: Row) -> str:
    candidates = f" of {', '.join(row['candidates'])}" if row["candidates"] else ""
    return f"{row['kind']} {row['subject_type']}:{row['subject']}{candidates}"


def _right(row: Row, fault: Row) -> bool:
    """Say whether a row names the fault's device, or few devices that it is among."""
    subject = row["job"] if row["subject_type"] == "job" else row["subject"]
    if f"{row['subject_type']}:{subject}" in fault["accept"]:
        return True
    candidates = row["candidates"] or []
    if not 0 < len(candidates) <= LARGEST_SET:
        return False
    names = {one.split(":", 1)[1] for one in fault["accept"] if not one.startswith("job:")}
    return any(one in names or one.split(":", 1)[-1] in names or one.split(" ", 1)[-1] in names for one in candidates)


def healthy_hours(jobs: pl.DataFrame, faults: pl.DataFrame) -> float:
    """Return the hours of jobs in which nothing was wrong with them.

    A device's fault counts for one job, the one that is named or else the first.

    Parameters
    ----------
    jobs : `truth_jobs`
    faults : `truth_faults`
    """
    spans = jobs.group_by("job").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    total = float((spans["end_ns"] - spans["start_ns"]).sum())
    first = jobs["job"][0] if jobs.height else ""
    ill = (
        faults.select("start_ns", "end_ns", job=pl.col("job").fill_null(first))
        .join(spans, on="job", suffix="_job")
        .select(pl.min_horizontal("end_ns", "end_ns_job") - pl.max_horizontal("start_ns", "start_ns_job"))
        .to_series()
    )
    return (total - float(ill.clip(0).sum())) / NANOSECONDS / 3600
