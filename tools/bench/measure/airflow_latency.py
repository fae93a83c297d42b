"""Scheduled minutes of a real Airflow: when after a window's end its diagnoses are written, and what that goes to."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from bench.measure.cold_start import CAPTURE
from bench.measure.process_cost import ProcessFailed, command, run
from bench.platforms.minutes import FLOWS_PATTERN, FOLDER, MINUTE_NS, Platform, Say, simulated
from bench.platforms.mixes import LOOP_MINUTES
from demo.__main__ import DAG, FEED, moment, runs
from demo.local_airflow import LocalAirflow, free_ports, started
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings.load import load

Figures = dict[str, Any]
STARTING_S = 90
"""Until Airflow has begun to schedule, and the minute after it."""

PATIENCE_S = 300
"""For the last run, after its window's end."""

WRITING = ("diagnosis", "finish")
"""The task that writes diagnoses; where there is none of that name, the last one has."""


def scheduled_minutes(platform: Platform, minutes: int, say: Say) -> Figures:
    """Let a real Airflow run some minutes of a platform as they pass, each after its flows were dropped at its end.

    The look-back before the first is there from the beginning, so that all windows have all of it. How long it is can
    be set as anywhere: by LLMPRISM_WINDOW__LOOKBACK_WINDOWS.

    Returns
    -------
    `runs` : of each window, seconds from its end to the diagnoses (`written_s`), and what `_spent` says they went to
    `median_s` : of `written_s`
    `lookback` : windows
    """
    back = load(environment=os.environ).window.lookback_windows
    simulated(platform, LOOP_MINUTES, say)
    folder = FOLDER / f"airflow-{platform.gpus}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run(_capture_analysed(folder))  # so that kernels are compiled
    airflow = LocalAirflow(folder, free_ports())
    say("making Airflow's database")
    airflow.prepare()
    airflow.command("airflow", "dags", "pause", FEED, "--yes")
    windows = _staged(platform, folder, back, minutes, say)
    with started(airflow, scheduled=True):
        feed = threading.Thread(target=_drop, args=(folder, windows, say), daemon=True)
        feed.start()
        airflow.wait_until_ready(DAG)
        rows = _followed(airflow, windows, say)
        spent = [_spent(airflow, row, folder) for row in rows]
    shutil.rmtree(folder / "flows")
    if not spent:
        raise ProcessFailed(f"None of {minutes} scheduled runs ended well; {airflow.log} says why.")
    return {
        "gpus": platform.gpus,
        "mix": platform.mix,
        "lookback": back,
        "runs": spent,
        "median_s": statistics.median(one["written_s"] for one in spent),
    }


def _staged(platform: Platform, folder: Path, back: int, minutes: int, say: Say) -> list[Window]:
    """Write the minutes' files as those of minutes to come, the look-back in place; returns the windows to come.

    The minutes of one loop of the simulation come again and again: its steps go on from one loop to the next.
    """
    (folder / "flows").mkdir()
    (folder / "staged").mkdir()
    shutil.copy(platform.topology, folder / "topology.csv")
    began = time.monotonic()
    moved(platform, 0, Window(0, MINUTE_NS), folder / "staged" / "tried.parquet")
    takes_s = 1.3 * (time.monotonic() - began) * (back + minutes) + STARTING_S
    first = Window.containing(time.time_ns() + round(takes_s * 1e9), MINUTE_NS)
    say(f"moving {back + minutes} minutes to the clock; the first ends at {first.shifted(1).start:%H:%M} UTC")
    windows = [first.shifted(at) for at in range(-back, minutes)]
    for at, window in enumerate(windows):
        place = folder if at < back else folder / "staged"
        (place / "flows").mkdir(exist_ok=True)
        moved(platform, at % LOOP_MINUTES, window, _file(place, window))
    return windows[back:]


def moved(platform: Platform, minute: int, window: Window, file: Path) -> None:
    """Write a minute's records with their times moved to another window."""
    start, end = pl.col("flow_start_ns"), pl.col("flow_end_ns")
    of = Window(
        pl.scan_parquet(platform.flows(minute)).select(start.min()).collect().item() // MINUTE_NS * MINUTE_NS, 1
    )
    ahead = window.start_ns - of.start_ns
    pl.scan_parquet(platform.flows(minute)).with_columns(start + ahead, end + ahead).sink_parquet(file)


def _file(folder: Path, window: Window) -> Path:
    return folder / FLOWS_PATTERN.format(window=window.start)


def _capture_analysed(folder: Path) -> list[str]:
    places = ["--flows", CAPTURE / "flows.parquet", "--topology", CAPTURE / "topology.csv"]
    return [command("llmprism"), "analyze", *map(str, places), "--warehouse", str(folder / "capture.duckdb")]


def _drop(folder: Path, windows: Sequence[Window], say: Say) -> None:
    """Put each window's file in its place as the window ends."""
    for window in windows:
        time.sleep(max(0.0, window.end_ns / 1e9 - time.time()))
        _file(folder / "staged", window).rename(_file(folder, window))
        say(f"window {window}: flows dropped")


def _followed(airflow: LocalAirflow, windows: Sequence[Window], say: Say) -> list[Figures]:
    """Wait until the windows' runs ended; returns those that succeeded, as Airflow's API has them."""
    starts = {window.start_ns for window in windows}
    deadline = windows[-1].end_ns / 1e9 + PATIENCE_S
    told: set[str] = set()
    while True:
        there = [row for row in runs(airflow, "scheduled") if _start_ns(row) in starts]
        ended = [row for row in there if row["state"] in {"success", "failed"}]
        for row in ended:
            if row["dag_run_id"] not in told:
                told.add(row["dag_run_id"])
                say(f"{row['data_interval_start'][:16]}: {row['state']}")
        if len(ended) == len(windows) or time.time() > deadline:
            return [row for row in ended if row["state"] == "success"]
        time.sleep(5)


def _start_ns(row: Mapping[str, Any]) -> int:
    return round(moment(row["data_interval_start"]).timestamp()) * 10**9


def _spent(airflow: LocalAirflow, row: Mapping[str, Any], folder: Path) -> Figures:
    """Return what a run's time went to, in seconds.

    Returns
    -------
    `created_s` : from the window's end to the run's start
    `working_s`, `between_s` : from then to the diagnoses, while at least one task ran, and while none did
    `written_s` : from the window's end to the diagnoses, the sum of these
    `computing_s` : what the stages took by themselves, as the table `windows` has it
    `tasks_s` : of each task, in their order, the time it ran; of one that was mapped, the longest
    """
    end = moment(row["data_interval_end"])
    tasks = airflow.ask(f"dags/{DAG}/dagRuns/{row['dag_run_id']}/taskInstances?limit=1000")["task_instances"]
    done = [task for task in tasks if task["state"] == "success"]
    ends = {task["task_id"]: moment(task["end_date"]) for task in done}
    written = next(ends[name] for name in WRITING if name in ends)
    created = moment(row["start_date"])
    working_s = sum((min(last, written) - first).total_seconds() for first, last in _together(done) if first < written)
    return {
        "window": row["data_interval_start"],
        "created_s": (created - end).total_seconds(),
        "working_s": working_s,
        "between_s": (written - created).total_seconds() - working_s,
        "written_s": (written - end).total_seconds(),
        "computing_s": _computing_s(folder, _start_ns(row)),
        "tasks_s": _each(done),
    }


def _each(tasks: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    longest: dict[str, float] = {}
    for task in sorted(tasks, key=lambda task: moment(task["end_date"])):
        took_s = (moment(task["end_date"]) - moment(task["start_date"])).total_seconds()
        longest[task["task_id"]] = max(longest.get(task["task_id"], 0.0), took_s)
    return longest


def _together(tasks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[datetime, datetime]]:
    """Yield the spans in which at least one of the tasks ran."""
    spans = sorted((moment(task["start_date"]), moment(task["end_date"])) for task in tasks)
    first, last = spans[0]
    for start, end in spans[1:]:
        if start > last:
            yield first, last
            first, last = start, end
        last = max(last, end)
    yield first, last


def _computing_s(folder: Path, start_ns: int) -> float:
    query = f"SELECT stage_ns FROM windows WHERE window_start_ns = {start_ns}"
    words = ["sql", query, "--format", "json", "--warehouse", str(folder / "llmprism.duckdb")]
    (found,) = json.loads(run([command("llmprism"), *words]).said)
    return float(sum(json.loads(found["stage_ns"]).values())) / 1e9
