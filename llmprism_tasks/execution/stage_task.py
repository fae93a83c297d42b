"""One stage of one window, as an Airflow task: a process that reads what the earlier tasks handed over to it.

The first task of a window divides the platform into partitions and leaves their flows as files (`handover`). Each task
takes the partitions through its stage, on all processors if that pays, leaves its tables for the later tasks, and
replaces the window's rows in the warehouse. Where files are missing it reads flows and tables from the warehouse.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

import polars as pl

from llmprism_tasks import __version__
from llmprism_tasks.contract.plan import Stage, stage_named, tables_after
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions.handover import (
    Handover,
    HandoverLostError,
    read_results,
    run_stages_on_files,
    tables_read_by,
    write_partition,
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
    run_in_pool,
    share_job_names,
    together,
    too_many,
)
from llmprism_tasks.execution.partitions.pool import Pool, pool_for_flows
from llmprism_tasks.execution.partitions.stage_runner import StageResults
from llmprism_tasks.execution.window import open_for_window, read_inputs
from llmprism_tasks.settings import Settings
from llmprism_tasks.sources.topology import read_topology
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse

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
    clears = tables_after(name)
    store.replace(warehouse, window, results.tables, clears=clears, ordered=True, stage_ns=results.stage_ns)
    rows = {table: frame.height for table, frame in results.tables.items()}
    logger.info("window %s, %s: %s", window, name, ", ".join(f"{count} {table}" for table, count in rows.items()))
    return rows


class _StageTask:
    """One stage of one window, with the files that were handed over to it."""

    def __init__(self, stage: Stage, warehouse: Warehouse, window: Window, settings: Settings) -> None:
        self._stage, self._window, self._settings = stage, window, settings
        self._read = functools.partial(read_inputs, warehouse, window, settings)
        self._topology = read_topology(settings.places.topology)
        landed = store.landed_flows(warehouse, window.lookback(settings.window.lookback_windows))
        self._flows = landed.rows
        made_of = repr((__version__, settings, self._topology.write_csv(), landed))
        self._handover = Handover(settings.places.warehouse, window, made_of)

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
        if not self._handover.has_tables_for(self._stage):
            self._hand_over_tables(count)
        self._handover.begin_stage(self._stage)
        log_partitions([self._stage], self._flows, count, self._window)
        results = [one for _, one in each_result(count, self._runners(pool))]
        if share_job_names(results):
            self._hand_over_whole(self._read(["flows"])["flows"])
            return self._results(pool)
        self._handover.end_stage(self._stage)
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

    def _runners(self, pool: Pool | None) -> list[Runner]:
        """Return functions that run the stage on the partition of a number, in this process and in the workers."""
        of_stage = ([self._stage], self._window, self._settings)

        def here(number: int) -> StageResults:
            folder = self._handover.partition_folder(number)
            return read_results(folder, run_stages_on_files(folder, *of_stage))

        def in_worker(pool: Pool, number: int) -> StageResults:
            return run_in_pool(pool, self._handover.partition_folder(number), *of_stage)

        return [here, *([] if pool is None else [functools.partial(in_worker, pool)] * pool.workers)]

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
        partitions = divided(flows, self._topology, self._settings, pool)
        if partitions is None:
            return self._hand_over_whole(flows)
        self._handover.begin(self._topology)
        for number in range(partitions.n_partitions):
            write_partition(self._handover.partition_folder(number), partitions.partition(number))
        self._handover.complete(partitions.n_partitions, partitions.outside, partitions.nics)
        return partitions.n_partitions

    def _hand_over_whole(self, flows: pl.DataFrame) -> int:
        """Leave the flows of the whole platform as one partition; return 1."""
        self._handover.begin(self._topology)
        write_partition(self._handover.partition_folder(0), Partition(flows))
        self._handover.complete(1, flows.clear(), self._topology.select("addr", partition=0))
        return 1

    def _hand_over_tables(self, count: int) -> None:
        """Leave the tables that the stage reads, as they are in the warehouse, in all partitions."""
        tables = self._read(tables_read_by(self._stage))
        nics = self._handover.read("nics")
        for number in range(count):
            mine = tables if count == 1 else tables_of(nics, number, tables)
            write_tables(self._handover.partition_folder(number), self._stage, mine)


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
