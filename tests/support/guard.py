"""What the guard compares: an analysis of a small window, and work of a fixed size, both by this process's own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.analyze import analyze
from llmprism_tasks.settings import PlaceSettings, Settings
from llmprism_tasks.simulate import build_scenario, simulate_minute
from llmprism_tasks.simulate.network.topology import topology

WINDOW = Window(1_760_000_400_000_000_000, 60 * 10**9)
HOSTS = 4
"""Of a job."""

REPEATS = 2
ROWS, LOOPS = 600_000, 400_000


def platform(folder: Path, jobs: int) -> Settings:
    """Write a minute of some jobs of 32 GPUs, all alike but for their jitter; returns settings to analyse it with."""
    scenario = build_scenario("guard", {"jobs": [_job(at) for at in range(jobs)], "fabric": {"hosts": HOSTS * jobs}})
    folder.mkdir()
    simulate_minute(scenario, window=WINDOW, seed=0).write_parquet(folder / "flows.parquet")
    topology(scenario.fabric).write_csv(folder / "topology.csv")
    return Settings(places=PlaceSettings(str(folder / "flows.parquet"), str(folder / "topology.csv")))


def _job(at: int) -> dict[str, Any]:
    return {
        "name": f"job{at}",
        "model": "3b",
        "hosts": list(range(HOSTS * at, HOSTS * (at + 1))),
        "tp": 4,
        "pp": 2,
        "dp": 4,
        "layers": 32,
        "hidden": 2560,
        "micro_batches": 4,
        "forward_ms": 150,
        "channels": 2,
    }


def analysis(settings: Settings, folder: Path) -> Callable[[], None]:
    """Return what analyses a platform into a new warehouse, from the file to the last table."""
    numbers = iter(range(1_000))

    def analyse() -> None:
        warehouse = str(folder / f"{next(numbers)}.duckdb")
        places = PlaceSettings(settings.places.flows, settings.places.topology, warehouse)
        analyze(Settings(places=places))

    return analyse


def fixed_work() -> None:
    """Sort, group and join rows, and loop: of what an analysis is made, and always the same."""
    rng = np.random.default_rng(0)
    keys, values = rng.integers(0, 2_000, ROWS), rng.integers(0, 10**12, ROWS)
    frame = pl.DataFrame({"key": keys, "value": values}).with_columns(text=pl.col("key").cast(pl.String))
    ordered = frame.sort("text", "value").with_columns(gap=pl.col("value").diff().over("text"))
    grouped = ordered.group_by("text").agg(pl.len(), pl.col("gap").median(), pl.col("value").n_unique())
    ordered.join(grouped, on="text").select(pl.col("len").sum())
    counts: dict[int, int] = {}
    for number in range(LOOPS):
        counts[number % 1_000] = counts.get(number % 1_000, 0) + number


def cheapest_s(*works: Callable[[], None], repeats: int = REPEATS) -> list[float]:
    """Return the least processor time that each piece of work took of some repeats, all of them in turn.

    Other work on the machine only adds to it, and in turn it adds to all of them alike.
    """
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, times in zip(works, taken, strict=True):
            began = time.process_time()
            work()
            times.append(time.process_time() - began)
    return [min(times) for times in taken]
