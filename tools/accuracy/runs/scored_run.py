"""A run analysed into a warehouse of its own, and how right what was found is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.analyze import analyze, derive_tables
from llmprism_tasks.execution.window import finish
from llmprism_tasks.reports.evaluation import TABLES, Scores, all_figures, evaluate
from llmprism_tasks.reports.summary import summarise
from llmprism_tasks.settings import MethodSettings, PlaceSettings, Settings
from llmprism_tasks.sources.truth import read_truth
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.bookkeeping import notifications
from llmprism_tasks.warehouse.connect import Warehouse, configured, open_warehouse
from llmprism_tasks.warehouse.landing import landing


class Scored(NamedTuple):
    """What was found in a run, and how right it is."""

    found: dict[str, pl.DataFrame]
    truth: dict[str, pl.DataFrame]
    scores: Scores
    figures: dict[str, Any]
    incidents: list[dict[str, Any]]


def scored_run(folder: Path, flows: str, warehouse: Path, *, validated: bool) -> Scored:
    """Analyse the flows of a folder with `topology.csv` and `truth/`; without the suites in half the time."""
    opened = _analysed(folder, flows, "joint", warehouse, validated=validated)
    found, truth = _found(opened), read_truth(str(folder / "truth"))
    scores = evaluate(found, truth)
    return Scored(found, truth, scores, all_figures(scores), summarise(opened)["incidents"])


def scores_of(folder: Path, flows: str, method: str, warehouse: Path) -> Scores:
    """Analyse the flows of a folder by a method, without the suites, and compare with its truth."""
    opened = _analysed(folder, flows, method, warehouse, validated=False)
    return evaluate(_found(opened), read_truth(str(folder / "truth")))


def run_with_messages(
    folder: Path, flows: str, warehouse: Path
) -> tuple[dict[str, pl.DataFrame], list[Mapping[str, Any]]]:
    """Analyse the flows of a folder window by window, without the suites.

    Returns
    -------
    the tables that are compared with the truth, and the incidents about which a message would have been sent as they
    opened, rows of the view `incidents`
    """
    told: list[Mapping[str, Any]] = []

    def noted(incident: Mapping[str, Any]) -> str:
        if incident["change"] == "opened":
            told.append(incident)
        return ""

    def due(opened: Warehouse, window: Window, settings: Settings) -> None:
        notifications.claim(
            opened,
            window,
            kinds=settings.notify.kind_names,
            least_severity=settings.notify.least_severity,
            one_step_gpu_s=settings.notify.one_step_gpu_s,
            now_ns=window.end_ns,
            message=noted,
        )

    opened = _analysed(folder, flows, "joint", warehouse, validated=False, after=due)
    return _found(opened), told


def _analysed(
    folder: Path,
    flows: str,
    method: str,
    warehouse: Path,
    *,
    validated: bool,
    after: Callable[[Warehouse, Window, Settings], None] | None = None,
) -> Warehouse:
    places = PlaceSettings(flows=str(folder / flows), topology=str(folder / "topology.csv"), warehouse=str(warehouse))
    settings = Settings(places=places, method=MethodSettings(name=method))
    opened = open_warehouse(configured(settings))
    if validated:
        analyze(settings)
    else:
        for window in landing.land_all(opened, places.flows, length_ns=settings.window.length_ns):
            derive_tables(window, settings, warehouse=opened)
            finish(window, settings, warehouse=opened)
            if after is not None:
                after(opened, window, settings)
    return opened


def _found(warehouse: Warehouse) -> dict[str, pl.DataFrame]:
    with warehouse.reading() as connection:
        return {table: store.frame(connection.execute(f"SELECT * FROM {table}")) for table in TABLES}
