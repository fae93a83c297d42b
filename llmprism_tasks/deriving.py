"""Deriving: all stages of the plan, one after another, on flows in memory, with no table read or written."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from llmprism_tasks.contract.frames import Part, conform
from llmprism_tasks.contract.plan import ALL, STAGES, Stage
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.partition_values import PartitionValues

ALONE = {"diagnosis": "llmprism_tasks.stages.diagnosis.phase:of_part"}
"""Stages that have a function of their own for a part of the platform: None of it says that the whole must be seen."""


class Derived(NamedTuple):
    """What stages made of some of a window's flows.

    Attributes
    ----------
    made : a stage's name to its tables; a stage that must see the whole platform made nothing of a part
    stage_ns : what each stage took
    """

    made: dict[str, dict[str, pl.DataFrame]]
    stage_ns: dict[str, int]

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """Each table as the last stage that writes it made it."""
        return {table: rows for tables in self.made.values() for table, rows in tables.items()}


def derive(
    part: Part,
    topology: pl.DataFrame,
    window: Window,
    settings: Settings,
    only: Collection[str] = ALL,
    values: PartitionValues | None = None,
) -> Derived:
    """Run stages on some of a window's flows.

    Parameters
    ----------
    only : names of the stages to run; what others write and these read is in the part's tables
    values : what stages share, when others of them were run on the part before
    """
    made: dict[str, dict[str, pl.DataFrame]] = {}
    stage_ns: dict[str, int] = {}
    held = {"flows": part.flows, "topology": topology, **part.tables}
    values = values or PartitionValues(part.flows, window, settings)
    for stage in STAGES:
        if stage.name not in only:
            continue
        began_ns = time.monotonic_ns()
        results = _results(stage, held, values, part.elsewhere, window, settings)
        if results is not None:
            tables = zip(stage.writes, results, strict=True)
            made[stage.name] = {table: conform(rows, table, ordered=True, compact=True) for table, rows in tables}
            held |= made[stage.name]
        stage_ns[stage.name] = time.monotonic_ns() - began_ns
    return Derived(made, stage_ns)


def derive_in_turn(
    part: Part, topology: pl.DataFrame, window: Window, settings: Settings, turns: Sequence[Collection[str]]
) -> Iterator[Derived]:
    """Run stages turn by turn: what one turn's stages made is at hand while the next turn's are at work.

    Parameters
    ----------
    turns : names of the stages of each turn
    """
    values = PartitionValues(part.flows, window, settings)
    for only in turns:
        derived = derive(part, topology, window, settings, only, values)
        yield derived
        part = part._replace(tables={**part.tables, **derived.tables})


def _results(
    stage: Stage,
    held: Mapping[str, pl.DataFrame],
    values: PartitionValues,
    elsewhere: pl.DataFrame | None,
    window: Window,
    settings: Settings,
) -> Sequence[pl.DataFrame] | None:
    """Return what a stage makes of tables; None if it is given a part of the platform, and must see the whole."""
    alone = elsewhere is not None and stage.name in ALONE
    function = named(ALONE[stage.name]) if alone else function_of(stage, settings.method.name)
    others: dict[str, object] = {"elsewhere": elsewhere} if elsewhere is not None and stage.sees_others else {}
    tables = {table: held[table] for table in stage.reads}
    if settings.method.name == "joint":
        del tables["flows"]
        others |= values.named(stage.takes, held)
    results: Sequence[pl.DataFrame] | None = function(**tables, **others, window=window, settings=settings)
    return results


def function_of(stage: Stage, method: str) -> Callable[..., Sequence[pl.DataFrame]]:
    """Import the function of a method's stage."""
    function: Callable[..., Sequence[pl.DataFrame]] = named(stage.function_of(method))
    return function


def prepare(method: str) -> None:
    """Import what the stages are made of, which takes a second, before there is anything to work on."""
    for stage in STAGES:
        function_of(stage, method)


def named(path: str) -> Callable[..., Any]:
    """Import what the plan names as `module:name`."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function
