"""Warehouses that nothing was written to."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse


def empty_warehouse(path: Path, *, lock_wait_s: float = 20) -> Warehouse:
    """Return a new DuckDB file: a copy, as making each table and view again takes a hundred times as long."""
    path.write_bytes(_made_once())
    return Warehouse(str(path), lock_wait_s)


@functools.cache
def _made_once() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warehouse.duckdb"
        open_warehouse(Warehouse(str(path), lock_wait_s=20))
        return path.read_bytes()
