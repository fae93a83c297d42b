"""An Airflow with Celery workers, each with a host name and folders of its own; they share flows, lake and hand-over.

A worker is a host as far as llmprism can see: another name (its own UTS namespace), home, folder for temporary files
and working directory. `Worker.kill` is its power cut.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from distributed.services import LOOPBACK, PostgreSQL, free_port, postgresql, redis

PROJECT = Path(__file__).resolve().parents[2]
DAG = "llmprism_minute"
FLOWS = "flows/{window:%Y%m%dT%H%M}.parquet"
PARTS = ("api-server", "scheduler", "dag-processor", "triggerer")
CONCURRENCY = 2
NOTICED_WITHIN_S = 60
"""Seconds in which Airflow must notice that a worker died: a minute's run cannot wait longer."""

STARTING_S = 300.0


class ClusterError(Exception):
    """Something did not start or did not end in time; the message says where its log is."""


@dataclass
class Cluster:
    """The services, Airflow's parts and the workers.

    Attributes
    ----------
    folder : holds everything; `shared` in it is what all hosts see
    password : of PostgreSQL and Redis; given to processes in files and in their environment, never as an argument
    """

    folder: Path
    postgres: PostgreSQL
    redis_port: int
    password: str = field(repr=False)
    port: int = field(default_factory=free_port)
    workers: list[Worker] = field(default_factory=list)
    parts: list[subprocess.Popen[bytes]] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=lambda: {name: secrets.token_urlsafe(32) for name in ("api", "jwt")})

    @property
    def shared(self) -> Path:
        """The folder that all hosts share."""
        return self.folder / "shared"

    @property
    def warehouse(self) -> str:
        """The location of the lake, which never holds the password."""
        return f"ducklake:postgres:dbname=lake host={LOOPBACK} port={self.postgres.port} user=postgres"

    def places(self) -> dict[str, str]:
        """Return the variables that make `llmprism` work on the cluster's flows and lake."""
        return {
            "LLMPRISM_PLACES__FLOWS": str(self.shared / FLOWS),
            "LLMPRISM_PLACES__TOPOLOGY": str(self.shared / "topology.csv"),
            "LLMPRISM_PLACES__WAREHOUSE": self.warehouse,
            "LLMPRISM_PLACES__HANDOVER": str(self.shared / "handover"),
            "LLMPRISM_WAREHOUSE__DATA_PATH": f"{self.shared}/lake/",
            "LLMPRISM_WAREHOUSE__CATALOG_PASSWORD_FILE": str(self.folder / "password"),
            "LLMPRISM_BATCHES__SPREAD": "8",
            "GX_ANALYTICS_ENABLED": "false",
        }

    def variables(self, host: Path) -> dict[str, str]:
        """Return the variables of a process on a host, which is a folder."""
        server = f"postgres:{self.password}@{LOOPBACK}:{self.postgres.port}/airflow"
        cached = os.environ.get("NUMBA_CACHE_DIR")
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "HOME": str(host),
            "TMPDIR": str(host / "tmp"),
            "AIRFLOW_HOME": str(host / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CORE__PARALLELISM": str(2 * CONCURRENCY),  # no more than there are slots: none waits in Redis
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": "socket.gethostname",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{LOOPBACK}:{self.port}/execution/",
            "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(self.keys["api"].encode()[:32]).decode(),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{server}",
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+postgresql+psycopg2://{server}",
            "AIRFLOW__CELERY__BROKER_URL": f"redis://:{self.password}@{LOOPBACK}:{self.redis_port}/0",
            "AIRFLOW__CELERY__WORKER_CONCURRENCY": str(CONCURRENCY),
            "AIRFLOW__CELERY__WORKER_PREFETCH_MULTIPLIER": "1",
            "AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__VISIBILITY_TIMEOUT": "120",  # longer than any task here takes
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
            "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "40",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "60",
            "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "10",
            "AIRFLOW__API__HOST": LOOPBACK,
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": f"http://{LOOPBACK}:{self.port}",
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": self.keys["api"],
            "AIRFLOW__API_AUTH__JWT_SECRET": self.keys["jwt"],
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
            **({"NUMBA_CACHE_DIR": cached} if cached else {}),
            **self.places(),
        }

    def host(self, name: str) -> Path:
        """Make the folders of a host."""
        host = self.folder / name
        for path in (host / "tmp", host / "airflow" / "config"):
            path.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / "tools" / "demo" / "config" / "airflow_local_settings.py", host / "airflow" / "config")
        return host

    def spawn(self, host: Path, *words: str) -> subprocess.Popen[bytes]:
        """Start a program on a host, in a session of its own; its output goes to a log there."""
        with (host / f"{words[-1] if len(words) < 3 else host.name}.log").open("ab") as log:
            return subprocess.Popen(
                words,
                env=self.variables(host),
                cwd=host,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def command(self, *words: str) -> str:
        """Run a command on the first host, and return its output.

        Raises
        ------
        ClusterError : it failed
        """
        host = self.host("control")
        done = subprocess.run(
            words, env=self.variables(host), cwd=host, capture_output=True, text=True, check=False, timeout=STARTING_S
        )
        if done.returncode:
            raise ClusterError(
                f"{' '.join(words)} ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
        return done.stdout

    def start(self, workers: Sequence[str]) -> None:
        """Start Airflow's parts and the workers, and wait until all are there."""
        self.command("airflow", "db", "migrate")
        self.command("airflow", "dags", "reserialize")
        host = self.host("control")
        self.parts += [self.spawn(host, "airflow", part) for part in PARTS[:1]]
        self._wait("the API server", lambda: bool(self.ask("monitor/health")))
        self.parts += [self.spawn(host, "airflow", part) for part in PARTS[1:3]]
        self.parts.append(self.spawn(host, "airflow", "triggerer", "--skip-serve-logs"))
        self.workers += [Worker(self, name) for name in workers]
        for worker in self.workers:
            worker.start()
        for worker in self.workers:
            self._wait(f"worker {worker.name}", worker.is_ready)
        self._wait("the scheduler", lambda: self.ask("monitor/health")["scheduler"]["status"] == "healthy")

    def stop(self) -> None:
        """Stop everything at once."""
        for worker in self.workers:
            worker.kill()
        for part in self.parts:
            kill_tree(part)

    def ask(self, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Return the answer of Airflow's public REST API to a GET, or to a POST if there is a body."""
        passwords = self.folder / "control" / "airflow" / "simple_auth_manager_passwords.json.generated"
        ((user, password),) = json.loads(passwords.read_text(encoding="utf-8")).items()
        base = f"http://{LOOPBACK}:{self.port}"
        token = _fetch(f"{base}/auth/token", {"username": user, "password": password})["access_token"]
        return _fetch(f"{base}/api/v2/{path}", body, {"Authorization": f"Bearer {token}"})

    def backfill(self, first: str, last: str, *, again: bool = False, at_a_time: int = 4) -> None:
        """Ask for the windows that start from `first` to `last`, ISO times, both included.

        Airflow has one backfill of a DAG at a time, and takes some seconds to see that the one before has ended.
        """
        asked = {
            "dag_id": DAG,
            "from_date": first,
            "to_date": last,
            "max_active_runs": at_a_time,
            "reprocess_behavior": "completed" if again else "none",
        }
        self._wait("the end of the backfill before", lambda: bool(self.ask("backfills", asked)))

    def trigger(self, window_start: str) -> None:
        """Ask for one window by hand."""
        self.ask(f"dags/{DAG}/dagRuns", {"logical_date": None, "conf": {"window_start": window_start}})

    def runs(self) -> list[dict[str, Any]]:
        """Return all runs of the minute's DAG."""
        found: list[dict[str, Any]] = self.ask(f"dags/{DAG}/dagRuns?limit=100")["dag_runs"]
        return found

    def tasks(self) -> list[dict[str, Any]]:
        """Return all task instances of all runs."""
        found: list[dict[str, Any]] = []
        while True:
            page = self.ask(f"dags/{DAG}/dagRuns/~/taskInstances?limit=100&offset={len(found)}&order_by=id")
            found += page["task_instances"]
            if len(found) >= page["total_entries"] or not page["task_instances"]:
                return found

    def wait_for_runs(self, count: int, patience_s: float) -> None:
        """Return when there are so many runs, and all have ended well.

        Raises
        ------
        ClusterError : a run failed, or it takes too long
        """
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            states = Counter(run["state"] for run in self.runs())
            if states["failed"]:
                raise ClusterError(f"{states['failed']} runs failed; see the logs in {self.folder}")
            if states["success"] >= count and states.total() == states["success"]:
                return
            time.sleep(1)
        raise ClusterError(f"after {patience_s:.0f} s the runs are {dict(states)}; see the logs in {self.folder}")

    def _wait(self, what: str, is_there: Any) -> None:
        deadline = time.monotonic() + STARTING_S
        while time.monotonic() < deadline:
            with contextlib.suppress(ClusterError, FileNotFoundError, KeyError, ValueError):
                if is_there():
                    return
            time.sleep(0.5)
        raise ClusterError(f"{what} is not there after {STARTING_S:.0f} s; see the logs in {self.folder}")


@dataclass
class Worker:
    """A Celery worker on a host of its own."""

    cluster: Cluster
    name: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """The file that the worker writes to."""
        return self.cluster.folder / self.name / f"{self.name}.log"

    def start(self) -> None:
        """Start it; what it left when it was killed is still there, as on a machine that comes back."""
        host = self.cluster.host(self.name)
        self.log.unlink(missing_ok=True)
        own_user = [] if os.getuid() == 0 else ["--map-root-user"]
        command = (
            f"hostname {self.name} && exec airflow celery worker --skip-serve-logs --celery-hostname {self.name}@%h"
        )
        self.process = self.cluster.spawn(host, "unshare", *own_user, "--uts", "sh", "-c", command)

    def is_ready(self) -> bool:
        """Say whether the worker has said that it is ready."""
        return self.log.exists() and " ready." in self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """Kill all of its processes at once, as a power cut does."""
        if self.process is not None:
            kill_tree(self.process)

    def at_work(self) -> list[dict[str, Any]]:
        """Return the tasks that run there."""
        return [
            task
            for task in self.cluster.ask(f"dags/{DAG}/dagRuns/~/taskInstances?state=running&limit=100")[
                "task_instances"
            ]
            if task["hostname"] == self.name
        ]


@contextlib.contextmanager
def cluster(folder: Path, *workers: str) -> Iterator[Cluster]:
    """Run a cluster for the length of a block.

    Parameters
    ----------
    folder : exists, and all users can reach it
    workers : host names

    Raises
    ------
    services.MissingServiceError : PostgreSQL or Redis is not installed
    """
    password = secrets.token_urlsafe(24)
    with postgresql(folder / "postgres", password) as postgres, redis(folder / "redis", password) as redis_port:
        postgres.run("CREATE DATABASE airflow", "CREATE DATABASE lake")
        secret = folder / "password"
        secret.touch(mode=0o600)
        secret.write_text(password, encoding="utf-8")
        made = Cluster(folder, postgres, redis_port, password)
        made.shared.mkdir()
        try:
            made.start(workers)
            yield made
        finally:
            made.stop()


def work_done(tasks: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return of each host how many `tasks` and `windows` it had a part in, and the `seconds` that its tasks took."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: {"tasks": 0, "windows": 0, "seconds": 0.0})
    windows: dict[str, set[str]] = defaultdict(set)
    for task in tasks:
        if task["state"] == "success" and task["hostname"]:
            one = found[task["hostname"]]
            one["tasks"] += 1
            one["seconds"] += task["duration"] or 0.0
            windows[task["hostname"]].add(task["dag_run_id"])
            one["windows"] = len(windows[task["hostname"]])
    return dict(found)


def moment(text: str) -> float:
    """Return seconds since 1970 of a time that Airflow says."""
    return datetime.fromisoformat(text).timestamp()


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started, which may have sessions of their own."""
    with contextlib.suppress(psutil.NoSuchProcess):
        top = psutil.Process(process.pid)
        for one in [top, *top.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
    process.wait()


def _fetch(
    url: str, body: Mapping[str, object] | None = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **(headers or {})},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        raise ClusterError(f"{url} answered {error.code}: {error.read()[:500]!r}") from error
    except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
        raise ClusterError(f"{url} did not answer: {error}") from error
