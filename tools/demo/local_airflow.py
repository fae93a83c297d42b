"""One Airflow on this machine, with everything it writes in one folder: start it, ask it, stop it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
FLOWS_PATTERN = "flows/{window:%Y%m%dT%H%M}.parquet"
PARTS = (
    ("scheduler", "--skip-serve-logs"),
    ("dag-processor",),
    ("api-server",),
    ("triggerer", "--skip-serve-logs"),
)
"""The processes of Airflow. Servers of logs would listen on every address; here the API server reads the files."""
STARTING_S = 180.0
STOPPING_S = 20.0


class LocalAirflowError(Exception):
    """Airflow did not start, did not answer, or is already there; the message says what to do."""


@dataclass(frozen=True)
class LocalAirflow:
    """An Airflow whose home, flows and warehouse are in `folder`.

    Attributes
    ----------
    folder : absolute path; made when missing
    port : of the API server and the pages, on the loopback address; nothing else listens
    """

    folder: Path
    port: int

    @property
    def address(self) -> str:
        """Where a browser finds Airflow."""
        return f"http://localhost:{self.port}"

    @property
    def log(self) -> Path:
        """The file that Airflow's processes write to."""
        return self.folder / "airflow.log"

    @property
    def passwords(self) -> Path:
        """The file in which Airflow keeps the passwords that it made."""
        return self.folder / "airflow" / "simple_auth_manager_passwords.json.generated"

    def variables(self, *, scheduled: bool = True) -> dict[str, str]:
        """Return the variables that make `airflow` and `llmprism` work in the folder.

        `scheduled` says whether the minute's runs start by themselves, or only when asked for.
        """
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "dags" / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",  # two for each of two cores; each is a process
            # SQLite has one writer at a time: let the others wait for it for a minute, not for five seconds
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.folder}/airflow/airflow.db?timeout=60",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",  # 1 s would be most of a run of small tasks
            "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": str(scheduled),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.address,
            "LLMPRISM_PLACES__FLOWS": str(self.folder / FLOWS_PATTERN),
            "LLMPRISM_PLACES__TOPOLOGY": str(self.folder / "topology.csv"),
            "LLMPRISM_PLACES__WAREHOUSE": str(self.folder / "llmprism.duckdb"),
            "LLMPRISM_PLACES__READ_COPY": str(self.folder / "results.duckdb"),
            "LLMPRISM_DEMO_FOLDER": str(self.folder),
            # The feed drops whole files, each with the flows that start in its minute
            "LLMPRISM_WINDOW__WAITS_FOR_NEXT_FILE": "no",
            "LLMPRISM_WINDOW__QUIET_S": "0",
            "GX_ANALYTICS_ENABLED": "false",
        }

    def command(self, *words: str, scheduled: bool = True, shown: bool = False) -> None:
        """Run a command in the folder, with its variables; its output is shown if asked for, or if it fails.

        Raises
        ------
        LocalAirflowError : it failed
        """
        result = subprocess.run(
            words,
            env=dict(os.environ) | self.variables(scheduled=scheduled),
            cwd=self.folder,
            stdout=None if shown else subprocess.PIPE,
            stderr=None if shown else subprocess.STDOUT,
            text=True,
            check=False,
        )
        if result.returncode:
            raise LocalAirflowError(f"{' '.join(words)} ended with {result.returncode}\n{result.stdout or ''}")

    def migrate(self) -> None:
        """Make the metadata database, or bring it up to date."""
        (self.folder / "airflow").mkdir(parents=True, exist_ok=True)
        self.command("airflow", "db", "migrate")

    def prepare(self) -> None:
        """Make the metadata database, and store the DAGs in it."""
        self.migrate()
        self.command("airflow", "dags", "reserialize")

    def start(self, *, scheduled: bool) -> list[subprocess.Popen[bytes]]:
        """Start all of Airflow, whose database is there, in a process group of its own.

        The password that Airflow makes up ends in a file and in the log, so only this user can enter the folder.

        Returns
        -------
        the processes; they outlive this one until `stop`
        """
        self.folder.chmod(0o700)
        config = self.folder / "airflow" / "config"
        config.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(__file__).parent / "config" / "airflow_local_settings.py", config)
        processes: list[subprocess.Popen[bytes]] = []
        for part in PARTS:
            with self.log.open("ab") as log:
                process = subprocess.Popen(
                    ["airflow", *part],
                    env=dict(os.environ) | self.variables(scheduled=scheduled),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    process_group=processes[0].pid if processes else 0,
                    umask=0o077,
                )
            processes.append(process)
        noted = {"pids": [process.pid for process in processes], "port": self.port}
        _state(self.folder).write_text(json.dumps(noted), encoding="utf-8")
        return processes

    def wait_until_ready(self, *dags: str) -> None:
        """Return when the scheduler is alive and knows the DAGs.

        Raises
        ------
        LocalAirflowError : it ended, or took more than three minutes
        """
        deadline = time.monotonic() + STARTING_S
        while time.monotonic() < deadline:
            if running(self.folder) is None:
                raise LocalAirflowError(f"Airflow ended while it started; {self.log} says why.")
            with contextlib.suppress(LocalAirflowError, KeyError, FileNotFoundError):
                if self.ask("monitor/health")["scheduler"]["status"] == "healthy":
                    for dag in dags:
                        self.ask(f"dags/{dag}")
                    return
            time.sleep(0.5)
        raise LocalAirflowError(f"Airflow did not start within {STARTING_S:.0f} s; {self.log} says how far it came.")

    def login(self) -> tuple[str, str]:
        """Return the user and the password that Airflow made up at its first start."""
        passwords: dict[str, str] = json.loads(self.passwords.read_text(encoding="utf-8"))
        return next(iter(passwords.items()))

    def ask(self, path: str) -> dict[str, Any]:
        """Return the answer of Airflow's public REST API to a GET of `/api/v2/<path>`."""
        token = _token(self.address, *self.login())
        return _fetch(f"{self.address}/api/v2/{path}", headers={"Authorization": f"Bearer {token}"})

    def stop(self) -> None:
        """Ask the processes to stop, one after another, and wait; what has not ended in time is killed.

        Asked all at once, the triggerer waits for ever for its child.
        """
        group = running(self.folder)
        pids = [] if group is None else _noted(self.folder)["pids"]
        _state(self.folder).unlink(missing_ok=True)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            _wait_while(_lives, pid)
        if group is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
            _wait_while(_group_lives, group)


def _wait_while(lives: Callable[[int], bool], pid: int) -> None:
    """Return when it lives no more, or `STOPPING_S` have passed."""
    deadline = time.monotonic() + STOPPING_S
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.2)


@contextlib.contextmanager
def started(airflow: LocalAirflow, *, scheduled: bool) -> Iterator[None]:
    """Run an Airflow for the length of a block."""
    processes = airflow.start(scheduled=scheduled)
    try:
        yield
    finally:
        airflow.stop()
        for process in processes:
            process.wait()


@contextlib.contextmanager
def shown(airflow: LocalAirflow, variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run only the API server of an Airflow for the length of a block: it shows runs, and none is run.

    Parameters
    ----------
    variables : other than those of the folder

    Raises
    ------
    LocalAirflowError : it ended, or did not answer in time
    """
    known = os.environ | airflow.variables() | {"AIRFLOW__API__WORKERS": "1"} | dict(variables or {})
    with airflow.log.open("ab") as log:
        process = subprocess.Popen(["airflow", "api-server"], env=known, cwd=airflow.folder, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + STARTING_S
        while True:
            try:
                airflow.ask("version")
                break
            except (LocalAirflowError, FileNotFoundError):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOPPING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def attached(folder: Path) -> LocalAirflow:
    """Return the Airflow that runs in the folder.

    Raises
    ------
    LocalAirflowError : none does
    """
    if running(folder) is None:
        raise LocalAirflowError("No Airflow of the demo is running. Start it with: make up")
    return LocalAirflow(folder, _noted(folder)["port"])


def running(folder: Path) -> int | None:
    """Return the process group of the Airflow that runs in the folder, None if none does."""
    try:
        group = int(_noted(folder)["pids"][0])
    except FileNotFoundError:
        return None
    return group if _group_lives(group) else None


def free_ports(first: int = 8080) -> int:
    """Return the first port from `first` on that is free."""
    return next(port for port in range(first, 65_000, 10) if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _lives(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # a child of ours that ended would count as alive until it is asked for
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _group_lives(group: int) -> bool:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG) != (0, 0):
            pass
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _state(folder: Path) -> Path:
    return folder / "airflow.json"


def _noted(folder: Path) -> dict[str, Any]:
    """Return `pids`, of which the first leads the group, and `port`."""
    noted: dict[str, Any] = json.loads(_state(folder).read_text(encoding="utf-8"))
    return noted


@functools.cache
def _token(address: str, user: str, password: str) -> str:
    token: str = _fetch(f"{address}/auth/token", body={"username": user, "password": password})["access_token"]
    return token


def _fetch(
    url: str, *, body: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    request = urllib.request.Request(
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **(headers or {})},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
        raise LocalAirflowError(f"{url} did not answer as it should: {error}. Is Airflow still starting?") from error
