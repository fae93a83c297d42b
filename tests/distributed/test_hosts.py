"""Several machines: whoever does a window, or dies meanwhile, the tables are those of one `llmprism analyze`."""

from __future__ import annotations

import datetime as dt
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from distributed.cluster import FLOWS, NOTICED_WITHIN_S, Cluster, work_done
from llmprism_tasks.contract.tables import HISTORY, TABLES
from llmprism_tasks.simulate.simulation import write_scenario
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse

pytestmark = pytest.mark.distributed

START = dt.datetime(2026, 5, 1, 4, 0, tzinfo=dt.UTC)
PARTITIONS = 2
SECONDS_PER_WINDOW = 120.0
"""Patience: a window takes five to ten seconds where nothing else is running."""

MOST_UNEVEN = 1.6
"""Times the work of the busier worker that both did: two that share evenly did twice as much as either."""

SCENARIO = """
[fabric]
hosts = 8
gpus_per_host = 2
hosts_per_leaf = 2
spines = 2

[[jobs]]
name = "pipeline"
hosts = [0, 1, 2, 3]
tp = 2
pp = 2
dp = 2
layers = 4
hidden = 1024
forward_ms = 60

[[jobs]]
name = "replicas"
hosts = [4, 5, 6, 7]
tp = 2
dp = 4
layers = 4
hidden = 1024
forward_ms = 80

[[faults]]
kind = "slow_gpu"
job = "replicas"
rank = 3
factor = 1.5
start_s = 120
"""


@pytest.fixture(scope="session")
def starts(request: pytest.FixtureRequest) -> list[str]:
    """Starts of the windows, as Airflow takes them."""
    count = request.config.getoption("--windows")
    return [f"{START + dt.timedelta(minutes=minute):%Y-%m-%dT%H:%M:%SZ}" for minute in range(count)]


@pytest.fixture(scope="session")
def expected(running: Cluster, starts: list[str]) -> dict[str, pl.DataFrame]:
    """The tables of one `llmprism analyze` on a file, of flows that all hosts see."""
    scenario = running.folder / "scenario.toml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    start_ns = int(START.timestamp()) * 10**9
    write_scenario(running.shared, scenario=str(scenario), minutes=len(starts), seed=1, start_ns=start_ns)
    file = running.folder / "straight.duckdb"
    places = ["--flows", str(running.shared / FLOWS), "--topology", str(running.shared / "topology.csv")]
    subprocess.run([Path(sys.executable).parent / "llmprism", "analyze", *places, "--warehouse", file], check=True)
    return tables(open_warehouse(str(file), lock_wait_s=60))


def lake(running: Cluster) -> Warehouse:
    return open_warehouse(running.warehouse, lock_wait_s=60, catalog_password=running.password)


def tables(warehouse: Warehouse) -> dict[str, pl.DataFrame]:
    """Return all rows, but for what tells when they were made."""
    found = {table.name: store.query(warehouse, f"SELECT * FROM {table.name} ORDER BY ALL") for table in TABLES}
    return {name: rows.drop(HISTORY.get(name, ()), strict=False) for name, rows in found.items()}


def differing(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> list[str]:
    return [name for name in one if not one[name].equals(other[name].cast(dict(one[name].schema)))]


def leftovers(running: Cluster) -> list[Path]:
    """Return what tasks left for each other."""
    return list((running.shared / "handover").glob("*/*"))


def test_two_workers_share_a_backfill_and_do_nothing_twice(
    running: Cluster, expected: dict[str, pl.DataFrame], starts: list[str], say: Callable[[str], None]
) -> None:
    began = time.monotonic()
    running.backfill(starts[0], starts[-1])
    running.wait_for_runs(len(starts), SECONDS_PER_WINDOW * len(starts))
    took = time.monotonic() - began

    assert differing(expected, tables(lake(running))) == []
    done = running.tasks()
    assert {task["try_number"] for task in done if task["state"] == "success"} == {1}
    each = Counter((task["dag_run_id"], task["task_id"], task["map_index"]) for task in done)
    assert set(each.values()) == {1}
    assert Counter(task["task_id"] for task in done)["partition"] == PARTITIONS * len(starts)
    by_host = work_done(done)
    assert set(by_host) >= {"first", "second"}
    shares = [by_host[name]["seconds"] for name in ("first", "second")]
    ratio = sum(shares) / max(shares)
    assert ratio >= MOST_UNEVEN
    assert leftovers(running) == []
    say(f"{len(starts)} windows in {took:.0f} s; {json.dumps(by_host)}; {ratio:.2f} times the work of one worker")


def test_a_killed_worker_is_noticed_and_its_tasks_are_done_by_the_other(
    running: Cluster,
    expected: dict[str, pl.DataFrame],
    starts: list[str],
    request: pytest.FixtureRequest,
    say: Callable[[str], None],
) -> None:
    draw = random.Random(26)
    killed_at_work = 0
    noticed: list[float] = []
    for number in range(request.config.getoption("--kills")):
        before = len(running.runs())
        running.backfill(starts[0], starts[-1], again=True)
        wait_until_running(running)
        time.sleep(draw.uniform(0, 3.0 * len(starts)))  # at any moment of the backfill
        victim = draw.choice(running.workers)
        had = victim.at_work()
        victim.kill()
        died = time.time()
        killed_at_work += bool(had)
        noticed += [noticed_after(running, task, died) for task in had]
        victim.start()
        running.wait_for_runs(before, SECONDS_PER_WINDOW * len(starts) + 300)
        assert differing(expected, tables(lake(running))) == [], f"kill {number}"
        assert leftovers(running) == []
        say(f"kill {number}: {victim.name} with {len(had)} tasks; noticed after {[round(one) for one in noticed]} s")
    assert all(seconds <= NOTICED_WITHIN_S for seconds in noticed)


def test_two_backfills_over_one_hour_end_like_one(
    running: Cluster, expected: dict[str, pl.DataFrame], starts: list[str]
) -> None:
    before = len(running.runs())
    running.backfill(starts[0], starts[-1], again=True)
    for start in reversed(starts):
        running.trigger(start)
    running.wait_for_runs(before + len(starts), 2 * SECONDS_PER_WINDOW * len(starts))
    assert differing(expected, tables(lake(running))) == []
    assert leftovers(running) == []


def test_the_password_is_in_no_log_no_file_name_and_no_list_of_processes(running: Cluster) -> None:
    secret = running.password
    logs = [path for path in running.folder.rglob("*.log") if path.is_file()]
    assert logs
    assert [str(path) for path in logs if secret in path.read_text(encoding="utf-8", errors="replace")] == []
    assert [path for path in running.folder.rglob("*") if secret in path.name] == []
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert secret not in listed
    shown = running.command("llmprism", "settings")
    assert secret not in shown
    assert "dbname=lake" in shown


def wait_until_running(running: Cluster) -> None:
    deadline = time.monotonic() + SECONDS_PER_WINDOW
    while not any(run["state"] == "running" for run in running.runs()):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def noticed_after(running: Cluster, task: dict[str, object], died: float) -> float:
    """Wait until a task that a killed worker had is running no more; return the seconds since the worker's death."""
    path = f"dags/llmprism_minute/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}"
    path += f"/{task['map_index']}" if task["map_index"] != -1 else ""
    while True:
        found = running.ask(path)
        if found["state"] != "running" or found["try_number"] != task["try_number"]:
            return time.time() - died
        time.sleep(0.5)
