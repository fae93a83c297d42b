"""Windows through a real Airflow, on a real capture: the rows of `analyze`, and what happens when things go wrong."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from llmprism_tasks import pipeline
from llmprism_tasks.settings import Settings, load
from llmprism_tasks.tables import TABLES
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.windows import Window

MINUTE = dt.timedelta(minutes=1)
MINUTE_NS = 60_000_000_000
CAPTURE = "dp2pp4_healthy"  # the smallest
WINDOWS = [Window(minute * MINUTE_NS, MINUTE_NS) for minute in (29919505, 29919506, 29919507)]


@pytest.fixture
def capture(project: Path, places: Path) -> Path:
    """The capture's flows, a file for each minute."""
    source = project / "tests" / "data" / "real" / CAPTURE
    (places / "topology.csv").write_bytes((source / "topology.csv").read_bytes())
    (places / "flows").mkdir()
    flows = pl.read_parquet(source / "flows.parquet")
    for window in WINDOWS:
        flows.filter(pl.col("flow_start_ns").is_between(window.start_ns, window.end_ns, closed="left")).write_parquet(
            flows_file(places, window)
        )
    return places


def flows_file(places: Path, window: Window) -> Path:
    return places / "flows" / f"{window.start:%Y%m%dT%H%M}.parquet"


def settings_of(places: Path, **environment: str) -> Settings:
    return load(
        environment={
            "LLMPRISM_PLACES__FLOWS": str(places / "flows" / "{window:%Y%m%dT%H%M}.parquet"),
            "LLMPRISM_PLACES__TOPOLOGY": str(places / "topology.csv"),
            "LLMPRISM_PLACES__WAREHOUSE": str(places / "llmprism.duckdb"),
        }
        | environment
    )


def warehouse_of(places: Path) -> Warehouse:
    return open_warehouse(str(places / "llmprism.duckdb"), lock_wait_s=10)


def run(minute: Any, window: Window) -> Any:
    """One run of the DAG, as Airflow would make it for the window."""
    return minute.test(logical_date=window.start + MINUTE)


def rows_of(warehouse: Warehouse, windows: list[Window]) -> Iterator[tuple[str, pl.DataFrame]]:
    """All tables, without run times, in the order of their keys."""
    span = windows[-1].lookback(len(windows) - 1)
    for table in TABLES:
        rows = store.read(warehouse, table.name, span)
        yield table.name, rows.drop("stage_ns", strict=False).sort(pl.exclude("switch_path"), nulls_last=False)


def states(run_of_dag: Any) -> dict[str, str]:
    return {task.task_id: task.state for task in run_of_dag.get_task_instances()}


def test_one_window_from_flows_to_diagnoses(minute: Any, capture: Path) -> None:
    done = run(minute, WINDOWS[0])

    assert done.state == "success", states(done)
    assert (done.data_interval_start, done.data_interval_end) == (WINDOWS[0].start, WINDOWS[0].start + MINUTE)
    assert set(states(done).values()) == {"success"}
    (row,) = store.read(warehouse_of(capture), "windows", WINDOWS[0]).to_dicts()
    assert (row["status"], row["reason"]) == ("done", None)
    assert row["rows_landed"] > 0
    assert store.read(warehouse_of(capture), "jobs", WINDOWS[0]).height == 1


def test_runs_in_reverse_order_end_with_the_rows_of_analyze(minute: Any, capture: Path, tmp_path: Path) -> None:
    for window in reversed(WINDOWS):
        assert run(minute, window).state == "success"
    straight = str(tmp_path / "analyze.duckdb")
    assert pipeline.analyze(settings_of(capture, LLMPRISM_PLACES__WAREHOUSE=straight)) == WINDOWS

    expected = dict(rows_of(open_warehouse(straight, lock_wait_s=10), WINDOWS))
    for table, rows in rows_of(warehouse_of(capture), WINDOWS):
        assert rows.equals(expected[table]), table
    assert all(expected[table].height for table in ("flows", "windows", "jobs", "job_members", "steps", "timeline"))


def test_a_run_by_hand_takes_its_window_from_its_parameter(minute: Any, capture: Path) -> None:
    done = minute.test(logical_date=None, run_conf={"window_start": f"{WINDOWS[1].start:%Y-%m-%dT%H:%MZ}"})

    assert done.state == "success", states(done)
    assert store.read(warehouse_of(capture), "windows", WINDOWS[1])["status"].to_list() == ["done"]


def test_an_unreadable_file_fails_landing_at_once_and_changes_nothing(
    minute: Any, capture: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    bad = flows_file(capture, WINDOWS[0])
    bad.write_bytes(b"PAR1 this is no Parquet PAR1")
    done = run(minute, WINDOWS[0])

    landing = done.get_task_instance("landing")
    assert (done.state, landing.state, landing.try_number) == ("failed", "failed", 1)
    assert states(done)["recognition"] == "upstream_failed"
    said = capfd.readouterr().out + caplog.text
    assert f"InputError: {bad}" in said
    assert "Nothing was written" in said
    assert store.read(warehouse_of(capture), "flows", WINDOWS[0]).is_empty()


def test_a_window_without_flows_in_the_past_does_not_wait_and_says_so(minute: Any, capture: Path) -> None:
    flows_file(capture, WINDOWS[2]).unlink()
    done = run(minute, WINDOWS[2])

    assert done.state == "success", states(done)
    assert states(done)["each_batch.timeline"] in {"success", "skipped"}
    (row,) = store.read(warehouse_of(capture), "windows", WINDOWS[2]).to_dicts()
    assert (row["status"], row["rows_read"]) == ("done", 0)
    assert "not arrived" in row["reason"]


def test_a_window_with_neither_flows_nor_jobs_is_a_success(minute: Any, capture: Path) -> None:
    empty = WINDOWS[0].shifted(-1)
    done = run(minute, empty)

    assert done.state == "success", states(done)
    assert states(done)["each_batch.timeline"] == "skipped"
    assert states(done)["diagnosis"] == "success"
    assert store.read(warehouse_of(capture), "diagnoses", empty).is_empty()


def just_ended(monkeypatch: pytest.MonkeyPatch, patience_s: int) -> Window:
    """The minute that ended last, and a lateness that lasts so much longer than now."""
    now = dt.datetime.now(dt.UTC)
    window = Window.starting(now, MINUTE_NS).shifted(-1)
    since_end_s = now.timestamp() - window.end_ns / 1e9
    monkeypatch.setenv("LLMPRISM_WINDOW__ALLOWED_LATENESS_S", str(int(since_end_s) + patience_s))
    return window


def test_a_run_waits_for_late_flows_then_goes_on_with_what_there_is(
    minute: Any, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = just_ended(monkeypatch, patience_s=4)
    began = dt.datetime.now(dt.UTC)
    done = run(minute, window)

    assert done.state == "success", states(done)
    assert (dt.datetime.now(dt.UTC) - began).total_seconds() > 3
    (row,) = store.read(warehouse_of(capture), "windows", window).to_dicts()
    assert (row["status"], row["rows_read"]) == ("done", 0)
    assert "not arrived" in row["reason"]


def test_a_run_goes_on_as_soon_as_late_flows_are_there(
    minute: Any, capture: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    window = just_ended(monkeypatch, patience_s=120)
    flows = pl.read_parquet(flows_file(capture, WINDOWS[1]))
    shift = window.start_ns - WINDOWS[1].start_ns
    late = flows.with_columns(pl.col("flow_start_ns", "flow_end_ns") + shift)
    arrival = threading.Timer(2, late.write_parquet, [flows_file(capture, window)])
    arrival.start()
    done = run(minute, window)
    arrival.join()

    assert done.state == "success", states(done)
    (row,) = store.read(warehouse_of(capture), "windows", window).to_dicts()
    assert (row["status"], row["rows_read"], row["reason"]) == ("done", late.height, None)
