"""### A live demonstration's flows

Each minute drops the minute that just ended, as a simulated platform would have sent it, where `places.flows` looks
for it: `<folder>/flows/20260501T0412.parquet`, and `<folder>/topology.csv` beside them. The same minute always gives
the same file. The folder is `LLMPRISM_DEMO_FOLDER`; the scenario and its seed are parameters of the DAG. A scenario is
one of those that come with llmprism, by its name: a path would let whoever may trigger a run open files of the worker.

Never switch it on where real flows land. When a task fails, its log says why; clear it, or leave it: `llmprism_minute`
then runs that window with what there is and says so. To drop past minutes, use `airflow backfill create --dag-id
llmprism_demo_feed` with `--from-date` and `--to-date`.
"""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

from airflow.sdk import DAG, CronDataIntervalTimetable, Param, get_current_context, task

from llmprism_run import TRYING_AGAIN, current_run


@task
def drop_minute() -> str:
    from llmprism_tasks.simulate import write_minute

    params = get_current_context()["params"]
    window, _ = current_run()
    folder = Path(os.environ["LLMPRISM_DEMO_FOLDER"])
    return write_minute(folder, scenario=params["scenario"], window=window, seed=params["seed"]).name


with DAG(
    "llmprism_demo_feed",
    schedule=CronDataIntervalTimetable("* * * * *", timezone="UTC"),
    start_date=dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    catchup=False,
    max_active_runs=2,
    default_args=TRYING_AGAIN,
    params={"scenario": Param("demo", type="string", pattern="^[a-z0-9_]+$"), "seed": Param(0, type="integer")},
    tags=["llmprism", "demo"],
    doc_md=__doc__,
) as dag:
    drop_minute()
