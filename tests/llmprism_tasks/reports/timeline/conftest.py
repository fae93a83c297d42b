"""A warehouse with the results of a captured pipeline."""

from __future__ import annotations

import shutil

import captured_minutes
import pytest

from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse


@pytest.fixture(scope="session")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    folder = tmp_path_factory.mktemp("captured")
    shutil.copytree(captured_minutes.analyzed(), folder, dirs_exist_ok=True)
    return captured_minutes.warehouse_in(folder)


@pytest.fixture(scope="session")
def job(captured: Warehouse) -> str:
    """Return the only job's id."""
    return str(store.query(captured, "SELECT DISTINCT job_id FROM jobs")["job_id"][0])
