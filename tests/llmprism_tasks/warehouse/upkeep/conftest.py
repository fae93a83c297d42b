"""A warehouse of each kind with twelve windows."""

from __future__ import annotations

from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from kept_windows import put

from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse


@pytest.fixture
def file(tmp_path: Path) -> Warehouse:
    warehouse = empty_warehouse(tmp_path / "warehouse.duckdb")
    put(warehouse, range(12))
    return warehouse


@pytest.fixture
def lake(tmp_path: Path) -> Warehouse:
    warehouse = open_warehouse(Warehouse(f"ducklake:{tmp_path / 'warehouse.ducklake'}", lock_wait_s=20))
    put(warehouse, range(4))
    return warehouse
