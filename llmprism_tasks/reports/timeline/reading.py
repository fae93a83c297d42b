"""Reading: a job's rows for a time, arranged as lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.frames import empty
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.reports.timeline.lanes import Lanes, lanes
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import statement
from llmprism_tasks.warehouse.store import frame, rows

TABLES = ("jobs", "job_members", "steps", "timeline", "step_breakdown", "diagnoses")

MOST_ROWS = 2_000_000
"""Rows of `timeline` that are arranged at a time: about 1 GiB of memory, and more than a viewer opens."""


def read_lanes(
    warehouse: Warehouse,
    job_id: str,
    start_ns: int,
    end_ns: int,
    *,
    addrs: Sequence[str] | None = None,
    most: int = MOST_ROWS,
) -> Lanes:
    """Return the lanes of a job's steps of which some part lies in `[start_ns, end_ns)`; steps are whole.

    Parameters
    ----------
    addrs : the NICs to return; None for all of the job
    most : rows of `timeline` above which the question is refused

    Returns
    -------
    lanes without rows where the job has no step then

    Raises
    ------
    InputError : there are more rows than `most`
    """
    some = {"job_id": job_id, "addrs": None if addrs is None else [*addrs]}
    with warehouse.reading() as connection:

        def read(name: str, **values: Any) -> pl.DataFrame:
            return frame(connection.execute(statement(name), some | values))

        chosen = read("steps_between", start_ns=start_ns, end_ns=end_ns, addrs=[])
        if chosen.is_empty():
            return lanes({name: empty(name) for name in TABLES}, start_ns, end_ns)
        # A NIC begins and ends a step before its job does, by less than a step.
        begin, end = pl.col("start_ns"), pl.col("end_ns")
        first, last, longest = chosen.select(begin.min(), end.max(), longest=(end - begin).max()).row(0)
        steps = read("steps_between", start_ns=first - longest, end_ns=last + longest)
        timeline = read("timeline_between", start_ns=first - longest, end_ns=last, most=most + 1)
        if timeline.height > most:
            raise InputError(
                found=f"more than {most:,} rows of the timeline of {job_id}",
                expected="a part that can be looked at",
                todo="Ask for a shorter time, or for some NICs.",
            )
        window = pl.col("window_start_ns")
        first, last = steps.select(first=window.min(), last=window.max()).row(0)
        span = Window(first, last + 1 - first)
        found = {table: rows(connection, table, span, jobs=[job_id]) for table in ("jobs", "job_members", "diagnoses")}
        found["step_breakdown"] = read("breakdown_of_windows", first_ns=first, last_ns=last)
    return lanes(found | {"steps": steps, "timeline": timeline}, start_ns, end_ns)


def last_steps(warehouse: Warehouse, job_id: str, until_ns: int, steps: int) -> int:
    """Return when the last `steps` steps of a job that began before a time began; that time if there are none."""
    values = {"job_id": job_id, "until_ns": until_ns, "steps": steps}
    with warehouse.reading() as connection:
        found = connection.execute(statement("last_steps"), values).fetchone()
    return until_ns if found is None or found[0] is None else int(found[0])
