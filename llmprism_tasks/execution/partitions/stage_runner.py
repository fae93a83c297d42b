"""Call the stage functions for one partition, in the order of the plan; no table is read or written here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from llmprism_tasks.contract.frames import conform
from llmprism_tasks.contract.plan import Stage
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions.partition import Partition
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.diagnosis import phase as diagnosis
from llmprism_tasks.stages.parallelism import phase as parallelism
from llmprism_tasks.stages.partition_values import PartitionValues
from llmprism_tasks.stages.recognition import phase as recognition
from llmprism_tasks.stages.step_division import phase as step_division
from llmprism_tasks.stages.timeline import phase as timeline

StageFunction = Callable[..., Sequence[pl.DataFrame] | None]
"""From the tables that the stage reads, and the values that it takes, as keyword arguments, to the tables that it
writes, in the plan's order."""


class StageResults(NamedTuple):
    """What stages made of a window's flows, or of some of them.

    Attributes
    ----------
    by_stage : the tables that each stage made, by the stage's name; a stage that has to see the whole platform, and was
        given a partition of it, is missing
    stage_ns : nanoseconds that each stage took
    """

    by_stage: dict[str, dict[str, pl.DataFrame]]
    stage_ns: dict[str, int]

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """Each table as the last stage that writes it made it."""
        return {table: rows for tables in self.by_stage.values() for table, rows in tables.items()}


def run_stages(
    stages: Sequence[Stage], partition: Partition, topology: pl.DataFrame, window: Window, settings: Settings
) -> StageResults:
    """Run stages on a partition, each on the tables of those before it.

    Parameters
    ----------
    stages : in the order of the plan; what they read and none of them writes is in the partition's tables
    topology : all NICs of the platform
    """
    results = StageResults({}, {})
    for of_stage in each_stage(stages, partition, topology, window, settings):
        results.by_stage.update(of_stage.by_stage)
        results.stage_ns.update(of_stage.stage_ns)
    return results


def each_stage(
    stages: Sequence[Stage], partition: Partition, topology: pl.DataFrame, window: Window, settings: Settings
) -> Iterator[StageResults]:
    """Do what `run_stages` does, and yield the results of each stage as soon as they are there.

    The stages share the partition's values: its flows are indexed, and its jobs' steps divided, once for all of them.
    """
    known = {"flows": partition.flows, "topology": topology, **partition.tables}
    values = PartitionValues(partition.flows, window, settings)
    for stage in stages:
        began_ns = time.monotonic_ns()
        written = _run(stage, known, values, partition.other_starts, window, settings)
        tables = {} if written is None else dict(zip(stage.writes, written, strict=True))
        made = {table: conform(rows, table, ordered=True, compact=True) for table, rows in tables.items()}
        known |= made
        stage_ns = {stage.name: time.monotonic_ns() - began_ns}
        yield StageResults({} if written is None else {stage.name: made}, stage_ns)


def _run(
    stage: Stage,
    known: Mapping[str, pl.DataFrame],
    values: PartitionValues,
    other_starts: pl.DataFrame | None,
    window: Window,
    settings: Settings,
) -> Sequence[pl.DataFrame] | None:
    """Return the tables that a stage writes; None if it was given a partition and has to see the whole platform."""
    taken: dict[str, Any] = {table: known[table] for table in stage.reads}
    function = stage_functions(settings.method.name)[stage.name]
    if settings.method.name == "joint":
        del taken["flows"]
        taken |= values.named(stage.takes, known)
    if other_starts is not None and stage.sees_others:
        taken["elsewhere"] = other_starts
        function = diagnosis.diagnose_partition if stage.name == "diagnosis" else function
    return function(**taken, window=window, settings=settings)


def stage_functions(method: str) -> dict[str, StageFunction]:
    """Return the function of each stage by its name.

    Parameters
    ----------
    method : `joint`, or `published` for the method as its paper has it
    """
    if method == "published":
        return _published_functions()
    return {
        "recognition": recognition.recognition,
        "step_division": step_division.step_division,
        "parallelism": parallelism.parallelism,
        "timeline": timeline.timeline,
        "diagnosis": diagnosis.diagnosis,
    }


def _published_functions() -> dict[str, StageFunction]:
    """Import the published method, which only comparisons use, with kernels of its own."""
    from llmprism_tasks.stages.published.diagnosis import diagnosis  # noqa: PLC0415
    from llmprism_tasks.stages.published.parallelism import parallelism  # noqa: PLC0415
    from llmprism_tasks.stages.published.recognition import recognition  # noqa: PLC0415
    from llmprism_tasks.stages.published.step_division import step_division  # noqa: PLC0415
    from llmprism_tasks.stages.published.timeline import timeline  # noqa: PLC0415

    functions = (recognition, step_division, parallelism, timeline, diagnosis)
    return {function.__name__: function for function in functions}
