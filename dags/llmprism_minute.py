"""### LLMPrism, minute by minute

Each minute's flow records become jobs, their layout, timelines and diagnoses. One run does one window: the minute
before the run, `[start, end)` in UTC. What it writes depends on that window's flows and a fixed look-back alone, so
windows may run in any order, again, or side by side, and the tables end the same.

**The tasks** are the phases of the method. `await_flows` waits, without holding a worker, until the window's flows
are there or `window.allowed_lateness_s` has passed; then the run goes on with what there is, and `windows.reason`
says so. `landing` takes the records in, `validation` checks them, `recognition` finds the jobs, `step_division` their
steps, `parallelism` their layout, `timeline` what each GPU did when; `diagnosis` names the culprits,
`results_validation` checks all that was written and sets aside jobs whose rows alone are wrong (its log and
`windows.reason` say which), `finish` marks the window as done and then, if `notify.webhook` is set, tells of the
incidents that opened or closed: once for each change, however often windows are run. Each table is an asset: schedule
your own DAG on `llmprism_windows` to follow finished windows; the event's `extra` holds `window_start_ns`.

Where several machines share a window (`batches.spread` above 1), `divide` leaves the flows of each group of hosts where
all machines find them (`places.handover`), and a task `partition` takes each group through all stages; the stages' own
tasks then merge what these made and write it. On one machine `partition` is skipped.

`recognition` reads the flows from the warehouse, divides the platform into groups of hosts that exchange no data, and
leaves their flows in files for the other stages. Each stage leaves its tables there, too. Where the files are gone, or
a setting, the topology or the landed flows have changed since, a stage's task reads the warehouse. What each stage took
is in `windows.stage_ns`.

**When a task fails**, its log ends with what was found, what was expected and what to do.

- *A file cannot be read* (`InputError`): the tables are as they were. Mend or remove the file, then clear `landing`.
- *A critical expectation does not hold* (`ContractError`): flows and quarantine are kept, `windows.status` is
  `stopped`. The log lists rows that break it and names the folder of Great Expectations' Data Docs, which list more.
  See also `llmprism sql "SELECT * FROM validation_results WHERE NOT success"`; after mending, clear the run.
- *A setting is wrong* (`SettingsError`): `llmprism settings` lists each with its range and where its value came from.
- *The warehouse is busy* (`WarehouseBusy`), the disk is full or does not answer (`TransientError`): it is tried five
  more times, at growing intervals. If that is not enough, see who holds the file or where room is needed (the message
  says), or run fewer windows at a time; then clear the task.
- *The warehouse was removed or replaced* (`WarehouseGone`): put it back and clear the task, or clear `landing`, which
  makes a new one.
- *A path or its permissions* (`InputError`): the message names it. Correct it, then clear the task.

Clearing a whole run, or a task and all after it (Downstream), is always safe: a run replaces exactly its own window's
rows. A task cleared without those after it leaves the window `running`, without what they would write.

**Backfill.** `airflow backfill create --dag-id llmprism_minute --from-date 2026-05-01T04:00:00 --to-date
2026-05-01T04:59:00 --max-active-runs 2` runs the windows that start from 04:00 to 04:59, both included. Add
`--reprocess-behavior completed` to do finished windows again. More at a time are safe, for writers of a DuckDB file
wait for one another, and pay where there are more than two cores.

**One window by hand.** Trigger the DAG with `window_start`, such as `2026-05-01T04:12Z`.

**Windows that are due** (skipped, late, or stale because of a window before them) are runs of `llmprism_again`, which
`llmprism_catch_up` starts: the same tasks but for `await_flows`, one run at a time, at a lower priority. There,
`landing` keeps the flows of a window of which only the look-back has changed. Live minutes keep their own three runs.

**Settings** come from `LLMPRISM_*` variables of the workers (`LLMPRISM_PLACES__FLOWS`, for one) and from the TOML file
that `LLMPRISM_SETTINGS` names.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import (
    DAG,
    BaseOperator,
    CronDataIntervalTimetable,
    Param,
    chain,
    task,
)

from llmprism_run import TRYING_AGAIN, IncidentMessages, assets, current_run, send_metrics
from llmprism_tasks.contract import plan, system_errors

if TYPE_CHECKING:
    from airflow.sdk import Context

LIVE_RUNS = 3
"""While one waits for its next file, which takes a minute of its time, two are at work."""

LIVE_FIRST = 10
"""Weight of the live minutes' tasks where workers are short; all others have 1."""


class AwaitFlows(BaseOperator):
    """Ask now and then whether the window can start, asleep in the triggerer between."""

    @system_errors.named()
    def execute(self, context: Context, event: Any = None) -> dict[str, float]:
        from llmprism_tasks.execution.window import seconds_to_wait

        window, settings = current_run()
        wait_s = seconds_to_wait(window, settings, now_ns=time.time_ns())
        if wait_s > 0:
            moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=wait_s)
            self.defer(trigger=DateTimeTrigger(moment=moment), method_name="execute")
        return {"seconds_after_window": round(time.time() - window.end_ns / 1e9, 3)}


@task(outlets=assets(*plan.LANDED))
@system_errors.named()
def landing() -> dict[str, int]:
    from llmprism_tasks.execution import window

    return landed(window.land_window(*current_run()))


@task(task_id="landing", outlets=assets(*plan.LANDED))
@system_errors.named()
def landing_again() -> dict[str, int]:
    from llmprism_tasks.execution import catch_up

    return landed(catch_up.land_again(*current_run(), now_ns=time.time_ns()))


def landed(counts: dict[str, int]) -> dict[str, int]:
    """Send the metrics of a landing, and hand its counts on."""
    send_metrics(counts={f"records_{name}": counts[name] for name in ("landed", "quarantined")})
    return counts


@task(outlets=assets("validation_results"))
@system_errors.named()
def validation() -> dict[str, int]:
    from llmprism_tasks.execution import window

    return window.validate_landed(*current_run())


@task
@system_errors.named()
def divide() -> list[dict[str, str | int]]:
    from llmprism_tasks.execution.spread import divide as divide_window

    return divide_window(*current_run())


@task
@system_errors.named()
def partition(part: dict[str, str | int]) -> dict[str, int]:
    from llmprism_tasks.execution.stage_task import run_partition

    return run_partition(part, *current_run())


def stage_task(stage: plan.Stage) -> Any:
    """Make the task of a stage of the plan; the first one runs whether or not partitions have tasks of their own."""

    @task(task_id=stage.name, outlets=assets(*stage.writes), trigger_rule="none_failed")
    @system_errors.named()
    def run() -> dict[str, int]:
        from llmprism_tasks.execution.stage_task import run_stage

        return run_stage(stage.name, *current_run())

    return run()


@task(outlets=assets("validation_results"))
@system_errors.named()
def results_validation() -> dict[str, int]:
    from llmprism_tasks.execution.stage_task import check_results

    return check_results(*current_run())


@task(outlets=assets("windows"), on_success_callback=[IncidentMessages()])
@system_errors.named()
def finish() -> dict[str, int]:
    from llmprism_tasks.execution.stage_task import end_run

    return end_run(*current_run())


def of_window(landing: Any, *before: Any) -> None:
    """Lay out the tasks of a window's run: what comes before its landing, the landing, and then what every run does."""
    stages = [stage_task(stage) for stage in plan.STAGES]
    chain(*before, landing, validation(), *stages, results_validation(), finish())
    chain(landing, parts := divide(), partition.expand(part=parts), stages[0])


WINDOW = {
    "window_start": Param(
        None,
        type=["null", "string"],
        title="Window",
        description="A time in the window to run, such as 2026-05-01T04:12Z; empty: the run's data interval.",
    )
}

with DAG(
    "llmprism_minute",
    schedule=CronDataIntervalTimetable("* * * * *", timezone="UTC"),
    start_date=dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=LIVE_RUNS,
    default_args=TRYING_AGAIN | {"priority_weight": LIVE_FIRST, "weight_rule": "absolute"},
    params=WINDOW,
    tags=["llmprism"],
    doc_md=__doc__,
) as dag:
    of_window(landing(), AwaitFlows(task_id="await_flows"))

with DAG(
    "llmprism_again",
    schedule=None,
    start_date=dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    max_active_runs=1,  # so that live minutes have the machine: windows that are due can wait
    default_args=TRYING_AGAIN | {"weight_rule": "absolute"},
    params=WINDOW,
    tags=["llmprism"],
    doc_md=__doc__,
) as again:
    of_window(landing_again())
