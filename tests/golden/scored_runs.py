"""A run analysed into a warehouse of its own, and what was found beside the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import scoring

from llmprism_tasks import pipeline
from llmprism_tasks.plan import STAGES
from llmprism_tasks.reports.summary import summarise
from llmprism_tasks.settings import PlaceSettings, Settings
from llmprism_tasks.warehouse import landing, store
from llmprism_tasks.warehouse.connect import open_warehouse

TABLES = ("windows", "jobs", "job_members", "pairs", "steps", "diagnoses")


class Scored(NamedTuple):
    """What was found in a run, and how right it is."""

    found: dict[str, pl.DataFrame]
    truth: dict[str, pl.DataFrame]
    jobs: pl.DataFrame
    steps: pl.DataFrame
    troubles: list[dict[str, Any]]


def scored_run(folder: Path, flows: str, warehouse: Path, *, validated: bool) -> Scored:
    """Analyse the flows of a folder with `topology.csv` and `truth/`; without the suites in half the time."""
    settings = Settings(
        places=PlaceSettings(flows=str(folder / flows), topology=str(folder / "topology.csv"), warehouse=str(warehouse))
    )
    if validated:
        pipeline.analyze(settings)
    else:
        _derive(settings)
    opened = open_warehouse(settings.places.warehouse, lock_wait_s=30)
    found = {table: store.query(opened, f"SELECT * FROM {table}") for table in TABLES}
    truth = scoring.read_truth(folder / "truth")
    jobs = scoring.job_scores(found, truth, found["windows"])
    return Scored(found, truth, jobs, scoring.matched_steps(found, truth, jobs), summarise(opened)["troubles"])


def _derive(settings: Settings) -> None:
    opened = open_warehouse(settings.places.warehouse, lock_wait_s=30)
    length_ns, lateness_ns = settings.window.length_ns, settings.window.allowed_lateness_ns
    for window in landing.land_all(opened, settings.places.flows, length_ns=length_ns, lateness_ns=lateness_ns):
        for stage in STAGES:
            pipeline.run_stage(stage.name, window, settings)
