"""Deriving: all stages of the plan, one after another, on flows in memory, with no table read or written."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import polars as pl

from llmprism_tasks.frames import Part, conform
from llmprism_tasks.plan import READIES, STAGES, Stage
from llmprism_tasks.settings import Settings
from llmprism_tasks.windows import Window

ALONE = {"diagnosis": "llmprism_tasks.stages.diagnosis:of_part"}
"""Stages that have a function of their own for a part of the platform: None of it says that the whole must be seen."""


class Derived(NamedTuple):
    """What the stages made of a part of the platform.

    Attributes
    ----------
    tables : each with the rows of the part's jobs; those of a stage that must see the whole platform are absent
    stage_ns : what each stage took
    """

    tables: dict[str, pl.DataFrame]
    stage_ns: dict[str, int]


ALL = tuple(stage.name for stage in STAGES)


def derive(
    part: Part, topology: pl.DataFrame, window: Window, settings: Settings, only: Collection[str] = ALL
) -> Derived:
    """Run the stages on a part of the platform.

    Parameters
    ----------
    only : names of the stages to run; what others write and these read is in the part's tables
    """
    held = {"flows": part.flows, "topology": topology, **part.tables}
    made, stage_ns = {}, {}
    for stage in STAGES:
        if stage.name not in only:
            continue
        began_ns = time.monotonic_ns()
        function = named(ALONE[stage.name]) if stage.name in ALONE else function_of(stage, settings.method.name)
        others = {"elsewhere": part.elsewhere} if stage.sees_others else {}
        results: Sequence[pl.DataFrame] | None = function(
            **{table: held[table] for table in stage.reads}, **others, window=window, settings=settings
        )
        for table, frame in zip(stage.writes, results or (), strict=bool(results)):
            made[table] = held[table] = conform(frame, table, ordered=True, compact=True)
        stage_ns[stage.name] = time.monotonic_ns() - began_ns
    return Derived(made, stage_ns)


def function_of(stage: Stage, method: str) -> Callable[..., Sequence[pl.DataFrame]]:
    """Import the function of a method's stage."""
    function: Callable[..., Sequence[pl.DataFrame]] = named(stage.function_of(method))
    return function


def prepare(method: str) -> None:
    """Import what the stages are made of, which takes a second, before there is anything to work on."""
    for stage in STAGES:
        function_of(stage, method)
    named(READIES)()


def named(path: str) -> Callable[..., Any]:
    """Import what the plan names as `module:name`."""
    module, _, name = path.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function
