"""What a warehouse holds, as one value: the troubles with the worst first, the jobs, and the windows' bookkeeping."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import polars as pl

from llmprism_tasks.reports.hosts import abbreviated
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import query
from llmprism_tasks.windows import NANOSECONDS_PER_SECOND

Row = dict[str, Any]

DEVICES = ("addr", "host", "link", "switch")
"""Subjects that can be looked at. Jobs, data-parallel groups and pipeline stages only show what a device does to
them."""


UNSEEN_STEPS = 4
"""A trouble that spared its job's last steps, three in a row and the one under way, is over."""


def summarise(warehouse: Warehouse) -> Row:
    """Read what was found and return it as a value that can be written as JSON.

    Returns
    -------
    `span` : `start` and `end` of all windows, ISO 8601 UTC, and the same as `start_ns`, `end_ns`; None without windows
    `windows` : how many there are in `all` and by `status`, records `read`, `landed`, `quarantined` (also by `reason`)
        and `duplicate`, whether they `add_up`, `expectations_broken`, median and longest run time in s, and what was
        `stopped`
    `jobs` : each job with its latest layout, its hosts, its steps' median and 95th percentile in s, and whether it was
        `seen_last` (in the latest window that was finished)
    `troubles` : diagnoses of consecutive windows as one, the worst first; `also` holds what the same device does
        elsewhere, and what its job suffers meanwhile. Severity is the ratio of time lost: 0.3 means steps take 1.3
        times as long
    """
    span = query(warehouse, "SELECT min(window_start_ns) AS start_ns, max(window_end_ns) AS end_ns FROM windows")
    windows = query(warehouse, "SELECT * FROM window_bookkeeping ORDER BY window_start_ns")
    reasons = query(
        warehouse, "SELECT reason, count(*) AS n FROM flows_quarantine GROUP BY reason ORDER BY n DESC, reason"
    )
    jobs = query(warehouse, "SELECT * FROM job_overview ORDER BY endpoints DESC, job_id")
    members = query(warehouse, "SELECT addr, max(host) AS host FROM job_members GROUP BY addr")
    troubles = query(warehouse, "SELECT * FROM troubles")
    finished = windows.filter(pl.col("status") == "done")["window_start_ns"]
    latest = int(finished[-1]) if len(finished) else None
    hosts = dict(members.iter_rows())
    recent = _recent(jobs, windows, latest)
    return {
        "span": _span(span.row(0, named=True)),
        "windows": _windows(windows) | {"reasons": dict(reasons.iter_rows())},
        "jobs": [_job(row, latest) for row in jobs.iter_rows(named=True)],
        "troubles": _folded([_trouble(row, hosts, recent) for row in troubles.iter_rows(named=True)]),
    }


def _span(row: Row) -> Row | None:
    if row["start_ns"] is None:
        return None
    return {"start": _iso(row["start_ns"]), "end": _iso(row["end_ns"])} | row


def _windows(windows: pl.DataFrame) -> Row:
    counted = windows.group_by("status").len().sort("status")
    stopped = windows.filter(pl.col("status") == "stopped").select("window_start_ns", "reason")
    times = windows.filter(pl.col("status") == "done")["stages_s"]
    totals = {name: int(windows[f"rows_{name}"].sum()) for name in ("read", "landed", "quarantined", "duplicate")}
    return {
        "all": windows.height,
        "status": dict(counted.iter_rows()),
        **totals,
        "add_up": bool(windows["rows_add_up"].all()),
        "expectations_broken": int(windows["expectations_broken"].sum()),
        "median_run_s": _number(times.median()),
        "longest_run_s": _number(times.max()),
        "stopped": [{"window": _iso(start), "reason": reason} for start, reason in stopped.iter_rows()],
    }


def _job(row: Row, latest: int | None) -> Row:
    layout = ("job_id", "kind", "endpoints", "hosts", "tp", "pp", "dp", "steps", "windows")
    return {name: row[name] for name in layout} | {
        "confidence": _number(row["confidence"]),
        "median_step_s": _number(row["median_step_s"]),
        "p95_step_s": _number(row["p95_step_s"]),
        "host_names": abbreviated(row["host_names"] or ()),
        "first_window": _iso(row["first_window_start_ns"]),
        "last_window": _iso(row["last_window_start_ns"]),
        "seen_last": latest is not None and row["last_window_start_ns"] >= latest,
    }


def _recent(jobs: pl.DataFrame, windows: pl.DataFrame, latest: int | None) -> dict[str, int]:
    """Return for each job seen in the latest window since when a trouble of it counts as still there."""
    if latest is None:
        return {}
    end_ns = int(windows.filter(pl.col("window_start_ns") == latest)["window_end"].dt.epoch("ns")[0])
    spared = (pl.col("p95_step_s") * UNSEEN_STEPS * NANOSECONDS_PER_SECOND).cast(pl.Int64)
    since = pl.max_horizontal(pl.lit(latest), end_ns - spared)  # without steps, the whole window
    return dict(jobs.filter(pl.col("last_window_start_ns") >= latest).select("job_id", since).iter_rows())


def _trouble(row: Row, hosts: dict[str, str], recent: dict[str, int]) -> Row:
    kept = ("job_id", "kind", "subject_type", "subject", "windows", "explanation", "first_seen_ns", "last_seen_ns")
    return {name: row[name] for name in kept} | {
        "host": hosts.get(row["subject"]) if row["subject_type"] == "addr" else None,
        "first_seen": _iso(row["first_seen_ns"]),
        "last_seen": _iso(row["last_seen_ns"]),
        "peak_severity": _number(row["peak_severity"]),
        "peak_score": _number(row["peak_score"]),
        "goes_on": row["job_id"] in recent and row["last_seen_ns"] >= recent[row["job_id"]],
        "also": [],
    }


def _folded(troubles: list[Row]) -> list[Row]:
    """Put a device's further troubles, and what its job suffers in the same time, under its worst one."""
    heads: list[Row] = []
    for trouble in sorted(troubles, key=_devices_first):
        head = next((head for head in heads if _same_cause(head, trouble)), None)
        (heads if head is None else head["also"]).append(trouble)
    return sorted(heads, key=_worst_first)


def _same_cause(head: Row, trouble: Row) -> bool:
    if head["first_seen_ns"] > trouble["last_seen_ns"] or trouble["first_seen_ns"] > head["last_seen_ns"]:
        return False
    if trouble["subject_type"] in DEVICES:
        return bool(head["subject_type"] == trouble["subject_type"] and head["subject"] == trouble["subject"])
    jobs = {head["job_id"], *(also["job_id"] for also in head["also"])}
    return head["subject_type"] in DEVICES and trouble["job_id"] in jobs


def _worst_first(trouble: Row) -> tuple[Any, ...]:
    severity = math.inf if trouble["peak_severity"] is None else trouble["peak_severity"]
    names = (trouble["job_id"], trouble["kind"], trouble["subject_type"], trouble["subject"], trouble["first_seen_ns"])
    return (-severity, -trouble["windows"], *names)


def _devices_first(trouble: Row) -> tuple[Any, ...]:
    return (trouble["subject_type"] not in DEVICES, *_worst_first(trouble))


def _number(value: Any) -> float | None:
    """Return a number that JSON can hold; None for what is none."""
    return float(value) if value is not None and math.isfinite(value) else None


def _iso(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, NANOSECONDS_PER_SECOND)
    return f"{dt.datetime.fromtimestamp(seconds, tz=dt.UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03d}Z"
