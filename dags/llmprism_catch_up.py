"""### Every minute accounted for

Each minute expects the minute that just ended, and all since the last one that was expected, if the scheduler was away;
lists the windows that are due to be run (again); and takes some of them up, newest first: each becomes a run of
`llmprism_again`, one after another, beside the live minutes of `llmprism_minute`.

A window is due if no run landed it, if its run died, if records of it came after its run, if a window that it looks
back at was landed anew with other flows, or if a critical expectation stopped it. `llmprism due` lists all of them. A
window that fails is tried again after a pause that doubles each time, `catch_up.tries` times; then it is left to you,
and told.

When the newest finished window is too old or too many are due (`catch_up.lag_s`, `catch_up.backlog`), and when no
window was finished for long (`catch_up.silent_after_s`), the log warns and a message is sent: once when it begins and
once when it is over.

**Metrics**, as Airflow sends them to StatsD or OpenTelemetry: gauges `llmprism.lag_s`, `llmprism.silent_s`,
`llmprism.coverage` (share of the expected minutes that are done), `llmprism.windows_due`, `llmprism.windows_given_up`
and `llmprism.open_incidents` from here; counters `llmprism.records_landed` and `llmprism.records_quarantined` from
`landing`.

Unpause this DAG together with `llmprism_minute` and `llmprism_again`. **When a task fails**, its log says what to do,
and the next minute takes stock of all. Past minutes that nobody expected are run by `airflow backfill create --dag-id
llmprism_minute`.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, CronDataIntervalTimetable, task
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from llmprism_run import TRYING_AGAIN, send_metrics
from llmprism_tasks.contract import system_errors
from llmprism_tasks.execution.deadline import stock_not_taken
from llmprism_tasks.settings.load import of_environment

LONGEST = dt.timedelta(minutes=10)
"""Stock is taken in seconds. After so long nothing runs, and only the triggerer can say so."""


@task
@system_errors.named()
def take_stock() -> list[dict[str, Any]]:
    from llmprism_tasks.execution import catch_up

    now_ns = time.time_ns()
    stock = catch_up.take_stock(of_environment(), now_ns=now_ns)
    send_metrics(gauges=stock.gauges)
    starts = [f"{window.start:%Y-%m-%dT%H:%M:%SZ}" for window in stock.taken_up]
    return [{"trigger_run_id": f"due__{start}__{now_ns}", "conf": {"window_start": start}} for start in starts]


with DAG(
    "llmprism_catch_up",
    schedule=CronDataIntervalTimetable("* * * * *", timezone="UTC"),
    start_date=dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=1,  # windows are taken up in their order
    default_args=TRYING_AGAIN | {"weight_rule": "absolute"},
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=LONGEST, callback=AsyncCallback(stock_not_taken)
    ),
    tags=["llmprism"],
    doc_md=__doc__,
) as dag:
    TriggerDagRunOperator.partial(
        task_id="run_again", trigger_dag_id="llmprism_again", logical_date=None
    ).expand_kwargs(take_stock())
