"""Now: what is wrong, which jobs there are, and whether the pipeline keeps up, for a range of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.reports import summary
from llmprism_tasks.reports.pages.charts import PARTS
from llmprism_tasks.reports.pages.markup import render
from llmprism_tasks.reports.pages.ranges import LASTS, LONGEST_S, Range, asked_range, listed
from llmprism_tasks.warehouse.asking import asking
from llmprism_tasks.warehouse.connect import Warehouse

Row = dict[str, Any]
Frames = dict[str, pl.DataFrame]

MOST_INCIDENTS, MOST_JOBS, MOST_WINDOWS = 50, 100, 12
SPARKS, SPLIT_WINDOWS = 40, 3
"""Points of a job's line, and the newest windows over which the split of its time is averaged."""

EACH_STEP_S = 21_600
"""Longest range, in seconds, over which each step of the jobs is read: 2,880 GPUs write eight million rows of `steps`
in six hours, which takes a fifth of a second to scan."""

LATE_S = 300
"""Seconds after which a newest window counts as late: five windows, so a short pause of the scheduler is not told."""


def show(warehouse: Warehouse, query: Mapping[str, str], *, now_ns: int, alone: bool = False) -> str:
    """Return the page of a range.

    Raises
    ------
    QueryTooLong, WarehouseBusy, InputError : as `asking` and `asked_range`
    """
    with asking(warehouse, longest_s=LONGEST_S) as ask:
        asked = asked_range(ask, query)
        frames: Frames = {
            "health": ask("health", **asked.values, slice_ns=asked.slice_ns(), most=1_000),
            "troubled": ask("troubled_windows", **asked.values, most=MOST_WINDOWS),
            "quarantine": ask("quarantine", **asked.values, most=20),
            "incidents": ask(
                "incidents", **asked.values, now_ns=now_ns, incident_id=None, job_id=None, most=MOST_INCIDENTS
            ),
            "jobs": ask("jobs", **asked.values, job_id=None, most=MOST_JOBS),
        }
        names = frames["jobs"]["job_id"].to_list()
        newest = frames["jobs"]["window_start_ns"].max()
        ends = [newest - n * asked.window_ns for n in range(SPLIT_WINDOWS)] if isinstance(newest, int) else []
        each = {"slice_ns": asked.slice_ns(SPARKS), "jobs": names, "most": MOST_JOBS * SPARKS}
        frames["paces"] = ask(paces_of(asked), **asked.values, **each)
        last = {"from_ns": max(asked.to_ns - SPLIT_WINDOWS * asked.window_ns, asked.from_ns), "to_ns": asked.to_ns}
        frames["last"] = ask("job_paces", **last, **each | {"slice_ns": SPLIT_WINDOWS * asked.window_ns})
        frames["splits"] = ask("splits", **listed(ends), jobs=names, most=MOST_JOBS * SPLIT_WINDOWS)
    return page(frames, asked, now_ns=now_ns, took_s=sum(ask.took_s.values()), alone=alone)


def paces_of(asked: Range) -> str:
    """Return the query for steps over a range: of a long one, windows' typical steps are read rather than each step."""
    return "job_paces" if asked.to_ns - asked.from_ns <= EACH_STEP_S * NANOSECONDS_PER_SECOND else "job_periods"


def page(frames: Frames, asked: Range, *, now_ns: int, took_s: float, alone: bool = False) -> str:
    """Return the page as HTML; the frames are rows of the queries of these names in `sql/pages`."""
    return render(
        "now.html",
        title="What is wrong now",
        here="now",
        asked=asked,
        lasts=LASTS,
        now_ns=now_ns,
        took_s=took_s,
        alone=alone,
        incidents=folded(frames["incidents"]),
        more_incidents=frames["incidents"].height >= MOST_INCIDENTS,
        jobs=jobs(frames, asked),
        health=health(frames, asked, now_ns),
    )


def folded(incidents: pl.DataFrame) -> list[Row]:
    """Return incidents in the order of their rows, each with the slow jobs that are its effect in `also`."""
    found = [summary.incident(row) | {name: row[name] for name in EXTRAS} for row in incidents.iter_rows(named=True)]
    causes = {one["incident_id"]: one for one in found}
    for one in found:
        if one["effect_of"] in causes:
            causes[one["effect_of"]]["also"].append(one)
    return [one for one in found if one["effect_of"] not in causes]


EXTRAS = (
    *("start_ns", "last_seen_ns", "end_ns", "first_window_start_ns", "last_window_start_ns"),
    *("worst_window_start_ns", "muted_until_ns", "mute_reason", "muted_by", "kinds", "family"),
)


def jobs(frames: Frames, asked: Range) -> list[Row]:
    """Return the jobs, each with its paces over the range, the split of its newest windows and its worst incident."""
    starts = asked.slices(SPARKS)
    paces = {(row["job_id"], row["slice_ns"]): row["median_step_s"] for row in frames["paces"].iter_rows(named=True)}
    parts = {name: pl.col(f"{name}_s").dot("member_steps") / pl.col("step_s").dot("member_steps") for name in PARTS}
    splits = {row["job_id"]: row for row in frames["splits"].group_by("job_id").agg(**parts).iter_rows(named=True)}
    troubles: dict[str, int] = {}
    for row in frames["incidents"].iter_rows(named=True):
        if row["state"] == "open" and row["effect_of"] is None:
            for job in row["jobs"]:
                troubles[job] = troubles.get(job, 0) + 1
    newest = {row["job_id"]: row["median_step_s"] for row in frames["last"].iter_rows(named=True)}
    found = []
    for row in frames["jobs"].iter_rows(named=True):
        line = [paces.get((row["job_id"], start)) for start in starts]
        known = [value for value in line if value is not None]
        found.append(
            row
            | {
                "paces": line,
                "step_s": newest.get(row["job_id"], known[-1] if known else None),
                "split": splits.get(row["job_id"]),
                "open_incidents": troubles.get(row["job_id"], 0),
                "gone": row["window_start_ns"] + asked.window_ns < (asked.done_ns or 0),
            }
        )
    return found


def health(frames: Frames, asked: Range, now_ns: int) -> Row:
    """Return how the pipeline does: lag, windows by state, minutes without a window, what was refused and why."""
    slices = frames["health"]
    totals = {
        name: int(slices[name].sum())
        for name in ("windows", "done", "stopped", "unfinished", "without_records", "rows_read", "rows_quarantined")
    }
    by_start = {row["slice_ns"]: row for row in slices.iter_rows(named=True)}
    lag_s = None if asked.done_ns is None else (now_ns - asked.done_ns) / NANOSECONDS_PER_SECOND
    return totals | {
        "lag_s": lag_s,
        "late": lag_s is not None and lag_s > LATE_S,
        "missing": max(asked.windows - totals["windows"], 0),
        "longest_s": slices["longest_s"].max(),
        "slices": [_slice(start, by_start.get(start), asked) for start in asked.slices()],
        "slice_s": asked.slice_ns() / NANOSECONDS_PER_SECOND,
        "troubled": frames["troubled"].to_dicts(),
        "reasons": frames["quarantine"].to_dicts(),
    }


def _slice(start_ns: int, row: Row | None, asked: Range) -> Row:
    room = max(min(asked.slice_ns(), asked.to_ns - start_ns) // asked.window_ns, 1)
    if row is None:
        return {"start_ns": start_ns, "state": "missing", "tells": "no window"}
    if row["stopped"]:
        return {"start_ns": start_ns, "state": "stopped", "tells": f"{row['stopped']} stopped"}
    if row["unfinished"]:
        return {"start_ns": start_ns, "state": "unfinished", "tells": f"{row['unfinished']} not finished"}
    if row["windows"] < room:
        return {"start_ns": start_ns, "state": "missing", "tells": f"{room - row['windows']} of {room} missing"}
    if row["without_records"]:
        return {"start_ns": start_ns, "state": "empty", "tells": f"{row['without_records']} without records"}
    return {"start_ns": start_ns, "state": "done", "tells": "done"}
