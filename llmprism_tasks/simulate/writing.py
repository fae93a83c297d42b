"""A scenario simulated and written: whole spans with their truth, or single minutes of a feed without end."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from llmprism_tasks.errors import SettingsError
from llmprism_tasks.frames import schema
from llmprism_tasks.simulate.collecting import collect
from llmprism_tasks.simulate.cycles import JobModel, job_model
from llmprism_tasks.simulate.fabric import ROCE_PORT, UDP, Indices, QueuePairs, topology
from llmprism_tasks.simulate.records import HEADER_BYTES, Messages, joined, noise
from llmprism_tasks.simulate.runs import Run, loop_run, straight_run
from llmprism_tasks.simulate.scenario import Scenario, load_scenario
from llmprism_tasks.simulate.traffic import messages
from llmprism_tasks.simulate.truth import truth
from llmprism_tasks.tables import FLOW_COLUMNS
from llmprism_tasks.windows import NANOSECONDS_PER_SECOND, Window

MINUTE_NS = 60 * NANOSECONDS_PER_SECOND
MERGING_NS = NANOSECONDS_PER_SECOND  # cycles this much around a span are made too, for records across its edges
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
    if minutes < 1 or start_ns < 0:
        raise SettingsError(
            found=f"a simulation of {minutes} minutes from {start_ns} ns",
            expected="at least one minute, and a start of at least 0",
            todo="Correct the arguments.",
        )
    span = Window(start_ns, minutes * MINUTE_NS)
    models = _models(scenario, seed)
    runs = [straight_run(scenario, m, seed=seed, start_ns=start_ns, length_ns=span.length_ns) for m in models]
    return Simulation(
        flows=_flows(scenario, models, [[run] for run in runs], span, seed),
        topology=topology(scenario.fabric),
        truth=truth(scenario, runs, start_ns=span.start_ns, end_ns=span.end_ns),
    )


def simulate_minute(scenario: Scenario, *, window: Window, seed: int) -> pl.DataFrame:
    """Return the flows of one window of an endless run that began at the epoch.

    Faults come and go with each loop of `loop_minutes`; jobs go on from loop to loop. Any window can be made alone.
    """
    loop_ns = scenario.loop_minutes * MINUTE_NS
    models = _models(scenario, seed)
    # A job's loops start up to one step before the clock's, so the next loop may reach into this window.
    loops = range(max(0, window.start_ns - MERGING_NS) // loop_ns, window.end_ns // loop_ns + 2)
    runs = [
        [
            run
            for loop in loops
            for run in [loop_run(scenario, model, seed=seed, loop=loop)]
            if run.start_ns[-1] > window.start_ns - MERGING_NS and run.start_ns[0] < window.end_ns
        ]
        for model in models
    ]
    return _flows(scenario, models, runs, window, seed)


def write_scenario(out: Path, *, scenario: str, minutes: int, seed: int, start_ns: int) -> dict[str, int]:
    """Simulate a scenario and write its flows, topology and truth.

    Parameters
    ----------
    out : folder for `flows/<minute>.parquet` (one per minute, by flow start), `topology.csv` and `truth/`
    scenario : a name in `scenarios/` or the path of such a file
    start_ns : start of the span, a whole minute

    Returns
    -------
    number of flows, jobs, pairs, steps and faults

    Raises
    ------
    SettingsError : a scenario or an argument that cannot be used
    """
    if start_ns % MINUTE_NS:
        raise SettingsError(
            found=f"a start at {start_ns} ns", expected="a whole minute", todo="Round the start to the minute."
        )
    made = simulate(load_scenario(scenario), minutes=minutes, seed=seed, start_ns=start_ns)
    for minute in range(minutes):
        window = Window(start_ns + minute * MINUTE_NS, MINUTE_NS)
        inside = pl.col("flow_start_ns").is_between(window.start_ns, window.end_ns, closed="left")
        _write(out / "flows" / f"{window.start:{FILE_NAME}}.parquet", made.flows.filter(inside).write_parquet)
    _write(out / "topology.csv", made.topology.write_csv)
    for name, table in made.truth.items():
        if name == "layouts":
            _write(out / "truth" / "layouts.csv", table.write_csv)
        else:
            _write(out / "truth" / f"{name}.parquet", table.write_parquet)
    return {
        "flows": made.flows.height,
        "jobs": made.truth["layouts"].height,
        "pairs": made.truth["truth_pairs"].height,
        "steps": made.truth["truth_steps"].height,
        "faults": made.truth["truth_faults"].height,
    }


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
    if seed < 0:
        raise SettingsError(found=f"seed {seed}", expected="a whole number of at least 0", todo="Correct the seed.")
    return [job_model(scenario, index, seed) for index in range(len(scenario.jobs))]


def _flows(
    scenario: Scenario, models: Sequence[JobModel], runs: Sequence[Sequence[Run]], span: Window, seed: int
) -> pl.DataFrame:
    """Collect the traffic of every job's runs, and keep the records that start in the span."""
    tables = [table for model in models for table in model.connections.tables]
    sizes = [sum(len(table) for table in model.connections.tables) for model in models]
    wide = (span.start_ns - MERGING_NS, span.end_ns + MERGING_NS)
    made = [
        messages(run, first_queue_pair=sum(sizes[:job]), span=wide, seed=seed)
        for job, several in enumerate(runs)
        for run in several
    ]
    paths = [path for table in tables for path in table.path]
    records = collect(joined(made), scenario.collector, seed=seed, clock_ns=_clocks_ns(scenario, paths, seed))
    inside = records.take((records.start_ns >= span.start_ns) & (records.start_ns < span.end_ns))
    return _frame(scenario, inside, tables, paths, seed)


def _clocks_ns(scenario: Scenario, paths: Sequence[tuple[str, ...]], seed: int) -> Indices:
    """Return how far ahead the clock is that stamps the records of each path's queue pair."""
    collector = scenario.collector
    places = range(len(paths)) if collector.seen_by == "any" else [0] * len(paths)
    seers = [path[place % len(path)] for path, place in zip(paths, places, strict=True)]
    draws = {
        switch: np.random.default_rng([seed, zlib.crc32(switch.encode())]).standard_normal() for switch in set(seers)
    }
    return np.array([round(float(draws[seer]) * collector.skew_us * 1e3) for seer in seers], dtype=np.int64)


def _frame(
    scenario: Scenario, records: Messages, tables: Sequence[QueuePairs], paths: Sequence[tuple[str, ...]], seed: int
) -> pl.DataFrame:
    """Give records the contract's columns, from the tables of queue pairs in the order of their numbers."""
    nics, which = topology(scenario.fabric)["addr"], records.queue_pair

    def of(name: str) -> Indices:
        return np.concatenate([np.empty(0, dtype=np.int64), *(getattr(table, name) for table in tables)])[which]

    unknown = noise(seed, "path", which, records.start_ns) < scenario.collector.pathless
    known = np.where(unknown, len(paths), which)
    columns = {
        "flow_start_ns": records.start_ns,
        "flow_end_ns": records.end_ns,
        "src_addr": nics.gather(of("src")),
        "dst_addr": nics.gather(of("dst")),
        "src_port": of("src_port"),
        "dst_port": np.full(len(records), ROCE_PORT),
        "protocol": np.full(len(records), UDP),
        "bytes": records.payload_bytes + HEADER_BYTES * records.packets,
        "packets": records.packets,
        "switch_path": pl.Series([*map(list, paths), None], dtype=pl.List(pl.String)).gather(known),
    }
    return pl.DataFrame(columns).cast(schema(FLOW_COLUMNS))


def _write(path: Path, write: Callable[[Path], object]) -> Path:
    """Write a file beside its place and move it there, so that nobody reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    passing = path.with_name(f".{path.name}.{os.getpid()}")
    write(passing)
    passing.replace(path)
    return path
