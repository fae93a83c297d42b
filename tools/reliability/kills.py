"""Kill `llmprism analyze` at random moments, run it again, and compare all tables with those of an undisturbed run."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from llmprism_tasks.simulate.simulation import write_scenario
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.lake.attach import LAKE
from llmprism_tasks.warehouse.upkeep import space
from reliability.tables import digests

LOCATIONS = {"file": "w.duckdb", "lake": "ducklake:w.ducklake"}
MINUTES, START_NS = 2, 1_767_225_600 * 10**9
PROCESSES = multiprocessing.get_context("forkserver")
"""Each run is a process of its own, forked from one that has imported what all need: imports are half of a run."""

SCENARIO = """
[fabric]
hosts = 6
gpus_per_host = 2
hosts_per_leaf = 2
spines = 2

[[jobs]]
name = "it"
hosts = [0, 1, 2, 3]
tp = 2
pp = 2
dp = 2
layers = 4
hidden = 1024
forward_ms = 60
"""


def measure(warehouse: str, runs: int, *, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Disturb some runs; returns how many were killed, and what was different or left behind after the next run.

    Parameters
    ----------
    warehouse : one of `LOCATIONS`
    """
    PROCESSES.set_forkserver_preload(["llmprism_tasks.cli", "reliability.preloaded"])
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs"
        scenario = Path(folder) / "tiny.toml"
        scenario.write_text(SCENARIO, encoding="utf-8")
        write_scenario(inputs, scenario=str(scenario), minutes=MINUTES, seed=seed, start_ns=START_NS)
        took = []
        for number in range(3):
            began = time.monotonic()
            wanted = _whole(warehouse, Path(folder) / f"undisturbed-{number}", inputs)
            took.append(time.monotonic() - began)
        duration = statistics.median(took)
        say(f"undisturbed: {duration:.1f} s")
        found: dict[str, Any] = {
            "warehouse": warehouse,
            "seeds": [seed],
            "runs": runs,
            "killed": 0,
            "failed": 0,
            "differ": [],
            "left": [],
        }
        for number in range(runs):
            place = Path(folder) / str(number)
            killed = _killed(warehouse, place, inputs, draw.uniform(0, duration))
            found["killed"] += killed
            try:
                tables = _whole(warehouse, place, inputs)
            except RuntimeError as error:
                found["failed"] += 1
                say(f"seed {seed}, run {number}: {error}")
                continue
            different = sorted(name for name in wanted if tables.get(name) != wanted[name])
            left = sorted(path.name for path in (place / "tmp").rglob("*") if path.is_file())
            if killed and LOCATIONS[warehouse].startswith(LAKE):
                left += _unknown_to_the_lake(LOCATIONS[warehouse], place)
            found["differ"] += [f"seed {seed}, run {number}: {', '.join(different)}"] if different else []
            found["left"] += [f"seed {seed}, run {number}: {', '.join(left)}"] if left else []
            if different or left:
                say(f"seed {seed}, run {number}: tables that differ: {different}, left behind: {left}")
            shutil.rmtree(place)
            if (number + 1) % 10 == 0:
                say(f"{number + 1} of {runs}")
    return found


def is_sound(found: Mapping[str, Any]) -> bool:
    """Return whether every run that was made again ended as an undisturbed one, with nothing left behind."""
    return not (found["differ"] or found["left"] or found["failed"])


def sentence(found: Mapping[str, Any]) -> str:
    """Return what was found, in one sentence."""
    return (
        f"{found['warehouse']}: {found['runs']} runs, {found['killed']} killed before their end. After the next run, "
        f"{len(found['differ'])} had tables that differ, {len(found['left'])} left files behind, and "
        f"{found['failed']} had failed."
    )


def _whole(warehouse: str, place: Path, inputs: Path) -> dict[str, str]:
    """Run an analysis to its end, and return the digests of its tables."""
    process = _started(warehouse, place, inputs)
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"the analysis ended with {process.exitcode}: {(place / 'said').read_text()[-400:]}")
    with contextlib.chdir(place):
        return digests(LOCATIONS[warehouse])


def _killed(warehouse: str, place: Path, inputs: Path, after_s: float) -> bool:
    """Kill an analysis, and all processes that it started, after some seconds; returns whether it was still running."""
    process = _started(warehouse, place, inputs)
    process.join(after_s)
    if not process.is_alive():
        return False
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGKILL)
    process.join()
    return True


def _unknown_to_the_lake(location: str, place: Path) -> list[str]:
    """Give back the space of what was replaced, and return the data files that still belong to no table."""
    with contextlib.chdir(place):
        warehouse = Warehouse(location, lock_wait_s=60)
        space.give_back(warehouse, old_s=0)
        there = {path.name for path in Path(f"{location.removeprefix(LAKE)}.files").rglob("*.parquet")}
        with warehouse.reading() as connection:
            known = connection.execute(
                "SELECT path FROM __ducklake_metadata_lake.ducklake_data_file "
                "UNION ALL SELECT path FROM __ducklake_metadata_lake.ducklake_delete_file"
            ).fetchall()
    return sorted(there - {Path(path).name for (path,) in known})


def _started(warehouse: str, place: Path, inputs: Path) -> Any:
    (place / "tmp").mkdir(parents=True, exist_ok=True)
    process = PROCESSES.Process(target=_analyze, args=(LOCATIONS[warehouse], place, inputs))
    process.start()
    return process


def _analyze(location: str, place: Path, inputs: Path) -> None:
    """Run the command as a process of its own does: in its folder, with its own folder for temporary files."""
    from llmprism_tasks.cli import main  # noqa: PLC0415 - imported by the process that this one was forked from

    os.chdir(place)
    os.environ["TMPDIR"] = tempfile.tempdir = str(place / "tmp")
    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    words = ["analyze", "--flows", str(inputs / "flows"), "--topology", str(inputs / "topology.csv")]
    raise SystemExit(main([*words, "--warehouse", location]))
