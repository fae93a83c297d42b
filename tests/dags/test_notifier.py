"""A run through a real Airflow tells a real receiver of the incident that its window opens."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from capture import MINUTE_NS, flows_file, places_in, warehouse_in
from receiver import receiving

from llmprism_run import current_settings
from llmprism_tasks import pipeline
from llmprism_tasks.warehouse.store import query
from llmprism_tasks.windows import Window

SLOW = Path(__file__).resolve().parents[1] / "data" / "real" / "dp4pp2_slow_rank"
WINDOW = Window(29919508 * MINUTE_NS, MINUTE_NS)
"""The minute in whose middle a rank becomes slow."""


@pytest.fixture
def slow_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a capture of a slow rank, which the tasks' settings point to."""
    (tmp_path / "topology.csv").write_bytes((SLOW / "topology.csv").read_bytes())
    (tmp_path / "flows").mkdir()
    flows = pl.read_parquet(SLOW / "flows_coarse.parquet")
    for window in (WINDOW.shifted(-1), WINDOW):
        inside = pl.col("flow_start_ns").is_between(window.start_ns, window.end_ns, closed="left")
        flows.filter(inside).write_parquet(flows_file(tmp_path, window))
    asked = {"LLMPRISM_NOTIFY__OLDEST_S": "1e9", "LLMPRISM_NOTIFY__TIMEOUT_S": "5"}
    for name, value in (places_in(tmp_path) | asked).items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_the_incident_that_a_window_opens_is_told_once(
    minute: Any, slow_rank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        monkeypatch.setenv("LLMPRISM_NOTIFY__WEBHOOK", receiver.address)
        run = minute.test(logical_date=WINDOW.start + dt.timedelta(minutes=1))
        assert run.state == "success"
        again = pipeline.call_out(WINDOW, current_settings(), now_ns=WINDOW.end_ns)
    assert again == {"sent": 0, "not_sent": 0}
    (body,) = receiver.bodies
    assert body["change"] == "opened"
    outcomes = query(warehouse_in(slow_rank), "SELECT incident_id, outcome FROM notifications")
    assert outcomes.rows() == [(body["incident"]["incident_id"], "sent")]
