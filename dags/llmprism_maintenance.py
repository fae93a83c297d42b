"""### What was kept long enough is deleted

Every hour `expire` deletes flows, timelines and results that are older than `retention.flows_h`, `retention.timeline_h`
and `retention.results_d`, as `llmprism expire` does, and gives their space back. Ages are counted back from the newest
window in the warehouse. Flows that a window waits for which is still to be run are kept up to four times as long, and
flows whose window began to run within the last hour are kept, so that a backfill of old windows finds its look-back.
The task's log says how many rows and bytes went.

A window whose flows have expired is not run again: its task fails and says so, and its results stand.

When the task fails, its log says why; nothing is half deleted, and the next hour goes on from there. `llmprism expire
--dry-run` says what would be deleted. There is nothing to backfill here: `airflow backfill create` would only do the
same again.
"""

from __future__ import annotations

import datetime as dt

from airflow.sdk import DAG, CronTriggerTimetable, task

from llmprism_run import TRYING_AGAIN
from llmprism_tasks.contract import system_errors
from llmprism_tasks.settings.load import of_environment


@task
@system_errors.named()
def expire() -> dict[str, int]:
    from llmprism_tasks.execution import upkeep

    return upkeep.expire_and_log(of_environment())


with DAG(
    "llmprism_maintenance",
    schedule=CronTriggerTimetable("7 * * * *", timezone="UTC"),  # not with what runs on the hour
    start_date=dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=1,
    default_args=TRYING_AGAIN,
    tags=["llmprism"],
    doc_md=__doc__,
) as dag:
    expire()
