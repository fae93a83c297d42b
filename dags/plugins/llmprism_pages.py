"""The pages in Airflow's UI: *LLMPrism* in the navigation, and a tab on each run of `llmprism_minute`.

`AIRFLOW__CORE__PLUGINS_FOLDER` names this folder. Airflow imports plugins in all its processes, so what the pages need
is imported with the first request, in the API server. Who may see the DAG `llmprism_minute` may see the pages; who may
edit it may mute.
"""

import asyncio
import datetime as dt
import functools
import os
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from fastapi import FastAPI

    from llmprism_tasks.settings import Settings
    from llmprism_tasks.warehouse.connect import Warehouse

Message = MutableMapping[str, Any]

DAG = "llmprism_minute"
PREFIX = "llmprism"


async def pages(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Answer a request: an ASGI app that is made with the first one."""
    app = await asyncio.to_thread(app_behind_airflows_login)
    await app(scope, receive, send)


@functools.cache
def app_behind_airflows_login() -> "FastAPI":
    """Make the app; nothing of it answers without a login."""
    from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
    from fastapi import Depends, Request
    from fastapi.responses import RedirectResponse

    from llmprism_tasks.reports.pages.app import pages_app

    def remember(request: Request, user: GetUserDep) -> None:
        request.state.llmprism_user = user.get_name()

    def to_the_window_of_a_run(dag_id: str, run_id: str) -> RedirectResponse:
        return RedirectResponse(f"../../window?start_ns={start_ns_of(dag_id, run_id)}")

    app = pages_app(
        warehouse,
        settings=settings(),
        who=lambda request: str(request.state.llmprism_user),
        reading=[Depends(requires_access_dag(method="GET", param_dag_id=DAG))],
        muting=[Depends(requires_access_dag(method="PUT", param_dag_id=DAG)), Depends(remember)],
    )
    app.add_api_route("/run/{dag_id}/{run_id}", to_the_window_of_a_run, methods=["GET"])
    return app


def warehouse() -> "Warehouse":
    """Return the warehouse of the API server's settings; the pages make none."""
    from llmprism_tasks.warehouse.connect import configured, existing_warehouse

    return existing_warehouse(configured(settings()))


def settings() -> "Settings":
    """Return the settings of the API server's file and environment."""
    from llmprism_tasks.settings.load import load

    file = os.environ.get("LLMPRISM_SETTINGS")
    return load(file=Path(file) if file else None, environment=os.environ)


def start_ns_of(dag_id: str, run_id: str) -> int:
    """Return the start of the window that a run is of.

    Raises
    ------
    InputError : the run is not there, of another DAG, or of no window
    """
    from airflow.models.dagrun import DagRun

    from llmprism_tasks.contract.errors import InputError
    from llmprism_tasks.contract.windows import Window

    for run in DagRun.find(dag_id=DAG, run_id=[run_id]) if dag_id == DAG else ():
        asked = (run.conf or {}).get("window_start")
        moment = dt.datetime.fromisoformat(asked) if asked else run.data_interval_start
        if moment is not None:
            return Window.starting(moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC), 1).start_ns
    raise InputError(
        found=f"the run {run_id[:80]} of {dag_id[:80]}",
        expected=f"a run of {DAG}, for one window",
        todo=f"Open this tab on a run of {DAG}.",
    )


class LLMPrismPlugin(AirflowPlugin):
    """What Airflow shows of llmprism."""

    name = "llmprism"
    fastapi_apps = [{"app": pages, "url_prefix": f"/{PREFIX}", "name": "llmprism"}]  # noqa: RUF012 - Airflow's own form
    external_views = [  # noqa: RUF012
        {"name": "LLMPrism", "href": f"{PREFIX}/", "destination": "nav", "url_route": "llmprism"},
        {
            "name": "LLMPrism window",
            "href": f"{PREFIX}/run/{{DAG_ID}}/{{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "llmprism-window",
        },
    ]
