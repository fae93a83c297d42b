"""A run through a real Airflow tells a real receiver of the incident that its window opens."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from captured_minutes import MINUTE_NS, flows_file, places_in, warehouse_in
from places import REAL
from receiver import receiving

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.window import send_messages
from llmprism_tasks.settings.load import of_environment
from llmprism_tasks.stages.timeline import phase
from llmprism_tasks.warehouse.store import query

SLOW, HEALTHY = REAL / "dp4pp2_slow_rank", REAL / "ddp4_healthy"
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


def add_tenant(folder: Path, network: str) -> None:
    """Add a healthy captured job, in a network of its own."""
    flows = pl.read_parquet(HEALTHY / "flows_coarse.parquet")
    address = pl.col("src_addr", "dst_addr").str.replace("10.0.", network, literal=True)
    times = pl.col("flow_start_ns", "flow_end_ns") + WINDOW.shifted(-1).start_ns - flows["flow_start_ns"].min()
    flows = flows.with_columns(address, times)
    for window in (WINDOW.shifted(-1), WINDOW):
        inside = pl.col("flow_start_ns").is_between(window.start_ns, window.end_ns, closed="left")
        both = [pl.read_parquet(flows_file(folder, window)), flows.filter(inside)]
        pl.concat(both).write_parquet(flows_file(folder, window))
    own = pl.read_csv(HEALTHY / "topology.csv").with_columns(
        pl.col("addr").str.replace("10.0.", network, literal=True), pl.format("other-{}", "host").alias("host")
    )
    pl.concat([pl.read_csv(folder / "topology.csv"), own], how="diagonal").write_csv(folder / "topology.csv")


def test_the_incident_that_a_window_opens_is_told_once_though_another_tenant_s_job_is_set_aside(
    minute: Any, slow_rank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_tenant(slow_rank, "10.9.")
    sound = phase.timeline

    def faulty(**tables: Any) -> tuple[pl.DataFrame, ...]:
        steps, phases, breakdown = sound(**tables)
        of_it = pl.col("addr").str.starts_with("10.9.").cast(pl.Int64)
        return steps, phases, breakdown.with_columns(compute_ns=pl.col("compute_ns") + of_it)

    monkeypatch.setattr(phase, "timeline", faulty)
    with receiving() as receiver:
        monkeypatch.setenv("LLMPRISM_NOTIFY__WEBHOOK", receiver.address)
        run = minute.test(logical_date=WINDOW.start + dt.timedelta(minutes=1))
        assert run.state == "success"
        again = send_messages(WINDOW, of_environment(), now_ns=WINDOW.end_ns)
    assert again == {"sent": 0, "not_sent": 0}
    warehouse = warehouse_in(slow_rank)
    (aside,) = query(warehouse, "SELECT job_id, expectations FROM aside_jobs").rows()
    assert aside[1] == ["step_breakdown.adds_up"]
    (told,) = query(warehouse, f"SELECT status, reason FROM windows WHERE window_start_ns = {WINDOW.start_ns}").rows()
    assert told[0] == "done"
    assert f"set aside: job {aside[0]} " in told[1]
    (other,) = query(warehouse, "SELECT job_id FROM jobs").rows()
    assert other[0] != aside[0]
    (body,) = receiver.bodies
    assert (body["change"], body["incident"]["job_id"]) == ("opened", other[0])
    outcomes = query(warehouse, "SELECT incident_id, outcome FROM notifications")
    assert outcomes.rows() == [(body["incident"]["incident_id"], "sent")]
