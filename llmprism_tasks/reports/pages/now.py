"""Now: what is wrong, which jobs there are, and whether the pipeline keeps up, for a range of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND
from llmprism_tasks.reports import minute_states, summary
from llmprism_tasks.reports.pages.markup import PARTS, render
from llmprism_tasks.reports.pages.ranges import LASTS, LONGEST_S, Range, asked_range, listed
from llmprism_tasks.settings import Settings
from llmprism_tasks.warehouse.asking import Asked, asking
from llmprism_tasks.warehouse.bookkeeping.minutes import SCHEDULE
from llmprism_tasks.warehouse.connect import Warehouse

Row = dict[str, Any]
Frames = dict[str, pl.DataFrame]

MOST_INCIDENTS, MOST_JOBS, MOST_WINDOWS = 50, 100, 12
SPARKS, SPLIT_WINDOWS = 40, 3
"""Points of a job's line, and the newest windows over which the split of its time is averaged; of these, the last one
with a step tells how long a step is now."""

EACH_STEP_S = 21_600
"""Longest range, in seconds, over which each step of the jobs is read: 2,880 GPUs write eight million rows of `steps`
in six hours, which takes a fifth of a second to scan."""

MISSING, EMPTY, AGAIN = "missing", "empty", "due again"
STATES = {
    minute_states.STOPPED: "stopped by a check",
    minute_states.SKIPPED: "skipped: no run landed it",
    minute_states.UNFINISHED: "its run died",
    MISSING: "nobody expected it",
    minute_states.LATE: "late",
    AGAIN: "done, to be run again",
    minute_states.RUNNING: "running",
    minute_states.EXPECTED: "expected soon",
    EMPTY: "done, without records",
    minute_states.EXPIRED: "expired",
    minute_states.DONE: "done",
}
"""States of minutes as the page tells them, the worst first."""

BAD_STATES = (minute_states.STOPPED, minute_states.SKIPPED, minute_states.UNFINISHED, MISSING)
MOST_MINUTES = 100_000


def show(
    warehouse: Warehouse,
    query: Mapping[str, str],
    *,
    now_ns: int,
    alone: bool = False,
    settings: Settings | None = None,
) -> str:
    """Return the page of a range; the settings, of the runs, tell which minutes are late.

    Raises
    ------
    QueryTooLong, WarehouseBusy, InputError : as `asking` and `asked_range`
    """
    with asking(warehouse, longest_s=LONGEST_S) as ask:
        asked = asked_range(ask, query)
        settings = settings or Settings()
        frames: Frames = {
            "totals": ask("totals", **asked.values),
            "states": states(ask, asked, settings, now_ns=now_ns),
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
        by_window = {"slice_ns": asked.window_ns, "most": MOST_JOBS * SPLIT_WINDOWS}
        frames["last"] = ask("job_paces", **last, **each | by_window)
        frames["splits"] = ask("splits", **listed(ends), jobs=names, most=MOST_JOBS * SPLIT_WINDOWS)
    return page(frames, asked, now_ns=now_ns, took_s=ask.took_s, alone=alone, lag_s=settings.catch_up.lag_s)


def paces_of(asked: Range) -> str:
    """Return the query for steps over a range: of a long one, windows' typical steps are read rather than each step."""
    return "job_paces" if asked.to_ns - asked.from_ns <= EACH_STEP_S * NANOSECONDS_PER_SECOND else "job_periods"


def page(
    frames: Frames, asked: Range, *, now_ns: int, took_s: Mapping[str, float], lag_s: int, alone: bool = False
) -> str:
    """Return the page as HTML; the frames are rows of the queries of these names in `sql/pages`, and `states`.

    Parameters
    ----------
    lag_s : seconds after which the newest finished window of a scheduled pipeline is told as late
    """
    return render(
        "now.html",
        title="What is wrong now",
        here="now",
        asked=asked,
        lasts=LASTS,
        now_ns=now_ns,
        took_s=took_s,
        alone=alone,
        fresh=asked.last != "",
        incidents=folded(frames["incidents"], asked),
        more_incidents=frames["incidents"].height >= MOST_INCIDENTS,
        jobs=jobs(frames, asked),
        health=health(frames, asked, now_ns=now_ns, lag_s=lag_s),
        states=STATES,
        bad=BAD_STATES,
        row_s=asked.calendar[0] / NANOSECONDS_PER_SECOND,
        cell_s=asked.calendar[1] / NANOSECONDS_PER_SECOND,
    )


def folded(incidents: pl.DataFrame, asked: Range) -> list[Row]:
    """Return incidents in the order of their rows, each with the slow jobs that are its effect in `also`."""
    latest = None if asked.done_ns is None else asked.done_ns - asked.window_ns
    found = [
        summary.incident(row, latest) | {name: row[name] for name in INCIDENT_COLUMNS}
        for row in incidents.iter_rows(named=True)
    ]
    causes = {one["incident_id"]: one for one in found}
    for one in found:
        if one["effect_of"] in causes:
            causes[one["effect_of"]]["also"].append(one)
    return [one for one in found if one["effect_of"] not in causes]


INCIDENT_COLUMNS = (
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
    newest = {row["job_id"]: row["median_step_s"] for row in frames["last"].sort("slice_ns").iter_rows(named=True)}
    found = []
    for row in frames["jobs"].iter_rows(named=True):
        line = [paces.get((row["job_id"], start)) for start in starts]
        known = [value for value in line if value is not None]
        found.append(
            row
            | {
                "paces": line,
                "shortest_s": min(known, default=None),
                "longest_s": max(known, default=None),
                "step_s": newest.get(row["job_id"], known[-1] if known else None),
                "split": splits.get(row["job_id"]),
                "open_incidents": troubles.get(row["job_id"], 0),
                "gone": row["window_start_ns"] + asked.window_ns < (asked.done_ns or 0),
            }
        )
    return found


def states(ask: Asked, asked: Range, settings: Settings, *, now_ns: int) -> pl.DataFrame:
    """Return the state of each minute of a range.

    Returns
    -------
    `window_start_ns`, `state` (a key of `STATES`) and `scheduled`, whether it was expected by the schedule
    """
    back_ns = settings.window.lookback_windows * asked.window_ns
    windows = ask("landed_windows", from_ns=asked.from_ns - back_ns, to_ns=asked.to_ns, most=MOST_MINUTES)
    minutes = ask("expected_minutes", **asked.values, most=MOST_MINUTES)
    known = minute_states.states(minutes, windows, settings, now_ns=now_ns)
    every = pl.int_range(asked.from_ns, asked.to_ns, asked.window_ns, dtype=pl.Int64, eager=True)
    return (
        every.alias("window_start_ns")
        .to_frame()
        .join(known.select("window_start_ns", "state", "reason", "expected_by"), on="window_start_ns", how="left")
        .join(windows.select("window_start_ns", "status", "rows_read"), on="window_start_ns", how="left")
        .with_columns(
            state=pl.when(pl.col("reason") == minute_states.UNFINISHED)
            .then(pl.lit(minute_states.UNFINISHED))
            .when((pl.col("state") == minute_states.DONE) & pl.col("reason").is_not_null())
            .then(pl.lit(AGAIN))
            .when((pl.col("status") == minute_states.DONE) & (pl.col("rows_read") == 0))
            .then(pl.lit(EMPTY))
            .when(pl.col("state").is_not_null())
            .then("state")
            .when(pl.col("status").is_in([minute_states.DONE, minute_states.STOPPED]))  # of an earlier llmprism
            .then("status")
            .when(pl.col("status").is_not_null())
            .then(pl.lit(minute_states.RUNNING))
            .otherwise(pl.lit(MISSING)),
            scheduled=pl.col("expected_by").eq_missing(SCHEDULE),
        )
        .select("window_start_ns", "state", "scheduled")
    )


def health(frames: Frames, asked: Range, *, now_ns: int, lag_s: int) -> Row:
    """Return how the pipeline does: lag, minutes by state and as a calendar, what was refused and why.

    Returns
    -------
    `behind_s` : from the end of the newest finished window until now, which is `behind_windows` windows; `late` if a
        scheduled pipeline is further behind than `lag_s`
    `counts` : minutes by state, the worst first
    `calendar` : a row for each hour, quarter of a day or day: its `start_ns`, and its cells with their worst state
    """
    minutes = frames["states"]
    counted = dict(minutes.group_by("state").len().iter_rows())
    behind_s = None if asked.done_ns is None else (now_ns - asked.done_ns) / NANOSECONDS_PER_SECOND
    return frames["totals"].row(0, named=True) | {
        "behind_s": behind_s,
        "behind_windows": 0 if asked.done_ns is None else (now_ns - asked.done_ns) // asked.window_ns,
        "late": behind_s is not None and behind_s > lag_s and bool(minutes["scheduled"].any()),
        "counts": {state: counted[state] for state in STATES if state in counted},
        "minutes": minutes.height,
        "calendar": _calendar(minutes, asked),
        "troubled": frames["troubled"].to_dicts(),
        "reasons": frames["quarantine"].to_dicts(),
    }


def _calendar(minutes: pl.DataFrame, asked: Range) -> list[Row]:
    row_ns, cell_ns = asked.calendar
    worst = pl.col("state").cast(pl.Enum(list(STATES)))
    cells = (
        minutes.group_by(start_ns=pl.col("window_start_ns") // cell_ns * cell_ns)
        .agg(state=worst.min(), tells=pl.struct("state").value_counts())
        .sort("start_ns")
    )
    told = {
        row["start_ns"]: {"state": row["state"], "tells": _told(row["tells"])} for row in cells.iter_rows(named=True)
    }
    first = asked.from_ns // row_ns * row_ns
    return [
        {"start_ns": start, "cells": [{"start_ns": at} | told.get(at, {"state": "", "tells": ""})
                                      for at in range(start, start + row_ns, cell_ns)]}
        for start in range(first, asked.to_ns, row_ns)
    ]  # fmt: skip


def _told(counts: list[Row]) -> str:
    found = {one["state"]["state"]: one["count"] for one in counts}
    return ", ".join(f"{found[state]} {words}" for state, words in STATES.items() if state in found)
