"""The commands behind `make demo`, `make up`, `make down` and `make latency`."""

from __future__ import annotations

import argparse
import shlex
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from demo.local_airflow import (
    FLOWS_PATTERN,
    PROJECT,
    LocalAirflow,
    LocalAirflowError,
    attached,
    free_ports,
    running,
    started,
)
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.simulate import write_minute

FOLDER = PROJECT / ".demo"
DAG, FEED = "llmprism_minute", "llmprism_demo_feed"
FIRST, LAST, MINUTES = "2026-05-01T04:00:00", "2026-05-01T04:09:00", 10
MINUTE_NS = 60_000_000_000
PATIENCE_S = 900
console = Console(highlight=False)


def replay() -> None:
    """Simulate ten minutes, run each through Airflow, show what was found."""
    if running(FOLDER) is not None:
        raise LocalAirflowError("The demo's Airflow is running. Stop it first with: make down")
    make_room(FOLDER)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:5.0f} s[/]  {text}", soft_wrap=True)

    FOLDER.mkdir()
    airflow = LocalAirflow(FOLDER, free_ports())
    say(f"simulating {MINUTES} minutes of flows, making Airflow's database")
    airflow.command("llmprism", "simulate", "--out", ".", "--start", FIRST, "--minutes", str(MINUTES))
    airflow.prepare()
    say(f"asking for a backfill of {DAG} from {FIRST} to {LAST}, starting Airflow")
    airflow.command(  # before the scheduler is there: SQLite has no room for two that write
        "airflow", "backfill", "create", "--dag-id", DAG,
        "--from-date", FIRST, "--to-date", LAST, "--max-active-runs", "2",
    )  # fmt: skip
    with started(airflow, scheduled=False):
        airflow.wait_until_ready(DAG)
        say("Airflow is ready")
        failed = follow(airflow, say)
    if failed:
        raise LocalAirflowError(
            f"{len(failed)} of {MINUTES} runs failed: {', '.join(failed)}; see {FOLDER.name}/airflow/logs"
        )
    say("done; the report:")
    airflow.command("llmprism", "report", shown=True)
    console.print(
        f"The same in a browser: .venv/bin/llmprism serve --warehouse {FOLDER.name}/llmprism.duckdb", soft_wrap=True
    )


def follow(airflow: LocalAirflow, say: Callable[[str], None]) -> list[str]:
    """Print each backfill run when it ends; return the windows whose run failed."""
    ended: dict[str, str] = {}
    deadline = time.monotonic() + PATIENCE_S
    while len(ended) < MINUTES:
        if time.monotonic() > deadline:
            raise LocalAirflowError(f"After {PATIENCE_S} s only {len(ended)} runs have ended; {airflow.log} says why.")
        for run in runs(airflow, "backfill"):
            window, state = run["data_interval_start"][:16], run["state"]
            if state in {"success", "failed"} and window not in ended:
                ended[window] = state
                took = (moment(run["end_date"]) - moment(run["start_date"])).total_seconds()
                say(f"window {window}Z: {state}, in {took:.1f} s")
        time.sleep(1)
    return [window for window, state in ended.items() if state != "success"]


def up() -> None:
    """Start Airflow with a live feed, and say where it is and how to log in."""
    if running(FOLDER) is None:
        if replayed(FOLDER):
            console.print(f"What make demo left in {FOLDER.name} makes room for the live feed")
            shutil.rmtree(FOLDER)
        console.print("Airflow is starting; half a minute, more on a busy machine or the first time")
        FOLDER.mkdir(exist_ok=True)
        airflow = LocalAirflow(FOLDER, free_ports())
        # The first run finds a topology, however late the feed is.
        write_minute(FOLDER, scenario="demo", window=Window.containing(time.time_ns(), MINUTE_NS).shifted(-1), seed=0)
        airflow.migrate()
        airflow.start(scheduled=True)
    airflow = attached(FOLDER)
    airflow.wait_until_ready(DAG, FEED)
    user, password = airflow.login()
    console.print(f"Airflow  [bold]{airflow.address}[/]  user [bold]{user}[/]  password [bold]{password}[/]")
    console.print(
        "One minute of simulated flows arrives every minute and is diagnosed; a GPU is slow in minutes 4 to 9 of ten, "
        "and a leaf switch in minutes 6 to 9."
    )
    console.print(
        "Findings: *LLMPrism* in Airflow's navigation, or make report    Delays: make latency    Stop: make down"
    )


def replayed(folder: Path) -> bool:
    """Tell whether a folder is one that `replay` left: beside its old minutes, live ones would look much too late."""
    return (folder / FLOWS_PATTERN.format(window=datetime.fromisoformat(FIRST))).exists()


def make_room(folder: Path) -> None:
    """Delete what an earlier `replay` left, which simulates the same again.

    Raises
    ------
    LocalAirflowError : the folder holds flows of the live feed, which nobody can make again
    """
    if any(folder.glob("flows/*")) and not replayed(folder):
        raise LocalAirflowError(
            f"{folder.name} holds the flows and results of make up, which make demo would delete. To keep them, rename "
            f"the folder: mv {folder.name} {folder.name}-live. Otherwise delete it: rm -r {folder.name}. "
            "Then run make demo again."
        )
    shutil.rmtree(folder, ignore_errors=True)


def down() -> None:
    """Stop Airflow; its folder stays."""
    if running(FOLDER) is not None:
        attached(FOLDER).stop()
    console.print(f"Stopped. Flows, warehouse and logs are still in {FOLDER.name}/")


def report() -> None:
    """Show what the runs have found so far."""
    LocalAirflow(FOLDER, 0).command("llmprism", "report", shown=True)


def latency() -> None:
    """Print, for each scheduled run, when after its window's end the diagnoses were written, and the median."""
    airflow = attached(FOLDER)
    table = Table(
        "window (UTC)", "run", "started", "flows there", "diagnoses written", title="seconds after window's end"
    )
    delays = []
    for run in runs(airflow, "scheduled"):
        end = moment(run["data_interval_end"])
        ended = {
            task["task_id"]: (moment(task["end_date"]) - end).total_seconds()
            for task in airflow.ask(f"dags/{DAG}/dagRuns/{run['dag_run_id']}/taskInstances")["task_instances"]
            if task["state"] == "success"
        }
        started = (moment(run["start_date"]) - end).total_seconds() if run["start_date"] else None
        times = (started, ended.get("await_flows"), ended.get("diagnosis"))
        delays += [times[2]] if times[2] is not None else []
        table.add_row(
            run["data_interval_start"][:16], run["state"], *("" if value is None else f"{value:.1f}" for value in times)
        )
    console.print(table)
    if delays:
        console.print(f"median {statistics.median(delays):.1f} s, longest {max(delays):.1f} s, of {len(delays)} runs")


def runs(airflow: LocalAirflow, kind: str) -> list[dict[str, Any]]:
    """Return the minute DAG's last hundred runs of a kind (scheduled, backfill), the oldest first."""
    newest_first: list[dict[str, Any]] = airflow.ask(
        f"dags/{DAG}/dagRuns?run_type={kind}&order_by=-run_after&limit=100"
    )["dag_runs"]
    return newest_first[::-1]


def moment(text: str) -> datetime:
    """Read a time in ISO format."""
    return datetime.fromisoformat(text)


def environment() -> None:
    """Print the demo's variables for a shell: eval "$(make env)"."""
    port = attached(FOLDER).port if running(FOLDER) is not None else 0
    for name, value in LocalAirflow(FOLDER, port).variables().items():
        sys.stdout.write(f"export {name}={shlex.quote(value)}\n")


def main() -> int:
    """Run a command line; returns the exit code."""
    commands: dict[str, Callable[[], None]] = {
        "replay": replay, "up": up, "down": down, "report": report, "latency": latency,
        "env": environment,
    }  # fmt: skip
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("command", choices=commands)
    try:
        commands[parser.parse_args().command]()
    except LocalAirflowError as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
