"""Minutes that got no run, through a real Airflow: expected, taken up, run, and equal to what `analyze` makes."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from captured_minutes import MINUTE_NS, WINDOWS, rows, settings_in, warehouse_in

from llmprism_tasks.contract.windows import ALL_TIME, Window
from llmprism_tasks.execution.analyze import analyze
from llmprism_tasks.execution.deadline import stock_not_taken
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.bookkeeping import minutes


@pytest.fixture
def dags(bag: Any) -> Any:
    """The DAGs, parsed anew: a run in this process leaves its parameters behind in a DAG."""
    for dag_id in ("llmprism_minute", "llmprism_catch_up"):
        bag.process_file(bag.dags[dag_id].fileloc, only_if_updated=False)
    return bag.dags


def asked_for(dag_id: str) -> set[str]:
    """The windows of the runs of a DAG that wait to be started."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        waiting = select(DagRun).where(DagRun.dag_id == dag_id, DagRun.state == "queued")
        return {run.conf["window_start"] for run in session.scalars(waiting)}


def test_minutes_that_got_no_run_are_taken_up_and_end_as_analyze_ends(
    dags: Any, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, minutes that Airflow left out were landed as look-back of others, or not at all, and nobody said so."""
    monkeypatch.setenv("LLMPRISM_WINDOW__WAITS_FOR_NEXT_FILE", "no")  # there is none after the last minute
    warehouse = warehouse_in(capture)
    starts = [window.start_ns for window in WINDOWS]
    warehouse.write(lambda connection: minutes.expect(connection, starts, starts[0], by=minutes.RUN))
    now = dt.datetime.now(dt.UTC)
    dags["llmprism_catch_up"].deadline = None  # Airflow 3.3's dag.test() cannot end a run that has one
    done = dags["llmprism_catch_up"].test(logical_date=now)

    assert done.state == "success"
    names = [f"{window.start:%Y-%m-%dT%H:%M:%SZ}" for window in reversed(WINDOWS)]
    assert asked_for("llmprism_again") == set(names)
    there = store.read(warehouse, "minutes", ALL_TIME)
    assert there["tries"].to_list() == [1, 1, 0]
    last = Window.starting(now, MINUTE_NS).start_ns
    assert there["window_start_ns"][-1] in (last - MINUTE_NS, last)  # the minute that just ended, by the schedule
    for name in names:
        assert dags["llmprism_again"].test(logical_date=None, run_conf={"window_start": name}).state == "success"
    analyze(settings_in(capture, LLMPRISM_PLACES__WAREHOUSE=str(capture / "straight.duckdb")))
    expected = rows(warehouse_in(capture, "straight.duckdb"))
    for table, found in rows(warehouse).items():
        assert found.equals(expected[table]), table


def test_live_minutes_keep_their_runs_and_go_first(dags: Any) -> None:
    live, again = dags["llmprism_minute"], dags["llmprism_again"]
    assert (live.max_active_runs, again.max_active_runs) == (3, 1)
    assert {task.task_id for task in live.tasks} - {task.task_id for task in again.tasks} == {"await_flows"}
    others = [task for dag in (again, dags["llmprism_catch_up"]) for task in dag.tasks]
    assert all(task.weight_rule == "absolute" for task in (*live.tasks, *others))
    assert min(task.priority_weight for task in live.tasks) > max(task.priority_weight for task in others)
    assert all(task.pool == "default_pool" for task in again.tasks)


def test_a_missed_deadline_tells_what_is_known(dags: Any, capture: Path, caplog: pytest.LogCaptureFixture) -> None:
    (deadline,) = dags["llmprism_catch_up"].deadline
    assert deadline.callback.path == f"{stock_not_taken.__module__}.{stock_not_taken.__qualname__}"
    start_ns = WINDOWS[0].start_ns
    warehouse_in(capture).write(lambda connection: minutes.expect(connection, [start_ns], start_ns))
    told = asyncio.run(stock_not_taken(context={"dag_run": {"run_id": "scheduled__1"}}))
    assert (told["expected"], told["due"]) == (1, {"skipped": 1})
    assert "run scheduled__1 of llmprism_catch_up missed its deadline" in caplog.text
