"""What is tried on a cluster: backfills of a platform that divides, with workers that die, against one `analyze`."""

from __future__ import annotations

import datetime as dt
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from distributed.cluster import DAG, FLOWS, Cluster, ClusterError
from llmprism_tasks.contract.tables import HISTORY, TABLES
from llmprism_tasks.simulate.simulation import write_scenario
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse

Tables = dict[str, pl.DataFrame]

START = dt.datetime(2026, 5, 1, 4, 0, tzinfo=dt.UTC)
PARTITIONS = 2
PATIENCE_S = 600.0
"""Seconds for a window, after which it hangs: it takes five to ten where nothing else runs, minutes beside much."""

PAUSE_S = 12.0
"""Mean seconds between kills: about as long as a killed worker needs to be back, so that one of two is there."""

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


class Disturbed(NamedTuple):
    """A backfill in which workers were killed.

    Attributes
    ----------
    kills : how many
    tasks : how many tasks died with them
    noticed_s : seconds until Airflow knew of each of these tasks
    finished_s : seconds until all windows were done
    differ : tables that are not those of `analyze` then
    left : files that tasks left for each other
    """

    kills: int
    tasks: int
    noticed_s: list[float]
    finished_s: float
    differ: dict[str, list[str]]
    left: int


def starts(windows: int) -> list[str]:
    """Return the starts of so many windows, as Airflow takes them."""
    return [f"{START + dt.timedelta(minutes=minute):%Y-%m-%dT%H:%M:%SZ}" for minute in range(windows)]


def prepare(cluster: Cluster, windows: int) -> Tables:
    """Simulate flows where all hosts see them; return the tables of one `llmprism analyze` of them on a file."""
    scenario = cluster.folder / "scenario.toml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    start_ns = int(START.timestamp()) * 10**9
    write_scenario(cluster.shared, scenario=str(scenario), minutes=windows, seed=1, start_ns=start_ns)
    files = sorted((cluster.shared / "flows").iterdir())
    after = f"{START + dt.timedelta(minutes=windows):%Y%m%dT%H%M}.parquet"  # else the last window might not be whole
    pl.read_parquet(files[0]).clear().write_parquet(cluster.shared / "flows" / after)
    file = cluster.folder / "straight.duckdb"
    places = ["--flows", str(cluster.shared / FLOWS), "--topology", str(cluster.shared / "topology.csv")]
    own = {name: value for name, value in os.environ.items() if not name.startswith("LLMPRISM_")}
    command = [str(Path(sys.executable).parent / "llmprism"), "analyze", *places, "--warehouse", str(file)]
    subprocess.run(command, check=True, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return tables(open_warehouse(Warehouse(str(file), lock_wait_s=60)), windows)


def lake(cluster: Cluster) -> Warehouse:
    """Open the cluster's warehouse."""
    return open_warehouse(Warehouse(cluster.warehouse, lock_wait_s=60, catalog_password=cluster.password))


def tables(warehouse: Warehouse, windows: int) -> Tables:
    """Return all rows of the windows, but for what tells when they were made."""
    end_ns = int((START + dt.timedelta(minutes=windows)).timestamp()) * 10**9
    found = {
        table.name: store.query(
            warehouse, f"SELECT * FROM {table.name} WHERE window_start_ns < {end_ns} ORDER BY ALL"
        ).drop(HISTORY.get(table.name, ()), strict=False)
        for table in TABLES
        if "window_start_ns" in table.column_names
    }
    return {name: rows.sort(pl.all(), nulls_last=True) for name, rows in found.items()}


def differing(cluster: Cluster, expected: Tables, windows: int) -> dict[str, list[str]]:
    """Return the tables that differ, each with the columns that do, or none if it has more or fewer rows."""
    found: dict[str, list[str]] = {}
    there = tables(lake(cluster), windows)
    for name, rows in expected.items():
        others = there[name].cast(rows.schema)
        if not rows.equals(others):
            alike = rows.height == others.height
            found[name] = [column for column in rows.columns if alike and not rows[column].equals(others[column])]
    return found


def leftovers(cluster: Cluster) -> list[Path]:
    """Return what tasks left for each other."""
    return list((cluster.shared / "handover").glob("*/*"))


def backfill_with_kills(
    cluster: Cluster, expected: Tables, windows: int, draw: random.Random, most: int, pause_s: float = PAUSE_S
) -> Disturbed:
    """Run all windows again, kill one worker after another at random moments, and wait for the end.

    A killed worker starts again at once, as a machine does after a power cut; meanwhile the other one goes on.

    Parameters
    ----------
    most : kills; there are fewer if the backfill ends before
    pause_s : mean of the times between kills

    Raises
    ------
    ClusterError : a run failed, or it takes too long
    """
    minutes, runs = starts(windows), len(cluster.runs())
    began = time.monotonic()
    cluster.backfill(minutes[0], minutes[-1], again=True)
    _wait_until_running(cluster)
    kills, died, noticed = 0, dict[str, tuple[dict[str, Any], float]](), list[float]()
    next_s = time.monotonic() + draw.uniform(0, 2 * pause_s)
    while died or any(run["state"] in ("queued", "running") for run in cluster.runs()):
        for path, (task, died_s) in list(died.items()):
            found = cluster.ask(path)
            if found["state"] != "running" or found["try_number"] != task["try_number"]:
                noticed.append(time.time() - died_s)
                del died[path]
        if kills < most and time.monotonic() >= next_s:
            victim = draw.choice([worker for worker in cluster.workers if worker.is_ready()] or cluster.workers)
            had = victim.at_work()
            victim.kill()
            died |= {_path(task): (task, time.time()) for task in had}
            victim.start()
            kills += 1
            next_s = time.monotonic() + draw.uniform(0, 2 * pause_s)
        if time.monotonic() - began > PATIENCE_S * windows + 300:
            raise ClusterError(f"the backfill does not end; see the logs in {cluster.folder}")
        time.sleep(0.5)
    cluster.wait_for_runs(runs, PATIENCE_S)
    finished = time.monotonic() - began
    return Disturbed(
        kills, len(noticed), noticed, finished, differing(cluster, expected, windows), len(leftovers(cluster))
    )


def _wait_until_running(cluster: Cluster) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not any(run["state"] == "running" for run in cluster.runs()):
        if time.monotonic() > deadline:
            raise ClusterError(f"no run has begun after {PATIENCE_S:.0f} s; see the logs in {cluster.folder}")
        time.sleep(0.2)


def _path(task: dict[str, Any]) -> str:
    """Return the path of a task instance in Airflow's API."""
    path = f"dags/{DAG}/dagRuns/{task['dag_run_id']}/taskInstances/{task['task_id']}"
    return path + (f"/{task['map_index']}" if task["map_index"] != -1 else "")
