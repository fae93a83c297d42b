"""Windows that would be refused because flows have expired are not due, whatever they are marked with."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from empty_warehouse import copied, empty_warehouse
from kept_windows import put, window

from llmprism_tasks.reports.minute_states import due, read_states
from llmprism_tasks.settings import Settings, WindowSettings
from llmprism_tasks.warehouse.connect import Warehouse

MARKED = """
INSERT INTO minutes BY NAME
SELECT {start} AS window_start_ns, 7 AS expected_ns, 'run' AS expected_by, 7 AS begun_ns, 1 AS runs, 0 AS tries,
    'late_records' AS due_reason, 7 AS due_since_ns
"""
EXPIRED = "UPDATE windows SET expired = ['flows', 'flows_quarantine'] WHERE window_start_ns = {start}"


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Windows 0 to 7; 5 is marked."""
    made = empty_warehouse(tmp_path_factory.mktemp("marked") / "made.duckdb")
    put(made, range(8), flows=1)
    made.write(lambda connection: connection.execute(MARKED.format(start=window(5).start_ns)))
    return made


@pytest.mark.parametrize(("expired", "is_due"), [(None, True), (2, True), (3, False), (5, False), (6, True)])
def test_a_marked_window_is_due_unless_its_flows_or_past_have_expired(
    marked: Warehouse, tmp_path: Path, expired: int | None, *, is_due: bool
) -> None:
    """Window 5 looks back at 3 and 4."""
    warehouse = copied(marked, tmp_path / "warehouse.duckdb")
    if expired is not None:
        warehouse.write(lambda connection: connection.execute(EXPIRED.format(start=window(expired).start_ns)))
    settings = Settings(window=WindowSettings(lookback_windows=2))
    found = read_states(warehouse, settings, now_ns=time.time_ns())
    assert found["state"].to_list() == ["done"]
    assert due(found)["reason"].to_list() == (["late_records"] if is_due else [])
