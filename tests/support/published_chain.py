"""A small job with two replicas of two pipeline stages, and the published stages run one after another on any flows."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
from handmade import WINDOW, Row, every, pipeline, ring, topology, visible

from llmprism_tasks.contract.plan import STAGES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions.stage_runner import stage_functions
from llmprism_tasks.settings import Settings

Tables = dict[str, pl.DataFrame]

NICS = topology({f"host-{i}": [f"10.0.{i}.1"] for i in range(1, 5)})
A0, B0, A1, B1 = NICS["addr"].to_list()
PERIOD, SYNCHRONISATION, BURST = 2_000.0, 1_000.0, 100.0
"""ms: a step, when in it the gradients are synchronised, and for how long."""


def training(steps: int, start: float = 0) -> list[Row]:
    """Return the job's records: A0 and B0 are one replica's stages, A1 and B1 the other's; times in ms."""
    begins = every(PERIOD, count=steps, start=start)
    synchronise = [begin + SYNCHRONISATION for begin in begins]
    return [
        *pipeline(A0, B0, begins),
        *pipeline(A1, B1, begins),
        *ring([A0, A1], synchronise, length=BURST),
        *ring([B0, B1], synchronise, length=BURST),
    ]


def run(stage_name: str, tables: Mapping[str, pl.DataFrame], window: Window = WINDOW) -> Tables:
    """Run one published stage on the tables it reads."""
    stage = next(stage for stage in STAGES if stage.name == stage_name)
    function = stage_functions("published")[stage_name]
    results = function(**{table: tables[table] for table in stage.reads}, window=window, settings=Settings())
    return dict(zip(stage.writes, results, strict=True))


def derive(flows: pl.DataFrame, nics: pl.DataFrame = NICS, window: Window = WINDOW) -> Tables:
    """Run all published stages for a window and return every table."""
    tables: Tables = {"flows": visible(flows, window), "topology": nics}
    for stage in STAGES:
        tables |= run(stage.name, tables, window)
    return tables
