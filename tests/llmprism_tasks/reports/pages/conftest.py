"""A warehouse with two windows of a job, for all tests of pages; what they write, they write to a copy."""

from __future__ import annotations

from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from paged_windows import write_windows

from llmprism_tasks.warehouse.connect import Warehouse


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = empty_warehouse(tmp_path_factory.mktemp("pages") / "warehouse.duckdb")
    write_windows(made)
    return made


@pytest.fixture
def own_copy(filled: Warehouse, tmp_path: Path) -> Warehouse:
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(Path(filled.location).read_bytes())
    return Warehouse(str(copy), filled.lock_wait_s)
