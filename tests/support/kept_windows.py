"""Windows with a few flows, a timeline and results each, in a warehouse: for what deletes, copies and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
from flowfiles import MINUTE_NS, WINDOW
from flowfiles import flow as record
from small_windows import bookkept, diagnosis, training

from llmprism_tasks.contract.frames import conform
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.storage import incidents

TABLES = ("flows", "flows_quarantine", "windows", "jobs", "steps", "timeline", "diagnoses")


def window(number: int) -> Window:
    return Window(WINDOW.start_ns + number * MINUTE_NS, MINUTE_NS)


def put(
    warehouse: Warehouse,
    numbers: Sequence[int],
    *,
    flows: int = 20,
    status: str = "done",
    addr: str = "10.0.1.{number}",
) -> None:
    """Write windows; each one's flows come from an address of its own, unless told otherwise."""
    for number in numbers:
        one = window(number)
        rows = {
            "flows": [
                record(
                    60 * number + 50 * at / flows, src_addr=addr.format(number=number), switch_path=[f"leaf{number}"]
                )
                for at in range(flows)
            ],
            "flows_quarantine": [
                {"reason": "zero bytes", "source_file": "f", "source_position": 1, "record": "{}"},
            ],
            "windows": [bookkept(one, status=status, rows_landed=flows, rows_read=flows + 1, rows_quarantined=1)],
            "jobs": [training("gpt", endpoints=32, hosts=4)],
            "timeline": [
                {
                    "job_id": "gpt",
                    "addr": addr.format(number=number),
                    "start_ns": one.start_ns + at,
                    "end_ns": one.start_ns + at + 1,
                    "phase": "compute",
                    "bytes": 0,
                    "step_index": at,
                }
                for at in range(flows)
            ],
            "steps": [
                {"job_id": "gpt", "addr": nic, "step_index": 0, "start_ns": one.start_ns, "end_ns": one.start_ns + 1}
                for nic in (None, addr.format(number=number))
            ],
            "diagnoses": [diagnosis(one, evidence_sql="SELECT 1")],
        }
        frames = {
            table: conform(
                pl.DataFrame([{"window_start_ns": one.start_ns} | row for row in some], infer_schema_length=None), table
            )
            for table, some in rows.items()
        }
        store.replace(warehouse, one, frames, then=incidents.renew)


def counts(warehouse: Warehouse) -> dict[str, list[int]]:
    """Return, for each table, the numbers of the windows that have rows in it."""
    return {
        table: sorted({(int(row[0]) - WINDOW.start_ns) // MINUTE_NS for row in rows})
        for table, rows in _rows(warehouse, "window_start_ns").items()
    }


def everything(warehouse: Warehouse) -> dict[str, list[str]]:
    """Return all rows of all tables, in order."""
    return {table: sorted(map(repr, rows)) for table, rows in _rows(warehouse, "*").items()}


def _rows(warehouse: Warehouse, columns: str) -> dict[str, list[tuple[Any, ...]]]:
    with warehouse.reading() as connection:
        return {table: connection.execute(f"SELECT {columns} FROM {table}").fetchall() for table in TABLES}
