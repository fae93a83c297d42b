"""Window: what a run found, which expectations did not hold and in which rows, and where its time went."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.reports.pages.markup import moment, render
from llmprism_tasks.reports.pages.ranges import LASTS, LONGEST_S, Range, asked_range
from llmprism_tasks.reports.pages.timeline import whole
from llmprism_tasks.warehouse.asking import asking
from llmprism_tasks.warehouse.connect import Warehouse

Row = dict[str, Any]
Frames = dict[str, pl.DataFrame]

MOST_CHECKS, MOST_DIAGNOSES, MOST_JOBS = 500, 200, 200


def show(warehouse: Warehouse, query: Mapping[str, str], *, now_ns: int, alone: bool = False) -> str:
    """Return the page of a window.

    Raises
    ------
    InputError : there is no such window
    QueryTooLong, WarehouseBusy : as `asking`
    """
    with asking(warehouse, longest_s=LONGEST_S) as ask:
        asked = asked_range(ask, {})
        start = whole(query, "start_ns")
        if start is None:
            start = (asked.newest_ns or asked.window_ns) - asked.window_ns
        span = {"from_ns": start, "to_ns": start + 1}
        frames = {
            "window": ask("window", window_start_ns=start),
            "checks": ask("checks", window_start_ns=start, most=MOST_CHECKS),
            "diagnoses": ask("diagnoses", first_ns=start, last_ns=start, jobs=[], most=MOST_DIAGNOSES),
            "jobs": ask("jobs", **span, job_id=None, most=MOST_JOBS),
            "quarantine": ask("quarantine", **span, most=20),
            "beside": ask("neighbours", window_start_ns=start, length_ns=asked.window_ns, job_id=None),
        }
    if frames["window"].is_empty():
        raise InputError(
            found=f"no window that starts at {moment(start)} UTC",
            expected="a window that was landed",
            todo="If its run has not begun yet, look again later; if it failed before landing, see its log.",
        )
    return page(frames, asked, now_ns=now_ns, took_s=ask.took_s, alone=alone)


def page(frames: Frames, asked: Range, *, now_ns: int, took_s: Mapping[str, float], alone: bool = False) -> str:
    """Return the page as HTML; the frames are rows of the queries of these names in `sql/pages`."""
    row = frames["window"].row(0, named=True)
    return render(
        "window.html",
        title=f"Window {moment(row['window_start_ns'], seconds=False)}",
        here="window",
        asked=asked,
        lasts=LASTS,
        now_ns=now_ns,
        took_s=took_s,
        alone=alone,
        window=row,
        stages=stages(row["stage_ns"]),
        broken=[broken(one) for one in frames["checks"].filter(~pl.col("success")).iter_rows(named=True)],
        held=frames["checks"]["success"].sum(),
        diagnoses=frames["diagnoses"].to_dicts(),
        jobs=frames["jobs"].to_dicts(),
        reasons=frames["quarantine"].to_dicts(),
        beside=frames["beside"].row(0, named=True),
    )


def stages(stage_ns: str) -> list[Row]:
    """Return each stage of a run with its time in s and its share, in the order of the run."""
    took = {name: value / 1e9 for name, value in json.loads(stage_ns).items()}
    total = sum(took.values())
    return [{"name": name, "took_s": value, "share": value / total if total else 0} for name, value in took.items()]


def broken(check: Row) -> Row:
    """Return an expectation that did not hold, with what was observed and the rows that break it, as far as kept."""
    try:
        observed = json.loads(check["observed"] or "{}")
    except ValueError:
        observed = {"observed": check["observed"]}
    observed = observed if isinstance(observed, dict) else {"observed": observed}
    rows = observed.pop("rows", None)
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return check | {
        "observed": observed,
        "rows": rows[:20],
        "columns": list(dict.fromkeys(key for row in rows for key in row)),
    }
