"""Summary: the content of a warehouse as one JSON value: incidents with the worst first, jobs, and windows."""

from __future__ import annotations

import datetime as dt
import math
import time
from dataclasses import asdict
from typing import Any

import polars as pl

from llmprism_tasks.contract.fault_catalogue import advice, work_of
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.reports.hosts import abbreviated
from llmprism_tasks.reports.minute_states import coverage, read_states
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.store import frame

Row = dict[str, Any]

QUERIES = {
    "span": "SELECT min(window_start_ns) AS start_ns, max(window_end_ns) AS end_ns FROM windows",
    "windows": "SELECT * FROM window_bookkeeping ORDER BY window_start_ns",
    "reasons": "SELECT reason, count(*) AS n FROM flows_quarantine GROUP BY reason ORDER BY n DESC, reason",
    "jobs": "SELECT * FROM job_overview ORDER BY endpoints DESC, job_id",
    "incidents": "SELECT * FROM incidents",
    "broken": "SELECT severity, count(*) FROM validation_results WHERE NOT success GROUP BY ALL ORDER BY ALL",
    "aside": "SELECT * FROM aside_jobs ORDER BY job_id, window_start_ns",
}
"""What a summary is made of."""


def summarise(warehouse: Warehouse, settings: Settings | None = None, *, now_ns: int | None = None) -> Row:
    """Read the incidents, jobs and windows of a warehouse into a value that can be written as JSON.

    Parameters
    ----------
    settings : of the runs, to know which windows are due; by default those that every setting has
    now_ns : the time, nanoseconds since the Unix epoch; by default the clock's

    Returns
    -------
    `span` : `start` and `end` of all windows, ISO 8601 UTC, and the same as `start_ns`, `end_ns`; None without windows
    `windows` : number of windows (`all`), by `status`, and `looked_at` (done, with landed records); records `read`,
        `landed`, `quarantined` (also by `reason`) and `duplicate`, whether they `add_up`, `expectations_broken`, the
        same `broken_by_severity`, how many windows are `doubtful` because many of their records were refused or came
        twice (expectations of the table `windows`), median and longest run time in s, starts of windows that are
        `without_records`, how many have their `flows_expired`, and the windows that were `stopped`
    `coverage` : number of windows that were `expected` and are `done`, that are `due` by reason, that were `given_up`,
        and the seconds `lag_s` and `silent_s` of runs that the schedule expects
    `set_aside` : each job whose rows were withheld in some windows because they broke `expectations`, the number of
        these `windows`, and the `last_window`
    `jobs` : each job with its latest layout, its hosts, median and 95th percentile of its steps in s, whether it was
        `seen_last` (in the latest finished window), and `unlisted`, the addresses outside the topology that train with
        it
    `incidents` : open incidents first, of those the most expensive first; `also` holds effects of the incident on its
        job, and `seen_last` says whether the latest finished window has it. Severity is the ratio of time lost: 0.3
        means steps take 1.3 times as long. `went_on` says whether steps have ended since a silence, `evidence_expired`
        that the flows which `evidence_sql` asks for were kept long enough and deleted
    """
    with warehouse.reading() as connection:  # one, so that all is of one moment, and opened once
        found = {name: frame(connection.execute(sql)) for name, sql in QUERIES.items()}
    windows = found["windows"]
    finished = windows.filter(pl.col("status") == "done")["window_start_ns"]
    latest = int(finished[-1]) if len(finished) else None
    now_ns = time.time_ns() if now_ns is None else now_ns
    settings = settings or Settings()
    covered = coverage(read_states(warehouse, settings, now_ns=now_ns), settings, now_ns=now_ns)
    return {
        "span": _span(found["span"].row(0, named=True)),
        "windows": _windows(windows)
        | {"reasons": dict(found["reasons"].iter_rows()), "broken_by_severity": dict(found["broken"].iter_rows())},
        "coverage": asdict(covered),
        "set_aside": _set_aside(found["aside"]),
        "jobs": [_job(row, latest) for row in found["jobs"].iter_rows(named=True)],
        "incidents": _folded([incident(row, latest) for row in found["incidents"].iter_rows(named=True)]),
    }


def _span(row: Row) -> Row | None:
    if row["start_ns"] is None:
        return None
    return {"start": _iso(row["start_ns"]), "end": _iso(row["end_ns"])} | row


def _windows(windows: pl.DataFrame) -> Row:
    counted = windows.group_by("status").len().sort("status")
    stopped = windows.filter(pl.col("status") == "stopped").select("window_start_ns", "reason")
    without = windows.filter(pl.col("rows_read") == 0)["window_start_ns"]
    done = windows.filter(pl.col("status") == "done")
    times = done["stages_s"]
    totals = {name: int(windows[f"rows_{name}"].sum()) for name in ("read", "landed", "quarantined", "duplicate")}
    return {
        "all": windows.height,
        "status": dict(counted.iter_rows()),
        "looked_at": done.filter(pl.col("rows_landed") > 0).height,
        **totals,
        "add_up": bool(windows["rows_add_up"].all()),
        "expectations_broken": int(windows["expectations_broken"].sum()),
        "doubtful": int(windows["doubtful"].sum()),
        "median_run_s": _number(times.median()),
        "longest_run_s": _number(times.max()),
        "without_records": [_iso(start) for start in without],
        "flows_expired": int(windows["expired"].list.contains("flows").sum()),
        "stopped": [{"window": _iso(start), "reason": reason} for start, reason in stopped.iter_rows()],
    }


def _set_aside(aside: pl.DataFrame) -> list[Row]:
    by_job = aside.group_by("job_id", maintain_order=True).agg(
        windows=pl.len(),
        last_window=pl.col("window_start_ns").max(),
        expectations=pl.col("expectations").list.explode().unique().sort(),
    )
    return [row | {"last_window": _iso(row["last_window"])} for row in by_job.iter_rows(named=True)]


def _job(row: Row, latest: int | None) -> Row:
    layout = ("job_id", "kind", "endpoints", "hosts", "tp", "pp", "dp", "cp", "ep", "sharded", "steps", "windows")
    return {name: row[name] for name in layout} | {
        "confidence": _number(row["confidence"]),
        "median_step_s": _number(row["median_step_s"]),
        "p95_step_s": _number(row["p95_step_s"]),
        "host_names": abbreviated(row["host_names"] or ()),
        "unlisted": row["unlisted"] or [],
        "first_window": _iso(row["first_window_start_ns"]),
        "last_window": _iso(row["last_window_start_ns"]),
        "seen_last": latest is not None and row["last_window_start_ns"] >= latest,
    }


def incident(row: Row, latest: int | None) -> Row:
    """Return what reports tell of a row of the view `incidents`; see `summarise`.

    Parameters
    ----------
    latest : start of the latest finished window, ns; None without one
    """
    names = ("incident_id", "state", "job_id", "jobs", "kind", "subject_type", "subject", "host")
    kept = (*names, "windows", "effect_of", "went_on", "evidence_expired", "single_steps", "candidates", "odds")
    numbers = ("peak_severity", "peak_score", "confidence", "lost_gpu_s", "recoverable_gpu_s")
    return (
        {name: row[name] for name in kept}
        | {"work": work_of(row["kind"]), "seen_last": latest is None or row["last_window_start_ns"] >= latest}
        | {name: _number(row[name]) for name in numbers}
        | {"started": _iso(row["start_ns"]), "last_seen": _iso(row["last_seen_ns"])}
        | {"ended": None if row["end_ns"] is None else _iso(row["end_ns"])}
        | {"explanation": row["explanation"], "next": advice(row), "evidence_sql": row["evidence_sql"], "also": []}
    )


def _folded(incidents: list[Row]) -> list[Row]:
    """Put effects on a job under the incident that causes them, and sort the worst first."""
    ordered = sorted(incidents, key=_worst_first)
    causes = {incident["incident_id"]: incident for incident in ordered if incident["effect_of"] is None}
    for incident in ordered:
        if incident["effect_of"] is not None:
            causes[incident["effect_of"]]["also"].append(incident)
    return list(causes.values())


def _worst_first(incident: Row) -> tuple[Any, ...]:
    severity = math.inf if incident["peak_severity"] is None else incident["peak_severity"]
    cost = incident["lost_gpu_s"] or 0.0
    return (incident["state"] != "open", -cost, -severity, incident["started"], incident["incident_id"])


def _number(value: Any) -> float | None:
    """Return a number that JSON can hold; None for NULL, infinity and NaN."""
    return float(value) if value is not None and math.isfinite(value) else None


def _iso(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, NANOSECONDS_PER_SECOND)
    return f"{dt.datetime.fromtimestamp(seconds, tz=dt.UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03d}Z"
