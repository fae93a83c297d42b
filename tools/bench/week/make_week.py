"""Make a week of results of 2,880 GPUs in a warehouse of its own, hour by hour."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.storage import incidents

FIRST_NS = 1_777_248_000 * 10**9
"""2026-04-27 00:00 UTC, a Monday."""

HOUR_NS = 3_600 * 10**9

TIMELINE_MINUTES, FLOWS_MINUTES = 15, 6
"""Newest minutes that have a timeline and flows. More are kept for a day, but a page reads three windows at most."""


COPIED = {
    "windows": ("window_start_ns", "window_end_ns"),
    "minutes": ("window_start_ns", "expected_ns", "begun_ns", "last_run_ns"),
    "flows_quarantine": ("window_start_ns",),
    "validation_results": ("window_start_ns",),
    "jobs": ("window_start_ns",),
    "job_members": ("window_start_ns",),
    "steps": ("window_start_ns", "start_ns", "end_ns"),
    "step_breakdown": ("window_start_ns",),
    "pairs": ("window_start_ns",),
    "diagnoses": ("window_start_ns", "start_ns", "end_ns"),
}
"""Tables of a week, and their columns that are times."""

MADE_HOURS = 6
"""Hours that are made; all later ones are copies of these, moved in time, which takes a fifth of the time."""


def make_week(path: Path, *, hours: int, say: Callable[[str], None]) -> None:
    """Write the results of `hours` hours, at least `MADE_HOURS`, to a new warehouse.

    A week takes half an hour on two cores, and 5 GB.
    """
    warehouse = open_warehouse(Warehouse(str(path), lock_wait_s=60))
    began = time.monotonic()
    for hour in range(hours):
        values = {"first_ns": FIRST_NS + hour * HOUR_NS, "hour": hour}
        with warehouse.writing() as connection:
            connection.execute("SET threads = 2")
            if hour < MADE_HOURS:
                for sql in statements("rows"):
                    connection.execute(sql, _taken(sql, values))
            else:
                for table in COPIED:
                    connection.execute(_copy(table), _moved(hour))
        if hour % 12 == 11 or hour == hours - 1:
            say(f"{hour + 1} of {hours} hours, {time.monotonic() - began:.0f} s, {path.stat().st_size / 1e9:.1f} GB")
    with warehouse.writing() as connection:
        newest = {
            "first_ns": FIRST_NS + (hours - 1) * HOUR_NS, "hour": hours - 1,
            "timeline_from": 60 - TIMELINE_MINUTES, "flows_from": 60 - FLOWS_MINUTES,
        }  # fmt: skip
        for sql in (*itertools.islice(statements("rows"), 3), *statements("newest")):
            connection.execute(sql, _taken(sql, newest))
        incidents.renew(connection)


def _copy(table: str) -> str:
    moved = ", ".join(f"{column} + $by_ns AS {column}" for column in COPIED[table])
    return (
        f"INSERT INTO {table} SELECT * REPLACE ({moved}) FROM {table} WHERE window_start_ns BETWEEN $from_ns AND $to_ns"
    )


def _moved(hour: int) -> dict[str, int]:
    start = FIRST_NS + hour % MADE_HOURS * HOUR_NS
    return {"by_ns": hour // MADE_HOURS * MADE_HOURS * HOUR_NS, "from_ns": start, "to_ns": start + HOUR_NS - 1}


def statements(name: str) -> Iterator[str]:
    """Yield the statements of a file of this folder."""
    text = (Path(__file__).parent / f"{name}.sql").read_text(encoding="utf-8")
    yield from (one.strip() for one in re.sub(r"^--.*$", "", text, flags=re.MULTILINE).split(";") if one.strip())


def _taken(sql: str, values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if f"${name}" in sql}
