"""One run measured: a scenario simulated, or a capture as it is, analysed by one method and compared with its truth."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from accuracy.runs.results import version
from accuracy.runs.scored_run import scores_of
from llmprism_tasks.reports.evaluation import Scores, all_figures
from llmprism_tasks.reports.evaluation.steps import duration_errors
from llmprism_tasks.simulate import build_scenario, simulate

START_NS = 1_760_000_400_000_000_000
"""Where simulated time starts: a whole minute."""

Figures: TypeAlias = dict[str, Any]


def write_run(folder: Path, name: str, content: Mapping[str, Any], minutes: int, seed: int) -> Figures:
    """Simulate a scenario into `flows/`, `topology.csv` and `truth/` of a folder; returns what it holds."""
    began = time.process_time()
    made = simulate(build_scenario(name, content), minutes=minutes, seed=seed, start_ns=START_NS)
    for part in ("flows", "truth"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    made.flows.write_parquet(folder / "flows" / "flows.parquet")
    made.topology.write_csv(folder / "topology.csv")
    for table, rows in made.truth.items():
        if table == "layouts":
            rows.write_csv(folder / "truth" / "layouts.csv")
        else:
            rows.write_parquet(folder / "truth" / f"{table}.parquet")
    return {"records": made.flows.height, "simulate_cpu_s": time.process_time() - began}


def measure(folder: Path, flows: str, method: str, warehouse: Path) -> Figures:
    """Analyse a folder's flows with every setting at its default but the method, and compare with its truth.

    The suites are left out: they check rows and change none.

    Returns
    -------
    `figures` : what `llmprism evaluate --format json` prints
    `errors` : of the durations of steps, ratios of the true ones
    `confidence` : of jobs, a value for each window in which one was found
    `version` : of the code that did so
    `cpu_s` : of this process, from reading the flows to the last figure
    """
    began = time.process_time()
    scores = scores_of(folder, flows, method, warehouse)
    return {**plain(scores), "version": version(), "cpu_s": time.process_time() - began}


def plain(scores: Scores) -> Figures:
    """Return scores as plain numbers and lists, which JSON can hold."""
    certain = scores.jobs.filter(pl.col("confidence").is_not_null())
    return {
        "figures": all_figures(scores),
        "errors": duration_errors(scores.steps)["error"].to_list(),
        "confidence": certain["confidence"].to_list(),
    }
