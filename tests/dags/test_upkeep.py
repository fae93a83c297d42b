"""The maintenance DAG deletes what the settings say, in a real Airflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from empty_warehouse import empty_warehouse
from kept_windows import counts, put


def test_its_task_deletes_what_is_old_enough(bag: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = empty_warehouse(tmp_path / "warehouse.duckdb")
    put(warehouse, range(8))
    monkeypatch.setenv("LLMPRISM_PLACES__WAREHOUSE", warehouse.location)
    monkeypatch.setenv("LLMPRISM_RETENTION__FLOWS_H", "0.1")
    run = bag.dags["llmprism_maintenance"].test()
    assert run.state == "success"
    assert counts(warehouse)["flows"] == list(range(2, 8))
