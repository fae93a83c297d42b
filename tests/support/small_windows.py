"""Rows of small windows: two jobs, `bert` on two hosts and `gpt` on four, and what may be wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import polars as pl

from llmprism_tasks.contract.frames import empty
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.storage import incidents
from llmprism_tasks.warehouse.store import replace

SECOND = 1_000_000_000
FIRST = Window.containing(1_767_225_600 * SECOND, 60 * SECOND)  # 2026-01-01 00:00 UTC

Row = dict[str, Any]
Minute = Callable[..., Window]


def writer(warehouse: Warehouse, then: Callable[[duckdb.DuckDBPyConnection], None] = incidents.renew) -> Minute:
    """Return a function that writes one window of both jobs, but for one that was set aside."""

    def write(
        number: int,
        diagnoses: Sequence[Row] = (),
        *,
        step_s: float = 2.0,
        aside: str | None = None,
        **bookkeeping: object,
    ) -> Window:
        window = FIRST.shifted(number)
        jobs, members, steps = [], [], []
        if bookkeeping.get("status", "done") in ("done", "running"):
            for job, hosts in (("bert", 2), ("gpt", 4)):
                if job == aside:
                    continue
                jobs.append(training(job, endpoints=8 * hosts, hosts=hosts))
                members += [
                    {"job_id": job, "addr": f"10.{len(job)}.{host}.{gpu}", "host": f"{job}-{host:02d}"}
                    for host in range(hosts)
                    for gpu in range(8)
                ]
                steps += own_steps(job, window, step_s)
        rows = {"jobs": jobs, "job_members": members, "steps": steps, "diagnoses": list(diagnoses)}
        rows["windows"] = [bookkept(window, **bookkeeping)]
        rows["validation_results"] = [] if aside is None else [refused(aside)]
        frames = {name: frame(name, window, some) for name, some in rows.items()}
        replace(warehouse, window, frames, then=then)
        return window

    return write


def frame(table: str, window: Window, rows: Sequence[Row]) -> pl.DataFrame:
    schema = empty(table).schema
    return pl.DataFrame([{"window_start_ns": window.start_ns} | row for row in rows], schema=schema)


def training(job: str, *, endpoints: int, hosts: int) -> Row:
    layout = {"tp": 8, "pp": 2, "dp": hosts // 2} if hosts > 2 else {"tp": None, "pp": None, "dp": 16}
    return {"job_id": job, "kind": "training", "endpoints": endpoints, "hosts": hosts, "confidence": 0.97} | layout


def own_steps(job: str, window: Window, step_s: float) -> list[Row]:
    ends = [window.start_ns + int(step_s * SECOND * n) for n in range(1, int(60 / step_s))]
    step_ns = int(step_s * SECOND)
    return [
        {"job_id": job, "addr": None, "step_index": index, "start_ns": end - step_ns, "end_ns": end}
        for index, end in enumerate(ends)
    ]


def bookkept(window: Window, **given: object) -> Row:
    return {
        "window_end_ns": window.end_ns,
        "status": "done",
        "reason": None,
        "rows_read": 1_000,
        "rows_landed": 1_000,
        "rows_quarantined": 0,
        "rows_duplicate": 0,
        "stage_ns": json.dumps({"recognition": SECOND, "diagnosis": SECOND // 2}),
        "software_version": "0",
    } | given


def refused(job: str) -> Row:
    """The expectation that a job was set aside for."""
    return {
        "expectation": "pairs.kind",
        "column": "kind",
        "severity": "critical",
        "success": False,
        "observed": json.dumps({"observed_value": 3, "set_aside": {job: 3}}),
        "unexpected_count": 3,
    }


def diagnosis(window: Window | int, **given: object) -> Row:
    """A GPU of `gpt` that holds it up, unless told otherwise."""
    window = FIRST.shifted(window) if isinstance(window, int) else window
    return {
        "job_id": "gpt",
        "kind": "straggler",
        "subject_type": "addr",
        "subject": "10.3.1.5",
        "start_ns": window.start_ns + 5 * SECOND,
        "end_ns": window.end_ns - 5 * SECOND,
        "score": 12.0,
        "severity": 0.3,
        "explanation": "It starts its sends 0.60 s after its peers, in 28 of 29 steps.",
    } | given
