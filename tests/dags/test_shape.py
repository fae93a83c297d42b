"""What the DAGs promise before they run: pages, graph, retries, assets, and a parse that costs next to nothing."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llmprism_tasks.contract import plan
from llmprism_tasks.contract.errors import InputError, SettingsError, WarehouseBusy

DAGS = ("llmprism_minute", "llmprism_catch_up", "llmprism_maintenance", "llmprism_demo_feed")
HEAVY = ("duckdb", "great_expectations", "numba", "numpy", "pandas", "polars", "pyarrow")


def test_every_dag_imports_and_nothing_else_is_taken_for_one(bag: Any) -> None:
    assert not bag.import_errors
    assert set(bag.dags) == {*DAGS, "llmprism_again"}


LOADED = f"""
import importlib, sys
for dag in {DAGS}:
    importlib.import_module(dag)
    print(dag, *(name for name in {HEAVY} if name in sys.modules))
"""


def test_parsing_loads_no_heavy_library(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=project / "dags", capture_output=True, text=True, check=True
    )
    assert tuple(done.stdout.strip().splitlines()[-len(DAGS) :]) == DAGS


def test_parsing_takes_less_than_half_a_second(bag: Any) -> None:
    """Of the processor's time, whatever else is running."""
    began = time.process_time()
    for file in {dag.fileloc for dag in bag.dags.values()}:
        bag.process_file(file, only_if_updated=False)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("dag_id", [*DAGS, "llmprism_again"])
def test_each_has_a_page_that_says_what_to_do(bag: Any, dag_id: str) -> None:
    page = bag.dags[dag_id].doc_md
    assert "fails" in page
    assert "airflow backfill create" in page


def test_the_page_names_every_task(minute: Any) -> None:
    for task_id in minute.task_ids:
        assert f"`{task_id}`" in minute.doc_md


def test_the_graph_is_the_plan(minute: Any) -> None:
    stages = [stage.name for stage in plan.STAGES]
    expected = ["await_flows", "landing", "validation", *stages, "results_validation", "finish"]
    of_partitions = ["landing", "divide", "partition", stages[0]]
    assert set(minute.task_ids) == {*expected, *of_partitions}
    edges = {(task.task_id, after) for task in minute.tasks for after in task.downstream_task_ids}
    assert {*itertools.pairwise(expected), *itertools.pairwise(of_partitions)} <= edges


def test_every_result_table_is_an_asset_of_the_tasks_that_write_it(minute: Any) -> None:
    written = {task.task_id: {asset.name for asset in task.outlets} for task in minute.tasks}
    for stage in plan.STAGES:
        assert written[stage.name] == {f"llmprism_{table}" for table in stage.writes}
    assert written["landing"] == {"llmprism_flows", "llmprism_flows_quarantine"}
    assert written["validation"] == written["results_validation"] == {"llmprism_validation_results"}
    assert written["finish"] == {"llmprism_windows"}


@pytest.mark.parametrize(
    ("kind", "action"),
    [(InputError, "fail"), (SettingsError, "fail"), (WarehouseBusy, "retry")],
)
def test_every_task_tries_again_by_what_went_wrong(bag: Any, kind: type[Exception], action: str) -> None:
    error = kind(found="this", expected="that", todo="Do so.")
    for dag in bag.dags.values():
        for task in dag.tasks:
            assert task.retries == 5
            assert task.retry_policy.evaluate(error, 1, task.retries).action.value == action


def test_system_errors_are_tried_again_and_our_own_faults_are_not(minute: Any) -> None:
    policy = minute.get_task("landing").retry_policy
    assert policy.evaluate(OSError("no space left on device"), 1, 5).action.value == "retry"
    assert policy.evaluate(KeyError("a fault of ours"), 1, 5).action.value == "fail"


def test_runs_are_true_minutes_and_the_past_waits_for_a_backfill(minute: Any) -> None:
    from airflow.sdk import CronDataIntervalTimetable

    assert isinstance(minute.timetable, CronDataIntervalTimetable)
    assert not minute.catchup
    assert minute.max_active_runs == 3
    assert all(task.pool == "default_pool" for task in minute.tasks)  # a pool that is not there would stop every run


def test_a_scenario_of_the_demo_feed_is_no_path(bag: Any) -> None:
    scenario = bag.dags["llmprism_demo_feed"].params.get_param("scenario")
    assert scenario.resolve("two_tenants") == "two_tenants"
    for path in ("/etc/secret.toml", "secret.toml", "../secret"):
        with pytest.raises(ValueError, match="does not match"):
            scenario.resolve(path)


def test_upkeep_runs_by_itself_one_at_a_time(bag: Any) -> None:
    dag = bag.dags["llmprism_maintenance"]
    assert dag.max_active_runs == 1
    assert not dag.catchup
    assert dag.task_ids == ["expire"]
