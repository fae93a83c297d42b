"""A backfill as a user would run it: the command line, a real scheduler with its processes, the files on disk."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import psutil
import pytest
from captured_minutes import WINDOWS, differing, drop, warehouse_in

from demo.local_airflow import LocalAirflow, free_ports, running, started

PATIENCE_S = 180


@pytest.mark.filterwarnings(r"error:subprocess \d+ is still running:ResourceWarning")
def test_a_backfill_ends_with_the_rows_of_analyze(tmp_path: Path) -> None:
    drop(tmp_path)
    airflow = LocalAirflow(tmp_path, free_ports(18080))
    airflow.prepare()
    first, last = (f"{window.start:%Y-%m-%dT%H:%M:%S}" for window in (WINDOWS[0], WINDOWS[-1]))
    airflow.command(
        *("airflow", "backfill", "create", "--dag-id", "llmprism_minute"),
        *("--from-date", first, "--to-date", last, "--max-active-runs", "3"),
    )
    with started(airflow, scheduled=False):
        airflow.wait_until_ready("llmprism_minute")
        assert listening(running(tmp_path)) == {("127.0.0.1", airflow.port)}
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700  # the password is in a file in it
        wait_for_success(airflow)
        assert listening(running(tmp_path)) == {("127.0.0.1", airflow.port)}

    assert running(tmp_path) is None
    assert differing(warehouse_in(tmp_path)) == []


def listening(group: int | None) -> set[tuple[str, int]]:
    """Return the addresses on which the processes of a group listen."""
    ours = [process for process in psutil.process_iter() if os.getpgid(process.pid) == group]
    return {
        (one.laddr.ip, one.laddr.port)
        for process in ours
        for one in process.net_connections(kind="inet")
        if one.status == psutil.CONN_LISTEN
    }


def wait_for_success(airflow: LocalAirflow) -> None:
    deadline = time.monotonic() + PATIENCE_S
    states: list[str] = []
    while states != ["success"] * len(WINDOWS):
        states = [run["state"] for run in airflow.ask("dags/llmprism_minute/dagRuns?run_type=backfill")["dag_runs"]]
        said = airflow.log.read_text(encoding="utf-8")[-5000:]
        assert "failed" not in states, said
        assert time.monotonic() < deadline, said
        time.sleep(1)
