"""An empty warehouse of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return open_warehouse(str(tmp_path / "warehouse.duckdb"), lock_wait_s=20)


@pytest.fixture(params=["{}.duckdb", "ducklake:{}.ducklake"], ids=["file", "lake"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """A DuckDB file, then a DuckLake: the same must hold for both."""
    return open_warehouse(request.param.format(tmp_path / "warehouse"), lock_wait_s=20)
