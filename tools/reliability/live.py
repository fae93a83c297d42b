"""A live feed as real collectors make it, with a scheduler that is away: in the end no minute and no record is missing.

The flows of each minute come to files by the time at which they are received: seconds after they end, some of them more
than a minute. Airflow runs with its own clock; nothing is scaled. Its scheduler is stopped for some minutes and started
again. What Airflow has not caught up in time is run by `llmprism due --run`. Then all tables are compared with those of
one `llmprism analyze` of all files.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from demo.local_airflow import LocalAirflow, free_ports, started
from llmprism_tasks.contract.tables import HISTORY, TABLES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.simulate.simulation import write_scenario
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from reliability.kills import SCENARIO

MINUTE_NS, SECOND_NS = 60 * 10**9, 10**9
LATE_SHARE, LATE_S = 0.02, (30.0, 85.0)
"""Records that come late, and by how much: within `window.allowed_lateness_s`, and beyond the next file."""

EXPORT_S = (0.0, 5.0)
"""How long an exporter holds a record after its end."""

AFTER = 3
"""Minutes after the last one in which late records still come."""

DAGS = ("llmprism_minute", "llmprism_catch_up", "llmprism_again")
MISSED = "llmprism_catch_up missed its deadline"
"""Part of the warning of `execution/deadline.py`."""

RUNS_OF_OTHERS = ("notifications", "mutes")


@dataclass(frozen=True)
class Live(LocalAirflow):
    """An Airflow whose files come by the time of receipt.

    Attributes
    ----------
    sinks : variables that name where messages and metrics go
    """

    sinks: Mapping[str, str] = field(default_factory=dict)

    def variables(self, *, scheduled: bool = True) -> dict[str, str]:
        """Return the variables of the demo's Airflow, with files that are rotated and metrics that are sent."""
        return super().variables(scheduled=scheduled) | {
            "LLMPRISM_WINDOW__WAITS_FOR_NEXT_FILE": "yes",
            "LLMPRISM_WINDOW__QUIET_S": "5",
            "LLMPRISM_PLACES__METRICS": str(self.folder / "llmprism.prom"),
            "LLMPRISM_DEMO_FOLDER": str(self.folder / "nobody"),
            **self.sinks,
        }


def measure(minutes: int, *, away: tuple[int, int], patience_s: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Run a live feed; returns what was missing meanwhile, who said so, and what differed in the end.

    Parameters
    ----------
    minutes : of the feed
    away : after how many minutes the scheduler is stopped, and for how many
    patience_s : how long Airflow may catch up after the feed's end
    """
    with tempfile.TemporaryDirectory(prefix="llmprism-live-") as name, _sinks() as (told, metrics, worst, sinks):
        folder = Path(name)
        airflow = Live(folder, free_ports(), sinks)
        airflow.prepare()
        airflow.command("airflow", "dags", "pause", "llmprism_demo_feed")
        airflow.command("airflow", "dags", "pause", "llmprism_maintenance")
        first = Window.containing(time.time_ns(), MINUTE_NS).shifted(3)
        files = _received(folder, first, minutes)
        with started(airflow, scheduled=True):
            airflow.wait_until_ready(*DAGS)
            say(f"ready; the feed begins with {first}")
            seen = _feed(airflow, files, away, say)
            end = time.monotonic() + patience_s
            while time.monotonic() < end and (states := _coverage(airflow))["done_of_feed"] < minutes:
                say(f"{states}")
                time.sleep(60)
            caught_up = _coverage(airflow)["done_of_feed"]
            took = [
                (datetime.fromisoformat(run["end_date"]) - datetime.fromisoformat(run["start_date"])).total_seconds()
                for dag in ("llmprism_minute", "llmprism_again")
                for run in airflow.ask(f"dags/{dag}/dagRuns?limit=100")["dag_runs"]
                if run["state"] == "success" and run["end_date"]
            ]
        say(f"Airflow has caught up {caught_up} of {minutes}; the rest by hand")
        subprocess.run(
            ["llmprism", "due", "--run"], env=os.environ | airflow.variables(), cwd=folder, check=False, timeout=3600
        )
        return {
            "minutes": minutes,
            "away": list(away),
            "caught_up": caught_up,
            "missing_after_outage": seen,
            "run_s": {"median": statistics.median(took), "longest": max(took)} if took else {},
            "told": sorted({message["pipeline"]["condition"] for message in told if "pipeline" in message}),
            "messages": [message.get("text", "") for message in told if "pipeline" in message],
            "missed_deadlines": _missed_deadlines(folder),
            "metrics": dict(metrics),
            "metrics_at_worst": dict(worst),
            "prometheus": (folder / "llmprism.prom").exists(),
            **_compared(airflow, first, minutes),
        }


def is_sound(found: Mapping[str, Any]) -> bool:
    """Return whether in the end every minute was done, every record counted, and the tables were those of one run."""
    return found["done"] == found["minutes"] and found["sent"] == found["counted"] and not found["differ"]


def sentence(found: Mapping[str, Any]) -> str:
    """Return what was found, in some sentences."""
    after, to = found["missing_after_outage"], found["run_s"]
    return (
        f"{found['minutes']} minutes, scheduler away for {found['away'][1]}; a run took {to.get('median', 0):.0f} s "
        f"(median, at most {to.get('longest', 0):.0f}). After the outage the report counted {after}; messages: "
        f"{', '.join(found['told']) or 'none'}; missed deadlines that the triggerer warned of: "
        f"{found['missed_deadlines']}; {len(found['metrics'])} metrics at the sink. By itself it caught up "
        f"{found['caught_up']}; in the end {found['done']} are done, {found['counted']:,} of {found['sent']:,} records "
        f"are counted, and tables that differ: {', '.join(found['differ']) or 'none'}."
    )


def _received(folder: Path, first: Window, minutes: int) -> dict[int, pl.DataFrame]:
    """Simulate flows; return them by the start of the minute in which they are received."""
    scenario = folder / "tiny.toml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    write_scenario(folder / "sent", scenario=str(scenario), minutes=minutes, seed=0, start_ns=first.start_ns)
    (folder / "sent" / "topology.csv").rename(folder / "topology.csv")
    (folder / "flows").mkdir()
    sent = pl.concat([pl.read_parquet(file) for file in sorted((folder / "sent" / "flows").iterdir())])
    draw = random.Random(0)
    delays = [draw.uniform(*(LATE_S if draw.random() < LATE_SHARE else EXPORT_S)) for _ in range(sent.height)]
    at = sent["flow_end_ns"] + (pl.Series(delays) * SECOND_NS).cast(pl.Int64)
    received = sent.with_columns(received_ns=at - at % MINUTE_NS)
    return {
        first.shifted(number).start_ns: received.filter(pl.col("received_ns") == first.shifted(number).start_ns).drop(
            "received_ns"
        )
        for number in range(minutes + AFTER)
    }


def _feed(
    airflow: LocalAirflow, files: Mapping[int, pl.DataFrame], away: tuple[int, int], say: Callable[[str], None]
) -> dict[str, Any]:
    """Write each minute's file when it has ended, and stop and start the scheduler; return what it counted after."""
    seen: dict[str, Any] = {}
    pids: list[int] = json.loads((airflow.folder / "airflow.json").read_text(encoding="utf-8"))["pids"]
    for number, (start_ns, records) in enumerate(sorted(files.items())):
        time.sleep(max((start_ns + MINUTE_NS - time.time_ns()) / SECOND_NS, 0))
        place = airflow.folder / "flows" / f"{Window(start_ns, MINUTE_NS).start:%Y%m%dT%H%M}.parquet"
        records.write_parquet(place.with_suffix(".part"))
        place.with_suffix(".part").rename(place)
        say(f"minute {number}: {records.height} records")
        if number + 1 == away[0]:
            _wait_for_stock_taking(airflow)
            os.kill(pids[0], signal.SIGTERM)
            say("the scheduler is stopped")
        if number + 1 == sum(away):
            seen = _coverage(airflow)
            say(f"the scheduler starts again; {seen}")
            _start_scheduler(airflow, pids)
    return seen


def _wait_for_stock_taking(airflow: LocalAirflow) -> None:
    """Wait until stock is being taken: that run's deadline passes while the scheduler is away."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        runs = airflow.ask("dags/llmprism_catch_up/dagRuns?order_by=-run_after&limit=5")["dag_runs"]
        if any(run["state"] in ("queued", "running") for run in runs):
            return
        time.sleep(0.2)


def _missed_deadlines(folder: Path) -> int:
    """Count the missed deadlines that the triggerer has warned of."""
    logs = [folder / "airflow.log", *(folder / "airflow" / "logs").rglob("*.log")]
    texts = (log.read_text(encoding="utf-8", errors="replace") for log in logs if log.exists())
    return sum(line.count(MISSED) for text in texts for line in text.splitlines())


def _start_scheduler(airflow: LocalAirflow, pids: list[int]) -> None:
    with airflow.log.open("ab") as log:
        process = subprocess.Popen(
            ["airflow", "scheduler", "--skip-serve-logs"],
            env=dict(os.environ) | airflow.variables(),
            cwd=airflow.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=pids[0],
        )
    noted = {"pids": [pids[0], process.pid, *pids[1:]], "port": airflow.port}
    (airflow.folder / "airflow.json").write_text(json.dumps(noted), encoding="utf-8")


def _coverage(airflow: LocalAirflow) -> dict[str, Any]:
    """Return what `llmprism report` says of the minutes now."""
    query = "SELECT window_start_ns FROM windows WHERE status = 'done' AND rows_read > 0"
    finished = _asked(airflow, "sql", "--live", query) or []
    waiting = {one["window"] for one in (_asked(airflow, "due") or {"windows": []})["windows"]}
    done = [row for row in finished if str(Window(row["window_start_ns"], 1)) not in waiting]
    report = _asked(airflow, "report", "--live")
    return {"coverage": report["coverage"] if report else {}, "done_of_feed": len(done)}


def _asked(airflow: LocalAirflow, *words: str) -> Any:
    """Return the JSON that a command prints; None if it fails, as before there is a warehouse."""
    done = subprocess.run(
        ["llmprism", *words, "--format", "json"],
        env=os.environ | airflow.variables(),
        cwd=airflow.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout) if done.returncode == 0 else None


def _compared(airflow: LocalAirflow, first: Window, minutes: int) -> dict[str, Any]:
    """Analyze all files at once, and compare the feed's windows in all tables."""
    straight = airflow.folder / "straight.duckdb"
    known = os.environ | airflow.variables()
    own = {name: value for name, value in known.items() if not name.startswith("LLMPRISM_")}
    places = {f"--{name}": airflow.variables()[f"LLMPRISM_PLACES__{name.upper()}"] for name in ("flows", "topology")}
    words = [word for pair in places.items() for word in pair]
    command = ["llmprism", "analyze", *words, "--warehouse", str(straight)]
    subprocess.run(command, env=own, cwd=airflow.folder, check=True, capture_output=True)
    live, expected = (
        open_warehouse(Warehouse(place, lock_wait_s=60))
        for place in (airflow.variables()["LLMPRISM_PLACES__WAREHOUSE"], str(straight))
    )
    span = f"window_start_ns >= {first.start_ns} AND window_start_ns < {first.shifted(minutes).start_ns}"
    differ = []
    for table in TABLES:
        if "window_start_ns" not in table.column_names or table.name in RUNS_OF_OTHERS:
            continue
        left, right = (
            store.query(one, f"SELECT * FROM {table.name} WHERE {span}").drop(HISTORY.get(table.name, ()), strict=False)
            for one in (live, expected)
        )
        if not left.sort(pl.all(), nulls_last=True).equals(right.sort(pl.all(), nulls_last=True)):
            differ.append(f"{table.name} ({left.height} rows, {right.height} expected)")
    done = f"SELECT count(*) FROM windows WHERE status = 'done' AND {span}"
    counted = f"SELECT sum(rows_landed + rows_quarantined)::BIGINT FROM windows WHERE {span}"
    sent = sum(pl.read_parquet(file).height for file in (airflow.folder / "flows").glob("*.parquet"))
    return {
        "done": store.query(live, done).item(),
        "counted": store.query(live, counted).item(),
        "sent": sent,
        "differ": differ,
    }


@contextlib.contextmanager
def _sinks() -> Iterator[tuple[list[dict[str, Any]], dict[str, float], dict[str, float], dict[str, str]]]:
    """Receive messages of the webhook, and metrics of StatsD: the last ones, and those when most windows were due."""
    told: list[dict[str, Any]] = []
    metrics: dict[str, float] = {}
    worst: dict[str, float] = {}

    class Sink(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    def receive(statsd: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                for line in statsd.recv(65_536).decode(errors="replace").splitlines():
                    name, _, said = line.partition(":")
                    value, _, kind = said.partition("|")
                    if "llmprism." in name and "." not in name.partition("llmprism.")[2]:
                        metrics[name] = float(value) + (metrics.get(name, 0.0) if kind.startswith("c") else 0.0)
                        if name.endswith(".windows_due") and metrics[name] >= worst.get(name, 0.0):
                            worst.update(metrics)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", 0))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=receive, args=(statsd,), daemon=True).start()
        yield (
            told,
            metrics,
            worst,
            {
                "LLMPRISM_NOTIFY__WEBHOOK": f"http://127.0.0.1:{server.server_port}/",
                "AIRFLOW__METRICS__STATSD_ON": "True",
                "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
                "AIRFLOW__METRICS__STATSD_PORT": str(statsd.getsockname()[1]),
            },
        )
        server.shutdown()
