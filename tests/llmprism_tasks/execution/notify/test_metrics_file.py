"""The file of metrics is replaced in one move when a window is finished; that it cannot be written stops nothing."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from empty_warehouse import empty_warehouse
from small_windows import SECOND, writer

from llmprism_tasks.execution import window as steps_of_a_window
from llmprism_tasks.execution.notify.metrics_file import write_metrics
from llmprism_tasks.settings.load import load
from llmprism_tasks.warehouse.connect import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return empty_warehouse(tmp_path / "warehouse.duckdb")


def test_a_finished_window_leaves_the_metrics_and_nothing_else(warehouse: Warehouse, tmp_path: Path) -> None:
    window = writer(warehouse)(0, status="running")
    folder = tmp_path / "textfiles"
    folder.mkdir()
    (folder / "llmprism.prom").write_text("old\n", encoding="utf-8")
    places = {"places.warehouse": warehouse.location, "places.metrics": str(folder / "llmprism.prom")}
    steps_of_a_window.finish(window, load(environment={}, overrides=places))
    assert [file.name for file in folder.iterdir()] == ["llmprism.prom"]
    text = (folder / "llmprism.prom").read_text(encoding="utf-8")
    assert f"llmprism_latest_window_end_timestamp_seconds {window.end_ns / SECOND}\n" in text


def test_without_a_place_nothing_is_written(warehouse: Warehouse) -> None:
    assert not write_metrics(warehouse, "", now_ns=0)


def test_a_place_that_cannot_be_written_is_named_and_stops_nothing(
    warehouse: Warehouse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert not write_metrics(warehouse, str(tmp_path / "nowhere" / "llmprism.prom"), now_ns=0)
    assert f"places.metrics: {tmp_path}/nowhere/llmprism.prom was not written: " in caplog.text


HOLD = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"


def test_a_warehouse_that_is_busy_leaves_the_old_file(
    warehouse: Warehouse, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "llmprism.prom"
    file.write_text("old\n", encoding="utf-8")
    command = [sys.executable, "-c", HOLD, warehouse.location]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with caplog.at_level(logging.WARNING):
            assert not write_metrics(Warehouse(warehouse.location, lock_wait_s=0), str(file), now_ns=0)
        holder.communicate()
    assert "was not written" in caplog.text
    assert file.read_text(encoding="utf-8") == "old\n"
    assert write_metrics(warehouse, str(file), now_ns=0)
