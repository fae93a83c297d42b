"""Windows through a real Airflow, on a real capture: the rows of `analyze`, and what happens when things go wrong."""

from __future__ import annotations

import datetime as dt
import os
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from captured_minutes import MINUTE_NS, WINDOWS, differing, flows_file, warehouse_in

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store

MINUTE = dt.timedelta(minutes=1)


def run(minute: Any, window: Window) -> Any:
    """One run of the DAG, as Airflow would make it for the window."""
    return minute.test(logical_date=window.start + MINUTE)


def states(run_of_dag: Any) -> dict[str, str]:
    return {task.task_id: task.state for task in run_of_dag.get_task_instances()}


def went_well(run_of_dag: Any) -> bool:
    """Tell whether every task ran, but for those of partitions, which one machine does without."""
    found = states(run_of_dag)
    return found.pop("partition") == "skipped" and set(found.values()) == {"success"}


def test_runs_in_reverse_order_end_with_the_rows_of_analyze(minute: Any, capture: Path) -> None:
    for window in reversed(WINDOWS):
        done = run(minute, window)
        assert done.state == "success", states(done)
        assert went_well(done)
        assert (done.data_interval_start, done.data_interval_end) == (window.start, window.start + MINUTE)
        (row,) = store.read(warehouse_in(capture), "windows", window).to_dicts()
        assert (row["status"], row["reason"]) == ("done", None)
        assert row["rows_landed"] > 0
        assert store.read(warehouse_in(capture), "jobs", window).height == 1
    assert differing(warehouse_in(capture)) == []


def test_an_unreadable_file_fails_landing_at_once_and_changes_nothing(
    minute: Any, capture: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    bad = flows_file(capture, WINDOWS[0])
    bad.write_bytes(b"PAR1 this is no Parquet PAR1")
    os.utime(bad, (0, 0))  # a young one would be tried again
    done = run(minute, WINDOWS[0])

    landing = done.get_task_instance("landing")
    assert (done.state, landing.state, landing.try_number) == ("failed", "failed", 1)
    assert states(done)["recognition"] == "upstream_failed"
    said = capfd.readouterr().out + caplog.text
    assert f"InputError: {bad}" in said
    assert "Nothing was written" in said
    assert store.read(warehouse_in(capture), "flows", WINDOWS[0]).is_empty()


def test_a_run_by_hand_of_a_window_in_the_past_without_flows_and_jobs_does_not_wait_says_so_and_is_a_success(
    minute: Any, capture: Path
) -> None:
    """Its window is the one of its parameter."""
    empty = WINDOWS[0].shifted(-1)
    done = minute.test(logical_date=None, run_conf={"window_start": f"{empty.start:%Y-%m-%dT%H:%MZ}"})

    assert done.state == "success", states(done)
    assert went_well(done)
    (row,) = store.read(warehouse_in(capture), "windows", empty).to_dicts()
    assert (row["status"], row["rows_read"]) == ("done", 0)
    assert "not all have arrived" in row["reason"]
    assert store.read(warehouse_in(capture), "diagnoses", empty).is_empty()


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
    (row,) = store.read(warehouse_in(capture), "windows", window).to_dicts()
    assert (row["status"], row["rows_read"]) == ("done", 0)
    assert "not all have arrived" in row["reason"]


def test_a_run_goes_on_as_soon_as_late_flows_are_there(
    minute: Any, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = just_ended(monkeypatch, patience_s=120)
    flows = pl.read_parquet(flows_file(capture, WINDOWS[1]))
    shift = window.start_ns - WINDOWS[1].start_ns
    late = flows.with_columns(pl.col("flow_start_ns", "flow_end_ns") + shift)
    arrival = threading.Timer(2, late.write_parquet, [flows_file(capture, window)])
    arrival.start()
    done = run(minute, window)
    arrival.join()

    assert done.state == "success", states(done)
    (row,) = store.read(warehouse_in(capture), "windows", window).to_dicts()
    assert (row["status"], row["rows_read"], row["reason"]) == ("done", late.height, None)
