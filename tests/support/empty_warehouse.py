"""Warehouses to begin a test with: copies, for making one takes ten to a hundred times as long."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path

import duckdb

from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse

LAKE = "ducklake:"


def empty_warehouse(path: Path, *, lock_wait_s: float = 20) -> Warehouse:
    """Return a DuckDB file that nothing was written to."""
    path.write_bytes(_made_once())
    return Warehouse(str(path), lock_wait_s)


def empty_lake(path: Path, *, lock_wait_s: float = 20) -> Warehouse:
    """Return a DuckLake that nothing was written to, as opening a new one leaves it."""
    return copied(_lake_made_once(), path, lock_wait_s=lock_wait_s)


def copied(made: Warehouse, path: Path, *, lock_wait_s: float = 20) -> Warehouse:
    """Return a copy of a warehouse, at another path; its kind stays.

    A DuckLake's catalog names the folder of its files, so that is written anew.
    """
    if not made.location.startswith(LAKE):
        shutil.copyfile(made.location, path)
        return Warehouse(str(path), lock_wait_s, was_there=made.was_there)
    original = made.location.removeprefix(LAKE)
    shutil.copyfile(original, path)
    if Path(f"{original}.files").is_dir():
        shutil.copytree(f"{original}.files", f"{path}.files")
    with duckdb.connect(path) as catalog:
        catalog.execute(f"UPDATE ducklake_metadata SET value = '{path}.files/' WHERE key = 'data_path'")
    return Warehouse(f"{LAKE}{path}", lock_wait_s, was_there=made.was_there)


@functools.cache
def _made_once() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warehouse.duckdb"
        open_warehouse(Warehouse(str(path), lock_wait_s=20))
        return path.read_bytes()


@functools.cache
def _lake_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()  # removed when the process ends


@functools.cache
def _lake_made_once() -> Warehouse:
    return open_warehouse(Warehouse(f"{LAKE}{Path(_lake_folder().name) / 'warehouse.ducklake'}", lock_wait_s=20))
