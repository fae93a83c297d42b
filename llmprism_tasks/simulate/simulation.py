"""A scenario simulated and written: whole spans with their truth, or single minutes of a feed without end."""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.simulate.collector.flow_records import MERGING_NS, flow_records
from llmprism_tasks.simulate.network.topology import topology
from llmprism_tasks.simulate.scenario.lifecycle import Allocation
from llmprism_tasks.simulate.scenario.scenario import Scenario
from llmprism_tasks.simulate.scenario.scenario_file import load_scenario
from llmprism_tasks.simulate.steps.job_model import JobModel, job_model
from llmprism_tasks.simulate.traffic.runs import Run, allocation_run, loop_run, straight_run
from llmprism_tasks.simulate.truth.tables import truth

MINUTE_NS = 60 * NANOSECONDS_PER_SECOND
FILE_NAME = "%Y%m%dT%H%M"


@dataclass(frozen=True)
class Simulation:
    """What a simulated span holds: flows in the contract's columns, sorted by start, the NICs, and the truth."""

    flows: pl.DataFrame
    topology: pl.DataFrame
    truth: dict[str, pl.DataFrame]


def simulate(scenario: Scenario, *, minutes: int, seed: int, start_ns: int) -> Simulation:
    """Simulate a span; the same arguments give the same rows.

    A flow is in the span in which it starts. Jobs were already running when the span begins.

    Raises
    ------
    SettingsError : fewer minutes than one, or a negative seed or start
    """
    by_minute, true = _span(scenario, minutes=minutes, seed=seed, start_ns=start_ns)
    return Simulation(
        flows=pl.concat([flows for _, flows in by_minute]), topology=topology(scenario.fabric), truth=true
    )


def _span(
    scenario: Scenario, *, minutes: int, seed: int, start_ns: int
) -> tuple[Iterator[tuple[Window, pl.DataFrame]], dict[str, pl.DataFrame]]:
    """Return a span's flows, minute by minute and made only when asked for, and its truth."""
    if minutes < 1 or start_ns < 0:
        raise SettingsError(
            found=f"a simulation of {minutes} minutes from {start_ns} ns",
            expected="at least one minute, and a start of at least 0",
            todo="Correct the arguments.",
        )
    span = Window(start_ns, minutes * MINUTE_NS)
    models = _models(scenario, seed)
    runs = _straight(scenario, models, span, seed)
    windows = (Window(start_ns + minute * MINUTE_NS, MINUTE_NS) for minute in range(minutes))
    by_minute = ((window, flow_records(scenario, models, runs, window, seed)) for window in windows)
    there = [run for several in runs for run in several]
    return by_minute, truth(scenario, there, start_ns=span.start_ns, end_ns=span.end_ns, seed=seed)


def simulate_minute(scenario: Scenario, *, window: Window, seed: int) -> pl.DataFrame:
    """Return the flows of one window of an endless run that began at the epoch.

    Faults come and go with each loop of `loop_minutes`; jobs go on from loop to loop. Any window can be made alone.
    """
    loop_ns = scenario.loop_minutes * MINUTE_NS
    models = _models(scenario, seed)
    # A job's loops start up to one step before the clock's, so the next loop may reach into this window.
    loops = range(max(0, window.start_ns - MERGING_NS) // loop_ns, window.end_ns // loop_ns + 2)
    runs = [
        [run for run in several if run.start_ns[-1] > window.start_ns - MERGING_NS and run.arrived_ns < window.end_ns]
        for several in _looping(scenario, models, loops, seed)
    ]
    return flow_records(scenario, models, runs, window, seed)


def write_scenario(out: Path, *, scenario: str, minutes: int, seed: int, start_ns: int) -> dict[str, int]:
    """Simulate a scenario and write its flows, topology and truth.

    Parameters
    ----------
    out : folder for `flows/<minute>.parquet` (one per minute, by flow start), `topology.csv` and `truth/`
    scenario : the name of a preset or the path of a scenario file
    start_ns : start of the span, a whole minute

    Returns
    -------
    number of flows, jobs, pairs, steps and faults

    Raises
    ------
    SettingsError : a scenario or an argument that cannot be used, or a folder with other minutes in it
    """
    if start_ns % MINUTE_NS:
        raise SettingsError(
            found=f"a start at {start_ns} ns", expected="a whole minute", todo="Round the start to the minute."
        )
    loaded, count = load_scenario(scenario), 0
    by_minute, true = _span(loaded, minutes=minutes, seed=seed, start_ns=start_ns)
    _check_folder(out, Window(start_ns, minutes * MINUTE_NS))
    for window, flows in by_minute:
        _write(out / "flows" / f"{window.start:{FILE_NAME}}.parquet", flows.write_parquet)
        count += flows.height
    _write(out / "topology.csv", topology(loaded.fabric).write_csv)
    for name, table in true.items():
        if name == "layouts":
            _write(out / "truth" / "layouts.csv", table.write_csv)
        else:
            _write(out / "truth" / f"{name}.parquet", table.write_parquet)
    return {
        "flows": count,
        "jobs": true["truth_jobs"]["job"].n_unique(),
        "pairs": true["truth_pairs"].height,
        "steps": true["truth_steps"].height,
        "faults": true["truth_faults"].height,
    }


def _check_folder(out: Path, span: Window) -> None:
    """Raise where minutes of another span would allocation beside those of this one, as if they were one run."""
    minutes = range(span.start_ns, span.end_ns, MINUTE_NS)
    written = {f"{Window(start, MINUTE_NS).start:{FILE_NAME}}.parquet" for start in minutes}
    others = sorted(file.name for file in (out / "flows").glob("*.parquet") if file.name not in written)
    if others:
        raise SettingsError(
            found=f"{out / 'flows'} with other minutes in it, such as {others[0]}",
            expected="an empty folder, or one with minutes of this span alone",
            todo="Remove that folder, or name another.",
        )


def write_minute(folder: Path, *, scenario: str, window: Window, seed: int) -> Path:
    """Write one window of a feed without end to `flows/<minute>.parquet`, and `topology.csv` if it is missing.

    The same scenario, window and seed give the same file, whatever was written before. Files appear whole.

    Raises
    ------
    SettingsError : a scenario that cannot be used
    """
    loaded = load_scenario(scenario)
    flows = simulate_minute(loaded, window=window, seed=seed)
    if not (folder / "topology.csv").exists():
        _write(folder / "topology.csv", topology(loaded.fabric).write_csv)
    return _write(folder / "flows" / f"{window.start:{FILE_NAME}}.parquet", flows.write_parquet)


def _models(scenario: Scenario, seed: int) -> list[JobModel]:
    """Build every allocation's model; a job that comes back has new queue pairs."""
    if seed < 0:
        raise SettingsError(found=f"seed {seed}", expected="a whole number of at least 0", todo="Correct the seed.")

    def model(allocation: Allocation) -> JobModel:
        there = tuple(allocation.job if job.name == allocation.job.name else job for job in scenario.jobs)
        own_seed = zlib.crc32(f"{seed} {allocation.number}".encode()) if allocation.number else seed
        return job_model(dataclasses.replace(scenario, jobs=there), allocation.index, own_seed)

    return [model(allocation) for allocation in scenario.allocations]


def _straight(scenario: Scenario, models: Sequence[JobModel], span: Window, seed: int) -> list[list[Run]]:
    """Run every allocation through a span, as far as it touches it."""
    span_s = span.length_ns / 1e9
    return [
        [
            straight_run(scenario, model, seed=seed, start_ns=span.start_ns, length_ns=span.length_ns)
            if allocation.permanent
            else allocation_run(
                scenario, model, allocation, seed=seed, start_ns=span.start_ns, length_ns=span.length_ns
            )
        ]
        if allocation.start_s < span_s
        else []
        for allocation, model in zip(scenario.allocations, models, strict=True)
    ]


def _looping(scenario: Scenario, models: Sequence[JobModel], loops: Sequence[int], seed: int) -> list[list[Run]]:
    """Run every allocation through some loops of a feed; allocations that begin or end do so in each loop again."""
    loop_ns = scenario.loop_minutes * MINUTE_NS
    return [
        [
            loop_run(scenario, model, seed=seed, loop=loop)
            if allocation.permanent
            else allocation_run(
                scenario, model, allocation, seed=seed, start_ns=loop * loop_ns, length_ns=loop_ns, loop=loop
            )
            for loop in loops
            if allocation.start_s * 1e9 < loop_ns
        ]
        for allocation, model in zip(scenario.allocations, models, strict=True)
    ]


def _write(path: Path, write: Callable[[Path], object]) -> Path:
    """Write a file beside its place and move it there, so that nobody reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    passing = path.with_name(f".{path.name}.{os.getpid()}")
    write(passing)
    passing.replace(path)
    return path
