"""An empty warehouse of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from empty_warehouse import empty_lake, empty_warehouse

from llmprism_tasks.warehouse.connect import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return empty_warehouse(tmp_path / "warehouse.duckdb")


@pytest.fixture(params=["file", "lake"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """A DuckDB file, then a DuckLake: the same must hold for both."""
    if request.param == "lake":
        return empty_lake(tmp_path / "warehouse.ducklake")
    return empty_warehouse(tmp_path / "warehouse.duckdb")
