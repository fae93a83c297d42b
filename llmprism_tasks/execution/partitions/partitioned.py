"""A window's flows taken through stages: whole, a partition at a time on all processors, or some jobs at a time.

Stages are pure functions of the flows that they are given. Few flows are given to them whole. Of many flows they are
given one partition at a time: flows of hosts that exchange no data with other hosts. Where all hosts exchange data, the
stages that work job by job are given the flows of some jobs.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import shutil
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Protocol

import polars as pl

from llmprism_tasks.contract.frames import empty
from llmprism_tasks.contract.plan import Stage
from llmprism_tasks.contract.tables import table_named
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions import stage_runner
from llmprism_tasks.execution.partitions.arrow_exchange import write_frame
from llmprism_tasks.execution.partitions.handover import read_results, run_stages_on_files, write_partition
from llmprism_tasks.execution.partitions.partition import Partition, Partitions, divide_platform, job_batches
from llmprism_tasks.execution.partitions.pool import Pool
from llmprism_tasks.execution.partitions.stage_runner import StageResults
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.recognition.unlisted_nics import with_unlisted
from llmprism_tasks.stages.traffic.index import TrafficIndex
from llmprism_tasks.warehouse.storage.temporary_folder import temporary_folder

logger = logging.getLogger(__name__)

READ_WHOLE = ("jobs", "job_members", "pairs", "steps")
"""Tables that a stage which has to see the whole platform reads."""

COMPLETED_LAST = ("jobs", "diagnoses")
"""Tables written only after all partitions are merged: what other partitions hold changes their rows."""


Runner = Callable[[int], StageResults]
"""Runs stages on the partition of a number."""


class Sink(Protocol):
    """Takes what the stages make of a window."""

    def begin(self) -> None:
        """Drop what was taken before: everything comes again."""

    def take(self, results: StageResults, jobs: Sequence[str] | None, *, more: int | None = None) -> None:
        """Take tables, in the place of the rows taken before for these jobs, or of all rows if None.

        Parameters
        ----------
        more : the tables are of one partition, and so many partitions are still to come
        """


class Reader(Protocol):
    """Reads from the warehouse what stages read."""

    def __call__(self, tables: Sequence[str], jobs: Sequence[str] | None = None) -> dict[str, pl.DataFrame]:
        """Return tables, `flows` and `topology` among them; of some jobs, or of all if None."""


def tables_read_first(stages: Iterable[Stage]) -> list[str]:
    """Return what stages read and none of them writes before; `flows` and `topology` are always among it."""
    wanted = dict.fromkeys(["flows", "topology"])
    written: set[str] = set()
    for stage in stages:
        wanted |= dict.fromkeys(table for table in stage.reads if table not in written)
        written |= set(stage.writes)
    return list(wanted)


def run_in_memory(
    stages: Sequence[Stage],
    inputs: Mapping[str, pl.DataFrame],
    window: Window,
    settings: Settings,
    pool: Pool | None,
    sink: Sink,
) -> bool:
    """Take flows in memory through all stages of the plan: by partition if they are many, else whole.

    Parameters
    ----------
    stages : the first stages of the plan, or all
    inputs : `flows` and `topology`

    Returns
    -------
    False, with nothing in the sink, if there are too many flows for the stages that could be given some jobs' at a time
    """
    sink.begin()
    partitions = divided(inputs["flows"], inputs["topology"], settings, pool)
    if partitions is not None:
        if _run_partitions(stages, partitions, inputs["topology"], window, settings, pool, sink):
            return True
        sink.begin()
    if too_many(inputs["flows"].height, settings) and any(stage.per_job for stage in stages):
        return False
    log_partitions(stages, inputs["flows"].height, 1, window)
    for results in stage_runner.each_stage(stages, _whole(inputs), inputs["topology"], window, settings):
        sink.take(results, None)
    return True


def run_by_jobs(
    stages: Sequence[Stage], read: Reader, window: Window, settings: Settings, sink: Sink, *, flows: int
) -> None:
    """Take a window through stages; those that work job by job are given some jobs at a time.

    Parameters
    ----------
    read : finds what the sink was given before
    flows : how many flows the window has, look-back included
    """
    sink.begin()
    for per_job, neighbours in itertools.groupby(stages, key=lambda stage: stage.per_job):
        group = list(neighbours)
        if not per_job:
            sink.take(run_whole(group, read(tables_read_first(group)), window, settings), None)
            continue
        known = read(["jobs", "job_members"])
        for jobs in job_batches(known["jobs"], known["job_members"], _pieces(flows, settings)):
            inputs = read(tables_read_first(group), jobs)
            logger.info("window %s, %s: %d flows of some jobs", window, _names(group), inputs["flows"].height)
            sink.take(_run(group, inputs, window, settings), jobs)


def run_whole(
    stages: Sequence[Stage], inputs: Mapping[str, pl.DataFrame], window: Window, settings: Settings
) -> StageResults:
    """Run stages on the whole platform at once."""
    log_partitions(stages, inputs["flows"].height, 1, window)
    return _run(stages, inputs, window, settings)


def divided(
    flows: pl.DataFrame, topology: pl.DataFrame, settings: Settings, pool: Pool | None, *, tasks: int = 1
) -> Partitions | None:
    """Divide a platform, so that all processes have a partition and none has too many flows; None if it stays whole.

    The published method is never divided: it asks what happens in the whole platform.

    Parameters
    ----------
    tasks : partitions that machines are to share
    """
    processes = 1 if pool is None else 1 + pool.workers
    most = max(_pieces(flows.height, settings), processes, tasks)
    if most < 2 or settings.method.name != "joint":
        return None
    partitions = divide_platform(flows, topology, settings, most=most)
    return partitions if partitions.n_partitions > 1 else None


def too_many(flows: int, settings: Settings) -> bool:
    """Tell whether there are too many flows to be given to a stage at once."""
    return _pieces(flows, settings) > 1


def each_result(count: int, runners: Sequence[Runner]) -> Generator[tuple[int, StageResults], None, None]:
    """Yield the results of each partition with its number, as soon as they are there.

    Each runner has a thread, and takes another partition when it is done. The first one begins with the last and
    smallest partition, the others with the first and largest.

    Parameters
    ----------
    runners : functions from a partition's number to its results; what they raise is raised here
    """
    waiting = deque(range(count))
    running: dict[Future[StageResults], tuple[int, Runner, Callable[[], int]]] = {}
    with ThreadPoolExecutor(len(runners)) as threads:

        def start(run: Runner, take: Callable[[], int]) -> None:
            if waiting:
                number = take()
                running[threads.submit(run, number)] = (number, run, take)

        for at, run in enumerate(runners):
            start(run, waiting.popleft if at else waiting.pop)
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                number, run, take = running.pop(future)
                start(run, take)
                yield number, future.result()


def run_in_pool(pool: Pool, folder: Path, stages: Sequence[Stage], window: Window, settings: Settings) -> StageResults:
    """Run stages on the partition in a folder, in a worker; their tables are written to the folder."""
    return read_results(folder, pool.call(run_stages_on_files, folder, stages, window, settings))


def merged(
    stages: Sequence[Stage],
    results: Sequence[StageResults],
    tables: Collection[str],
    outside: pl.DataFrame,
    whole: Callable[[], Mapping[str, pl.DataFrame]],
    topology: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> StageResults:
    """Merge what stages made of partitions, and complete it by what only the whole platform shows.

    Parameters
    ----------
    results : of all partitions
    tables : those to be returned
    outside : as `partition.Partitions` has it
    whole : returns what the first stage reads, of the whole platform; called where a stage has to see it
    """
    missing = [stage for stage in stages if any(stage.name not in one.by_stage for one in results)]
    stage_ns = Counter[str]()
    for one in results:
        stage_ns.update(one.stage_ns)
    wanted = {*tables, "job_members"}.union(*(stage.reads for stage in missing))
    found: dict[str, pl.DataFrame] = {}
    by_stage: dict[str, dict[str, pl.DataFrame]] = {}
    for stage in stages:
        if stage in missing:
            alone = run_whole([stage], {**whole(), **found}, window, settings)
            stage_ns.update(alone.stage_ns)
            found |= alone.tables
        else:
            made = [one.by_stage[stage.name] for one in results]
            found |= {table: _together(table, made) for table in stage.writes if table in wanted}
            if "jobs" in stage.writes:
                found["jobs"] = with_unlisted(
                    *(found["jobs"], found["job_members"], TrafficIndex.of(outside, settings.traffic)),
                    *(topology, window, settings),
                )
        by_stage[stage.name] = {table: found[table] for table in stage.writes if table in tables}
    return StageResults(by_stage, dict(stage_ns))


def share_job_names(results: Iterable[StageResults]) -> bool:
    """Tell whether jobs of two partitions have one name: names are short, and each partition gives its own."""
    names = [one.tables["jobs"]["job_id"] for one in results if "jobs" in one.tables]
    return bool(names) and bool(pl.concat(names).is_duplicated().any())


def together(stage: Stage, batches: Sequence[StageResults]) -> StageResults:
    """Return what a stage made of several batches of jobs, or of all jobs at once, as one."""
    stage_ns = {stage.name: sum(one.stage_ns[stage.name] for one in batches)}
    made = [one.by_stage[stage.name] for one in batches]
    tables = {table: _together(table, made) if made else empty(table) for table in stage.writes}
    return StageResults({stage.name: tables}, stage_ns)


def log_partitions(stages: Sequence[Stage], flows: int, count: int, window: Window) -> None:
    """Log how a window's flows are given to stages."""
    way = "at once" if count == 1 else f"in {count} partitions"
    logger.info("window %s, %s: %d flows %s", window, _names(stages), flows, way)


def _run_partitions(
    stages: Sequence[Stage],
    partitions: Partitions,
    topology: pl.DataFrame,
    window: Window,
    settings: Settings,
    pool: Pool | None,
    sink: Sink,
) -> bool:
    """Take partitions through stages; their tables go to the sink as they come, but for those completed last.

    Returns
    -------
    False where jobs of two partitions have one name: only the whole platform tells them apart
    """
    log_partitions(stages, partitions.flows.height, partitions.n_partitions, window)
    kept: list[StageResults] = []
    early = {table for stage in stages for table in stage.writes}.difference(COMPLETED_LAST)

    def here(number: int) -> StageResults:
        return stage_runner.run_stages(stages, partitions.partition(number), topology, window, settings)

    def in_worker(pool: Pool, number: int) -> StageResults:
        of_partition = folder / str(number)
        write_partition(of_partition, partitions.partition(number))
        results = run_in_pool(pool, of_partition, stages, window, settings)
        shutil.rmtree(of_partition)  # what is mapped stays
        return results

    in_workers = [] if pool is None else [functools.partial(in_worker, pool)] * pool.workers
    with temporary_folder() as folder:
        write_frame(topology, folder, "topology")
        with closing(each_result(partitions.n_partitions, [here, *in_workers])) as each:
            for _, results in each:
                kept.append(_only(results, {*READ_WHOLE, *COMPLETED_LAST}))
                if share_job_names(kept):
                    return False
                jobs = results.tables["jobs"]["job_id"].to_list()
                sink.take(_only(results, early)._replace(stage_ns={}), jobs, more=partitions.n_partitions - len(kept))
    whole = {"flows": partitions.flows, "topology": topology}
    completed = merged(stages, kept, COMPLETED_LAST, partitions.outside, lambda: whole, topology, window, settings)
    sink.take(completed, None)
    return True


def _run(
    stages: Sequence[Stage], inputs: Mapping[str, pl.DataFrame], window: Window, settings: Settings
) -> StageResults:
    return stage_runner.run_stages(stages, _whole(inputs), inputs["topology"], window, settings)


def _whole(inputs: Mapping[str, pl.DataFrame]) -> Partition:
    """Return the flows and tables of the whole platform, or of some jobs, as one partition."""
    tables = {table: rows for table, rows in inputs.items() if table not in ("flows", "topology")}
    return Partition(inputs["flows"], tables=tables)


def _pieces(flows: int, settings: Settings) -> int:
    """Return into how many pieces flows must be divided so that no stage is given too many at once."""
    return math.ceil(flows / settings.batches.at_once)


def _names(stages: Sequence[Stage]) -> str:
    return ", ".join(stage.name for stage in stages)


def _only(results: StageResults, tables: Collection[str]) -> StageResults:
    by_stage = {
        stage: {table: rows for table, rows in written.items() if table in tables}
        for stage, written in results.by_stage.items()
    }
    return results._replace(by_stage=by_stage)


def _together(table: str, partitions: Sequence[Mapping[str, pl.DataFrame]]) -> pl.DataFrame:
    return pl.concat([tables[table] for tables in partitions]).sort(table_named(table).key)
