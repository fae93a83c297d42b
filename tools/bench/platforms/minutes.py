"""A platform's minutes as files: simulated part by part, merged by time, and kept."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from accuracy.runs.measurement import START_NS
from accuracy.runs.sources import PROJECT
from bench.platforms.mixes import parts
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.simulate import Scenario, build_scenario, simulate_minute
from llmprism_tasks.simulate.network.topology import topology

FOLDER = PROJECT / ".bench"
"""Everything that is kept; git ignores it."""

MINUTE_NS = 60 * 10**9
SLICES = 12
"""Of a minute, each of which is put in order by itself: a twelfth of the records is in memory."""

FLOWS_PATTERN = "flows/{window:%Y%m%dT%H%M}.parquet"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Platform:
    """A platform's folder: `flows/` with a file for each minute, and `topology.csv`."""

    mix: str
    gpus: int

    @property
    def folder(self) -> Path:
        """Apart for each scenario and version of the simulator."""
        holds = hashlib.sha256(json.dumps([parts(self.mix, self.gpus), _simulator()], sort_keys=True).encode())
        return FOLDER / "platforms" / f"{self.mix}-{self.gpus}-{holds.hexdigest()[:12]}"

    @property
    def topology(self) -> Path:
        """The platform's topology file."""
        return self.folder / "topology.csv"

    def flows(self, minute: int) -> Path:
        """Return the file of a minute's flows."""
        window = Window(START_NS + minute * MINUTE_NS, MINUTE_NS)
        return self.folder / FLOWS_PATTERN.format(window=window.start)


def simulated(platform: Platform, minutes: int, say: Say) -> None:
    """Simulate a platform's first minutes, as far as they are not there yet."""
    missing = [minute for minute in range(minutes) if not platform.flows(minute).exists()]
    if not missing:
        return
    scenarios = [build_scenario(platform.mix, content) for content in parts(platform.mix, platform.gpus)]
    platform.flows(0).parent.mkdir(parents=True, exist_ok=True)
    topology(scenarios[0].fabric).write_csv(platform.topology)
    for minute in missing:
        say(f"simulating {platform.gpus:,} GPUs, {platform.mix}, minute {minute + 1} of {minutes}")
        window = Window(START_NS + minute * MINUTE_NS, MINUTE_NS)
        _write(platform.flows(minute), scenarios, window)


def holds(platform: Platform, minute: int = 0) -> dict[str, Any]:
    """Return how many `flows` a minute has, of how many `jobs`, between how many `pairs` of NICs."""
    flows = pl.scan_parquet(platform.flows(minute))
    counted = flows.select(
        flows=pl.len(), pairs=pl.struct("src_addr", "dst_addr").n_unique(), bytes=pl.col("bytes").sum()
    ).collect()
    jobs = sum(len(part["jobs"]) for part in parts(platform.mix, platform.gpus))
    return {**counted.row(0, named=True), "jobs": jobs}


def _write(file: Path, scenarios: Sequence[Scenario], window: Window) -> None:
    """Simulate a minute and write it whole or not at all."""
    aside = file.with_suffix(".parts")
    aside.mkdir(exist_ok=True)
    for number, scenario in enumerate(scenarios):
        simulate_minute(scenario, window=window, seed=number).write_parquet(aside / f"{number}.parquet")
    passing = aside / "whole"
    merged = _slices(pl.scan_parquet(aside / "*.parquet"), window)
    first = next(merged).to_arrow()
    with pq.ParquetWriter(passing, first.schema, compression="zstd") as writer:
        writer.write_table(first)
        for one in merged:
            writer.write_table(one.to_arrow())
    passing.replace(file)
    shutil.rmtree(aside)


def _slices(flows: pl.LazyFrame, window: Window) -> Iterator[pl.DataFrame]:
    edges = [window.start_ns + window.length_ns * at // SLICES for at in range(SLICES + 1)]
    start = pl.col("flow_start_ns")
    for begin, end in itertools.pairwise(edges):
        inside = flows.filter(start.is_between(begin, end, closed="left"))
        yield inside.sort("flow_start_ns", maintain_order=True).collect()


@cache
def _simulator() -> str:
    files = sorted((PROJECT / "llmprism_tasks" / "simulate").rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
