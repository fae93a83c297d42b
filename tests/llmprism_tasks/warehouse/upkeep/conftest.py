"""A warehouse of each kind with some windows, made once and copied."""

from __future__ import annotations

from pathlib import Path

import pytest
from empty_warehouse import copied, empty_lake, empty_warehouse
from kept_windows import put

from llmprism_tasks.warehouse.connect import Warehouse


@pytest.fixture(scope="session")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = empty_warehouse(tmp_path_factory.mktemp("twelve") / "made.duckdb")
    put(made, range(12))
    return made


@pytest.fixture(scope="session")
def four(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = empty_lake(tmp_path_factory.mktemp("four") / "made.ducklake")
    put(made, range(4))
    return made


@pytest.fixture
def file(twelve: Warehouse, tmp_path: Path) -> Warehouse:
    return copied(twelve, tmp_path / "warehouse.duckdb")


@pytest.fixture
def lake(four: Warehouse, tmp_path: Path) -> Warehouse:
    return copied(four, tmp_path / "warehouse.ducklake")
