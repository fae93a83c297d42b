"""A real warehouse, and a way to fill it by the minute."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_windows import Minute, writer

from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return open_warehouse(str(tmp_path / "warehouse.duckdb"), lock_wait_s=5)


@pytest.fixture
def minute(warehouse: Warehouse) -> Minute:
    """Return a function that writes one window of both jobs."""
    return writer(warehouse)
