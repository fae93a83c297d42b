"""One stage of one window, as an Airflow task: a process that reads what the earlier tasks handed over to it.

The first task of a window divides the platform into partitions and leaves their flows as files (`handover`). Each task
takes the partitions through its stage, on all processors if that pays, leaves its tables for the later tasks, and
replaces the window's rows in the warehouse. Where files are missing it reads flows and tables from the warehouse.

Where several machines share a window (`batches.spread`), each partition has a task of its own before these, on any
machine, that takes it through all stages. The tasks of the stages find what they made, merge it and write it.
"""

from __future__ import annotations

import functools
import json
import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from llmprism_tasks.contract.errors import ReplacedMeanwhileError
from llmprism_tasks.contract.plan import STAGES, Stage, stage_named, stages_after, tables_after
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions.handover import (
    FileNames,
    Handover,
    HandoverLostError,
    WrittenResults,
    handover_name,
    read_results,
    results_left,
    run_stages_on_files,
    tables_left,
    tables_read_by,
    write_tables,
)
from llmprism_tasks.execution.partitions.partition import Partition, tables_of
from llmprism_tasks.execution.partitions.partitioned import (
    Runner,
    divided,
    each_result,
    log_partitions,
    merged,
    run_by_jobs,
    share_job_names,
    together,
    too_many,
)
from llmprism_tasks.execution.partitions.pool import Pool, pool_for_flows
from llmprism_tasks.execution.partitions.stage_runner import StageResults
from llmprism_tasks.execution.window import finish, open_for_window, read_inputs, validate_results
from llmprism_tasks.settings import Settings
from llmprism_tasks.sources.topology import read_topology
from llmprism_tasks.warehouse import landed_flows, store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.storage import window_row

logger = logging.getLogger(__name__)


def run_stage(name: str, window: Window, settings: Settings) -> dict[str, int]:
    """Run one stage of the plan for a landed window, and replace the window's rows of the tables that it writes.

    Tables that only later stages write lose the window's rows: they are stale now.

    Returns
    -------
    rows written per table

    Raises
    ------
    ExpiredError : flows of the window or its look-back have expired; what is there stands
    """
    stage = stage_named(name)
    warehouse = open_for_window(window, settings)
    results = _StageTask(stage, warehouse, window, settings).results()
    store.replace(
        warehouse,
        window,
        results.tables,
        clears=tables_after(name),
        ordered=True,
        stage_ns=results.stage_ns,
        then=lambda connection: window_row.forget_stages(connection, window, stages_after(name)),
    )
    rows = {table: frame.height for table, frame in results.tables.items()}
    logger.info("window %s, %s: %s", window, name, ", ".join(f"{count} {table}" for table, count in rows.items()))
    return rows


def check_results(window: Window, settings: Settings) -> dict[str, int]:
    """Check all that was written of a window; what another run of it has cleared meanwhile is made again before.

    Returns and raises what `window.validate_results` does
    """
    warehouse = open_for_window(window, settings)
    check = functools.partial(validate_results, window, settings, warehouse=warehouse)
    return _once_whole(check, window, settings, warehouse)


def end_run(window: Window, settings: Settings) -> dict[str, int]:
    """Mark a window as done; what another run of it has cleared since the check is made again and checked before.

    Returns and raises what `window.finish` does
    """
    warehouse = open_for_window(window, settings)
    checked = _made(warehouse, window)

    def end(made: str) -> dict[str, int]:
        if made != checked:
            validate_results(window, settings, warehouse=warehouse, made=made)
        return finish(window, settings, warehouse=warehouse, made=made)

    return _once_whole(end, window, settings, warehouse)


def conclude(window: Window, settings: Settings, *, warehouse: Warehouse) -> None:
    """Check all that was written of a window and mark it as done, as `check_results` and `end_run` do one by one.

    Raises
    ------
    the errors of `window.validate_results`
    """

    def check_and_end(made: str) -> dict[str, int]:
        validate_results(window, settings, warehouse=warehouse, made=made)
        return finish(window, settings, warehouse=warehouse, made=made)

    _once_whole(check_and_end, window, settings, warehouse)


def _once_whole(
    work: Callable[..., dict[str, int]], window: Window, settings: Settings, warehouse: Warehouse
) -> dict[str, int]:
    """Do something with a window's rows once all are there; again if another run replaces them meanwhile.

    Parameters
    ----------
    work : takes `made`, what `complete` returned
    """
    while True:
        made = complete(window, settings, warehouse=warehouse)
        try:
            return work(made=made)
        except ReplacedMeanwhileError as error:
            logger.warning("%s", error.found)


def complete(window: Window, settings: Settings, *, warehouse: Warehouse | None = None) -> str:
    """Run the stages again whose results are gone; returns what `window_row.stages_made` says once all are there.

    A stage clears what later ones wrote, and a landing what all wrote. Where two runs do one window, or a task that was
    given up still runs, it may do so after those have written.

    Parameters
    ----------
    warehouse : if it is open already
    """
    warehouse = warehouse or open_for_window(window, settings)
    while True:
        made = _made(warehouse, window)
        there = json.loads(made or "{}")
        missing = [stage.name for stage in STAGES if stage.name not in there]
        if not missing:
            return made
        logger.warning("window %s: another run of it cleared %s; made again", window, ", ".join(missing))
        first = next(number for number, stage in enumerate(STAGES) if stage.name == missing[0])
        for stage in STAGES[first:]:
            run_stage(stage.name, window, settings)


def _made(warehouse: Warehouse, window: Window) -> str:
    with warehouse.reading() as connection:
        return window_row.stages_made(connection, window)


def divide(window: Window, settings: Settings) -> list[dict[str, str | int]]:
    """Leave a landed window's flows for tasks of partitions, which any machine may do.

    Returns
    -------
    what `run_partition` takes, for each partition; nothing where hosts cannot be separated
    """
    return _StageTask(STAGES[0], open_for_window(window, settings), window, settings).spread()


def run_partition(part: Mapping[str, str | int], window: Window, settings: Settings) -> dict[str, int]:
    """Take one partition through all stages; the stages' own tasks find, merge and write what is made here.

    Parameters
    ----------
    part : one of those that `divide` returned

    Returns
    -------
    rows per table; nothing if the flows are gone: then the stages' own tasks begin with the warehouse
    """
    handover, number = Handover(settings.places.handover, str(part["handover"])), int(part["partition"])
    folder = handover.partition_folder(number)
    try:
        written = run_stages_on_files(folder, STAGES, window, settings, noted=True)
        results = read_results(folder, written)
    except HandoverLostError as error:
        logger.warning("window %s, partition %d is left to the tasks of the stages: %s", window, number, error)
        return {}
    rows = {table: frame.height for table, frame in results.tables.items()}
    logger.info("window %s, partition %d: %s", window, number, ", ".join(f"{rows[table]} {table}" for table in rows))
    return rows


class _StageTask:
    """One stage of one window, with the files that were handed over to it."""

    def __init__(self, stage: Stage, warehouse: Warehouse, window: Window, settings: Settings) -> None:
        self._stage, self._window, self._settings = stage, window, settings
        self._read = functools.partial(read_inputs, warehouse, window, settings)
        self._topology = read_topology(settings.places.topology)
        landed = landed_flows.digest_of(warehouse, window.lookback(settings.window.lookback_windows))
        self._flows = landed.rows
        self._name = handover_name(settings.places.warehouse, window, settings, self._topology, landed)
        self._handover = self._whole()
        if self._handover.count is None:
            self._handover = Handover(settings.places.handover, self._name)

    def spread(self) -> list[dict[str, str | int]]:
        """Leave the flows of partitions; return the place of each, nothing if the platform stays whole."""
        count = self._handover.count or self._hand_over_flows(None)
        parts = range(count if count > 1 else 0)
        return [{"handover": self._handover.folder.name, "partition": number} for number in parts]

    def results(self) -> StageResults:
        """Return the tables that the stage writes, of the whole platform."""
        with pool_for_flows(self._flows, self._settings) as pool:
            try:
                return self._results(pool)
            except HandoverLostError as error:
                logger.warning("window %s, %s: starting from the warehouse: %s", self._window, self._stage.name, error)
                self._handover.delete()
                return self._results(pool)

    def _results(self, pool: Pool | None) -> StageResults:
        count = self._handover.count or self._hand_over_flows(pool)
        if count == 1 and self._stage.per_job and too_many(self._flows, self._settings):
            return self._results_by_jobs()
        log_partitions([self._stage], self._flows, count, self._window)
        results = [one for _, one in each_result(count, self._runners(count, pool))]
        if share_job_names(results):
            self._handover = self._whole()
            self._hand_over_whole(self._read(["flows"])["flows"])
            return self._results(pool)
        if count == 1:
            return results[0]
        return merged(
            [self._stage],
            results,
            self._stage.writes,
            outside=self._handover.read("outside"),
            whole=lambda: self._read(self._stage.reads),
            topology=self._topology,
            window=self._window,
            settings=self._settings,
        )

    def _runners(self, count: int, pool: Pool | None) -> list[Runner]:
        """Return functions that run the stage on the partition of a number, in this process and in the workers."""
        folders = [self._handover.partition_folder(number) for number in range(count)]
        left = [tables_left(folder, self._stage) for folder in folders]
        complete = [tables for tables in left if tables is not None]
        noted = len(complete) == count
        tables = complete if noted else self._hand_over_tables(folders)

        def run(call: Callable[..., WrittenResults], number: int) -> StageResults:
            """Return what the stage makes of a partition, or what a task of the partition left of it."""
            folder = folders[number]
            written = results_left(folder, self._stage) if noted and self._settings.batches.spread > 1 else None
            if written is None:
                of_stage = ([self._stage], self._window, self._settings)
                written = call(run_stages_on_files, folder, *of_stage, tables[number], noted=noted)
            return read_results(folder, written)

        workers = [] if pool is None else [functools.partial(run, pool.call)] * pool.workers
        return [functools.partial(run, operator.call), *workers]

    def _results_by_jobs(self) -> StageResults:
        """Run the stage on some jobs at a time, for all hosts exchange data and their flows are too many at once."""
        collected = _Collected()
        run_by_jobs([self._stage], self._read, self._window, self._settings, collected, flows=self._flows)
        return collected.results(self._stage)

    def _hand_over_flows(self, pool: Pool | None) -> int:
        """Leave the flows of all partitions; return how many partitions there are."""
        logger.info(
            "window %s, %s: no flows were handed over; reading them from the warehouse", self._window, self._stage.name
        )
        flows = self._read(["flows"])["flows"]
        partitions = divided(flows, self._topology, self._settings, pool, tasks=self._settings.batches.spread)
        if partitions is None:
            return self._hand_over_whole(flows)
        each = (partitions.partition(number) for number in range(partitions.n_partitions))
        return self._handover.leave(self._topology, each, partitions.outside, partitions.nics)

    def _hand_over_whole(self, flows: pl.DataFrame) -> int:
        """Leave the flows of the whole platform as one partition; return 1."""
        nics = self._topology.select("addr", partition=0)
        return self._handover.leave(self._topology, [Partition(flows)], flows.clear(), nics)

    def _whole(self) -> Handover:
        """Return where the platform is left whole because jobs of two partitions had one name."""
        return Handover(self._settings.places.handover, f"{self._name}-whole")

    def _hand_over_tables(self, folders: Sequence[Path]) -> list[FileNames]:
        """Leave the tables that the stage reads, as they are in the warehouse, in all partitions, for this task alone.

        They may lack what the stages made: results of jobs that were set aside.
        """
        tables = self._read(tables_read_by(self._stage))
        nics = self._handover.read("nics")
        each = (tables if len(folders) == 1 else tables_of(nics, number, tables) for number in range(len(folders)))
        return [write_tables(folder, mine) for folder, mine in zip(folders, each, strict=True)]


class _Collected:
    """Keeps what stages make, batch by batch."""

    def __init__(self) -> None:
        self._results: list[StageResults] = []

    def begin(self) -> None:
        """Drop what was taken before."""
        self._results.clear()

    def take(self, results: StageResults, jobs: Sequence[str] | None, *, more: int | None = None) -> None:
        """Keep the results of a batch of jobs."""
        self._results.append(results)

    def results(self, stage: Stage) -> StageResults:
        """Return all that was taken of a stage as one."""
        return together(stage, self._results)
