"""Minutes that got no run, through a real Airflow: expected, taken up, run, and equal to what `analyze` makes."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from captured_minutes import MINUTE_NS, WINDOWS, differing, warehouse_in

from llmprism_tasks.contract.windows import ALL_TIME, Window
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
    assert differing(warehouse) == []


def test_live_minutes_keep_their_runs_and_go_first(dags: Any) -> None:
    live, again = dags["llmprism_minute"], dags["llmprism_again"]
    assert (live.max_active_runs, again.max_active_runs) == (3, 1)
    assert {task.task_id for task in live.tasks} - {task.task_id for task in again.tasks} == {"await_flows"}
    others = [task for dag in (again, dags["llmprism_catch_up"]) for task in dag.tasks]
    assert all(task.weight_rule == "absolute" for task in (*live.tasks, *others))
    assert min(task.priority_weight for task in live.tasks) > max(task.priority_weight for task in others)
    assert all(task.pool == "default_pool" for task in again.tasks)


def test_a_missed_deadline_is_told_and_the_triggerer_lives_on(
    dags: Any, capture: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The way of a real miss, by Airflow's own steps: run, deadline, trigger, events, metadata database.

    Before, the callback returned a dictionary. Airflow could not store it, its triggerer ended, and no window that
    waited for its flows ever went on.
    """
    from airflow.models.dagrun import DagRun
    from airflow.models.deadline import Deadline
    from airflow.models.trigger import Trigger
    from airflow.triggers.callback import CallbackTrigger
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    monkeypatch.setenv("LLMPRISM_CATCH_UP__BACKLOG", "1")
    (alert,) = dags["llmprism_catch_up"].deadline
    now, starts = dt.datetime.now(dt.UTC), [window.start_ns for window in WINDOWS[:2]]
    warehouse_in(capture).write(lambda connection: minutes.expect(connection, starts, starts[0]))
    with create_session() as session:
        run = DagRun("llmprism_catch_up", "waits", run_after=now, run_type=DagRunType.MANUAL, state="queued")
        run.triggered_by = DagRunTriggeredByType.TEST
        session.add(run)
        session.flush()
        missed = Deadline(now, alert.callback, run.id, None, dag_id="llmprism_catch_up")
        session.add(missed)
        session.flush()
        missed.handle_miss(session)
        session.flush()
        trigger_id, told = missed.callback.trigger_id, missed.callback.id
        kept = session.get(Trigger, trigger_id)
        assert kept is not None
        trigger = CallbackTrigger(**kept.kwargs)

    async def fire() -> None:
        async for event in trigger.run():
            Trigger.submit_event(trigger_id, event)

    asyncio.run(fire())
    with create_session() as session:
        assert session.get(type(missed.callback), told).state == "success"
        session.delete(session.get(DagRun, run.id))
    assert "run waits of llmprism_catch_up missed its deadline" in caplog.text
    assert "windows due: 2" in caplog.text
