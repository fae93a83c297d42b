"""Scheduler: those of Airflow's settings that matter here, without Airflow, and whether its parts are alive."""

from __future__ import annotations

import configparser
import json
import os
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from llmprism_tasks.reports.doctor.finding import Finding, judged

Value = Callable[[str, str], str | None]
"""Returns Airflow's value of a section and a name; None where its default is used."""

PARALLELISM, TASKS_PER_CORE = 32, 4
"""Airflow's default, and how many tasks at a time a core can serve: most of a task is waiting for others."""

HEARTBEAT_S, NOTICED_S = 300, 60
"""Airflow's default, and how soon a dead worker should be noticed: its window is late by as much."""

VISIBILITY_S, SLOT_S = 86_400, 3_600
"""Airflow's default, and how soon a slot should be free again that a worker kept when it died at the end of a task."""

PORT, ANSWER_S = 8080, 5.0
"""Where Airflow's API server listens by default, and how long its answer may take."""


def home(environment: Mapping[str, str]) -> Path | None:
    """Return Airflow's folder, if this machine has one."""
    folder = Path(environment.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    used = "AIRFLOW_HOME" in environment or (folder / "airflow.cfg").is_file()
    return folder if used else None


def settings(
    value: Value, *, cores: int, dags: Callable[[Path], bool] = lambda folder: (folder / "llmprism_minute.py").is_file()
) -> Iterator[Finding]:
    """Judge Airflow's settings.

    Parameters
    ----------
    cores : of this machine
    dags : tells whether a folder has llmprism's DAGs
    """
    database = (value("database", "sql_alchemy_conn") or "sqlite:").partition(":")[0]
    small = "It is for trying out: under load backfills end half-way. Use PostgreSQL, as docker-compose.yml does."
    yield judged("airflow's database", database, warning=small if database.startswith("sqlite") else "")

    parallelism = int(value("core", "parallelism") or PARALLELISM)
    many = f"Set AIRFLOW__CORE__PARALLELISM to {2 * cores}: each task is a process that works most of its time."
    found = f"{parallelism} tasks at a time on {cores} cores"
    yield judged("airflow's parallelism", found, warning=many if parallelism > TASKS_PER_CORE * cores else "")

    timeout = float(value("scheduler", "task_instance_heartbeat_timeout") or HEARTBEAT_S)
    long = f"Set AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT to {NOTICED_S}: its window waits as long."
    found = f"a dead worker is noticed after {timeout:g} s"
    yield judged("airflow's heartbeat", found, warning=long if timeout > NOTICED_S else "")

    if "Celery" in (value("core", "executor") or ""):
        visible = float(value("celery_broker_transport_options", "visibility_timeout") or VISIBILITY_S)
        kept = f"Set AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__VISIBILITY_TIMEOUT to {SLOT_S}, or all are gone one day."
        found = f"a slot that a dead worker kept is free again after {visible:g} s"
        yield judged("airflow's slots", found, warning=kept if visible > SLOT_S else "")

    folder = value("core", "dags_folder")
    if folder is not None:
        there = dags(Path(folder))
        todo = "Copy or link llmprism's dags/ there, or set AIRFLOW__CORE__DAGS_FOLDER."
        yield judged("airflow's DAGs", f"{folder}", problem="" if there else todo)


def components(address: str, health: Mapping[str, Mapping[str, str | None]] | None) -> Finding:
    """Judge whether Airflow's parts are alive.

    Parameters
    ----------
    health : Airflow's answer to `/api/v2/monitor/health`; None if there was none
    """
    if health is None:
        todo = "Start Airflow's API server, or set AIRFLOW__API__BASE_URL to its address if it is elsewhere."
        return judged("airflow", f"nobody answers at {address}", warning=todo)
    dead = [name for name, state in health.items() if state.get("status") != "healthy"]
    todo = "Start it again, and see its log: without it windows wait, and nobody is told."
    found = f"{', '.join(dead)} not healthy, says {address}" if dead else f"{', '.join(health)} healthy"
    return judged("airflow", found, problem=todo if dead else "")


def ask(address: str) -> Any:
    """Return what Airflow says of its parts, or None."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{address.rstrip('/')}/api/v2/monitor/health", timeout=ANSWER_S) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None


def look(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check the Airflow of this machine, if there is one."""
    folder = home(environment)
    if folder is None:
        return
    file = configparser.ConfigParser(interpolation=None, strict=False)
    file.read(folder / "airflow.cfg", encoding="utf-8")

    def value(section: str, name: str) -> str | None:
        variable = environment.get(f"AIRFLOW__{section}__{name}".upper())
        return variable if variable is not None else file.get(section, name, fallback=None)

    yield from settings(value, cores=os.cpu_count() or 1)
    address = value("api", "base_url") or f"http://127.0.0.1:{value('api', 'port') or PORT}"
    yield components(address, ask(address))
