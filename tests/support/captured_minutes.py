"""A small real capture as a collector would drop it, a file for each minute, and all rows that came of it."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

import polars as pl
from places import REAL

from llmprism_tasks.contract.tables import HISTORY, TABLES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.analyze import analyze
from llmprism_tasks.settings import Settings
from llmprism_tasks.settings.load import load
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse

MINUTE_NS = 60_000_000_000
SOURCE = REAL / "dp2pp4_healthy"  # the smallest
WINDOWS = [Window(minute * MINUTE_NS, MINUTE_NS) for minute in (29919505, 29919506)]


def drop(folder: Path) -> None:
    """Write the capture's topology and flows into a folder; the files have been quiet since their minutes ended."""
    (folder / "topology.csv").write_bytes((SOURCE / "topology.csv").read_bytes())
    (folder / "flows").mkdir()
    flows = pl.read_parquet(SOURCE / "flows.parquet")
    for window in WINDOWS:
        inside = pl.col("flow_start_ns").is_between(window.start_ns, window.end_ns, closed="left")
        flows.filter(inside).write_parquet(flows_file(folder, window))
        os.utime(flows_file(folder, window), ns=(window.end_ns, window.end_ns))


def flows_file(folder: Path, window: Window) -> Path:
    return folder / "flows" / f"{window.start:%Y%m%dT%H%M}.parquet"


def places_in(folder: Path) -> dict[str, str]:
    """The variables that make a folder's flows, topology and warehouse the ones to use."""
    return {
        "LLMPRISM_PLACES__FLOWS": str(folder / "flows" / "{window:%Y%m%dT%H%M}.parquet"),
        "LLMPRISM_PLACES__TOPOLOGY": str(folder / "topology.csv"),
        "LLMPRISM_PLACES__WAREHOUSE": str(folder / "llmprism.duckdb"),
        "LLMPRISM_WINDOW__WAITS_FOR_NEXT_FILE": "no",  # each file has all flows that start in its minute
        "LLMPRISM_WINDOW__QUIET_S": "0",
    }


def settings_in(folder: Path, **environment: str) -> Settings:
    return load(environment=places_in(folder) | environment)


def warehouse_in(folder: Path, name: str = "llmprism.duckdb") -> Warehouse:
    return open_warehouse(Warehouse(str(folder / name), lock_wait_s=10))


def rows(warehouse: Warehouse) -> dict[str, pl.DataFrame]:
    """All tables over the capture's windows, without their history, in an order that depends on the rows alone.

    Files have their names alone, whatever folder they are in.
    """
    span = WINDOWS[-1].lookback(len(WINDOWS) - 1)
    found = store.read_each(warehouse, {table.name: span for table in TABLES})
    file = pl.col("^source_file$").str.split("/").list.last()
    return {
        name: frame.drop(HISTORY.get(name, ())).with_columns(file).sort(pl.all(), nulls_last=False)
        for name, frame in found.items()
    }


def analyzed() -> Path:
    """A folder with the capture and, in its warehouse, what `analyze` makes of it: to be read, or copied."""
    return Path(_analyzed_once().name)


def differing(warehouse: Warehouse) -> list[str]:
    """The tables whose rows are not those that `analyze` makes of the capture."""
    expected, found = _expected_once(), rows(warehouse)
    return [name for name in expected if not found[name].equals(expected[name])]


@functools.cache
def _expected_once() -> dict[str, pl.DataFrame]:
    found = rows(warehouse_in(analyzed()))
    assert all(found[table].height for table in ("flows", "windows", "jobs", "job_members", "steps", "timeline"))
    return found


@functools.cache
def _analyzed_once() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()  # removed when the process ends
    drop(Path(folder.name))
    assert analyze(settings_in(Path(folder.name))) == WINDOWS
    return folder
