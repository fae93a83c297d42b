"""A backfill as a user would run it: a real scheduler with its processes, the command line, the files on disk."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from capture import WINDOWS, drop, places_in, rows, settings_in, warehouse_in

from demo.local_airflow import running, started
from llmprism_tasks import pipeline

PATIENCE_S = 120


def test_a_backfill_ends_with_the_rows_of_analyze(tmp_path: Path) -> None:
    drop(tmp_path)
    with started(tmp_path, scheduled=False) as airflow:
        straight = str(tmp_path / "straight.duckdb")
        pipeline.analyze(settings_in(tmp_path, LLMPRISM_PLACES__WAREHOUSE=straight))
        airflow.wait_until_ready("llmprism_minute")
        first, last = (f"{window.start:%Y-%m-%dT%H:%M:%S}" for window in (WINDOWS[0], WINDOWS[-1]))
        command = ["airflow", "backfill", "create", "--dag-id", "llmprism_minute", "--from-date", first]
        subprocess.run(
            [*command, "--to-date", last, "--max-active-runs", "3"],
            env=airflow.environment(scheduled=False) | places_in(tmp_path),
            check=True,
            capture_output=True,
        )
        deadline = time.monotonic() + PATIENCE_S
        states: dict[str, str] = {}
        while set(states.values()) != {"success"} or len(states) < len(WINDOWS):
            assert time.monotonic() < deadline, f"{states}; {airflow.log.read_text()[-5000:]}"
            time.sleep(0.5)
            runs = airflow.ask("dags/llmprism_minute/dagRuns?run_type=backfill")["dag_runs"]
            states = {run["data_interval_start"]: run["state"] for run in runs}
            assert "failed" not in states.values(), airflow.log.read_text()[-5000:]

    assert running(tmp_path) is None
    expected = rows(warehouse_in(tmp_path, "straight.duckdb"))
    for table, found in rows(warehouse_in(tmp_path)).items():
        assert found.equals(expected[table]), table
