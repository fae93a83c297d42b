"""A real warehouse, and a way to fill it by the minute."""

from __future__ import annotations

from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from small_windows import Minute, writer

from llmprism_tasks.warehouse.connect import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return empty_warehouse(tmp_path / "warehouse.duckdb")


@pytest.fixture
def minute(warehouse: Warehouse) -> Minute:
    """Return a function that writes one window of both jobs."""
    return writer(warehouse)
