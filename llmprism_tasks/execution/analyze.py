"""All windows of some flow files, one after another, in this process and its workers: what `llmprism analyze` does."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, replace

import polars as pl

from llmprism_tasks import validation
from llmprism_tasks.contract.errors import ContractError, LlmprismError
from llmprism_tasks.contract.plan import STAGES
from llmprism_tasks.contract.windows import ALL_TIME, Window
from llmprism_tasks.execution.catch_up import land_again, mark_late
from llmprism_tasks.execution.partitions import stage_runner
from llmprism_tasks.execution.partitions.partitioned import run_by_jobs, run_in_memory, tables_read_first
from llmprism_tasks.execution.partitions.pool import Pool, pool_for_flows
from llmprism_tasks.execution.stage_task import conclude
from llmprism_tasks.execution.window import (
    intake,
    open_configured,
    open_for_landing,
    read_inputs,
    send_messages,
    validate_landed,
)
from llmprism_tasks.execution.writer import TableWriter, Work, Writer, background_writer
from llmprism_tasks.reports.minute_states import LOOKBACK_CHANGED, WORDS, due, read_states
from llmprism_tasks.reports.missing_nics import unlisted_warning
from llmprism_tasks.settings import Settings
from llmprism_tasks.sources.topology import read_topology
from llmprism_tasks.warehouse import landed_flows, store
from llmprism_tasks.warehouse.bookkeeping.minutes import Run
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import landing
from llmprism_tasks.warehouse.landing.records import FARTHEST_NS
from llmprism_tasks.warehouse.upkeep import expiry

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LandedFlows:
    """Flows that this process has just landed, and still holds in memory.

    Attributes
    ----------
    frames : rows of `flows` of windows, by the window's start
    others : starts of the other windows that the warehouse holds
    """

    frames: Mapping[int, pl.DataFrame]
    others: Set[int]

    def of(self, span: Window) -> pl.DataFrame | None:
        """Return the flows of a span's windows, with the columns that stages use; None if some are not in memory."""
        if not self.frames or any(span.start_ns <= start_ns < span.end_ns for start_ns in self.others):
            return None
        starts = [start_ns for start_ns in sorted(self.frames) if span.start_ns <= start_ns < span.end_ns]
        return pl.concat(
            [self.frames[start_ns].select(landing.STAGE_COLUMNS) for start_ns in starts], rechunk=len(starts) > 1
        )


def analyze(
    settings: Settings,
    *,
    pool: Pool | None = None,
    on_window: Callable[[Window, int, int], None] | None = None,
) -> list[Window]:
    """Run every window found in the flows, oldest first; a window that is stopped does not hold up the others.

    Parameters
    ----------
    pool : worker processes that take partitions of large windows
    on_window : called before each window with the window, how many came before it, and how many there are

    Returns
    -------
    the windows

    Raises
    ------
    ContractError : windows were stopped; the others are done
    """
    with background_writer() as writer:
        return _analyze(settings, pool, writer, on_window)


def _analyze(
    settings: Settings,
    pool: Pool | None,
    writer: Writer,
    on_window: Callable[[Window, int, int], None] | None,
) -> list[Window]:
    warehouse, before = open_for_landing(settings)
    frames: dict[int, pl.DataFrame] = {}
    windows = landing.land_all(
        warehouse,
        settings.places.flows,
        length_ns=settings.window.length_ns,
        held=frames,
        submit=writer.submit,
        intake=replace(intake(settings, now_ns=time.time_ns()), young_ns=0),  # who names files says that they are whole
        check=functools.partial(_refuse_expired, warehouse, settings),
        run=Run(settings.window.lookback_windows, time.time_ns()),
    )
    # while windows are written; not while files are read, which takes most memory where addresses are without number
    threading.Thread(target=preload, args=(settings.method.name,), daemon=True).start()
    landed = LandedFlows(frames, {*before, *(window.start_ns for window in windows)} - frames.keys())
    stopped: list[ContractError] = []
    for number, window in enumerate(windows):
        if on_window is not None:
            on_window(window, number, len(windows))
        try:
            run_landed(window, settings, warehouse=warehouse, landed=landed, pool=pool, writer=writer)
        except ContractError as error:
            logger.error("%s", error)
            stopped.append(error)
    stopped += _run_what_looks_back(warehouse, settings, pool)
    _warn_of_missing_nics(warehouse, windows, settings)
    _warn_of_the_future(windows, now_ns=time.time_ns())
    if stopped:
        first = stopped[0]
        raise ContractError(
            found=f"{len(stopped)} of {len(windows)} windows stopped, the first with: {first.found}",
            expected=first.expected,
            todo=first.todo,
        )
    return windows


def _refuse_expired(warehouse: Warehouse, settings: Settings, windows: Mapping[Window, int]) -> None:
    """Refuse windows that look back on flows which have expired and are not among these windows, and windows whose
    flows have expired and of which fewer records are there now.

    Parameters
    ----------
    windows : with how many records the files have of each
    """
    expiry.refuse_fewer(warehouse, windows)
    anew = {window.start_ns for window in windows}
    lookback = settings.window.lookback_windows
    for window in windows:
        if any(window.shifted(-back).start_ns not in anew for back in range(1, lookback + 1)):
            expiry.refuse_expired(warehouse, window, lookback_windows=lookback, anew=anew)


def _run_what_looks_back(warehouse: Warehouse, settings: Settings, pool: Pool | None) -> list[ContractError]:
    """Run the windows again that look back at windows whose flows have changed; returns the errors that stopped some.

    They are later windows of the warehouse, of which the files have no flows.
    """
    found = read_states(warehouse, settings, now_ns=time.time_ns()).filter(pl.col("reason") == LOOKBACK_CHANGED)
    stopped = []
    for start_ns in found["window_start_ns"].sort():
        window = Window(start_ns, settings.window.length_ns)
        logger.info("window %s: run again, for %s", window, WORDS[LOOKBACK_CHANGED])
        try:
            land_again(window, settings, now_ns=time.time_ns())
            run_landed(window, settings, warehouse=warehouse, pool=pool)
        except ContractError as error:
            logger.error("%s", error)
            stopped.append(error)
    return stopped


def run_due(settings: Settings) -> tuple[list[Window], list[LlmprismError]]:
    """Run all windows that are due, newest first, until none is that has not failed; also those that were given up.

    Returns
    -------
    the windows that are done, each as often as it was run, and the errors of those that failed
    """
    warehouse = open_configured(settings)
    done: list[Window] = []
    failed: dict[int, LlmprismError] = {}
    mark_late(warehouse, store.read(warehouse, "minutes", ALL_TIME), settings, now_ns=time.time_ns())
    while True:
        waiting = due(read_states(warehouse, settings, now_ns=time.time_ns()))
        starts = [start_ns for start_ns in waiting["window_start_ns"] if start_ns not in failed]
        if not starts:
            return done, list(failed.values())
        window = Window(starts[0], settings.window.length_ns)
        try:
            land_again(window, settings, now_ns=time.time_ns())
            span = window.lookback(settings.window.lookback_windows)
            flows = int(store.read(warehouse, "windows", span, columns=["rows_landed"])["rows_landed"].sum())
            with pool_for_flows(flows, settings) as pool:
                run_landed(window, settings, warehouse=warehouse, pool=pool)
            done.append(window)
        except LlmprismError as error:
            logger.error("%s", error)
            failed[window.start_ns] = error


def run_landed(
    window: Window,
    settings: Settings,
    *,
    warehouse: Warehouse | None = None,
    landed: LandedFlows | None = None,
    pool: Pool | None = None,
    writer: Writer | None = None,
) -> None:
    """Take a landed window to its end: validation, all stages, validation of the results, messages.

    Parameters
    ----------
    warehouse, landed, pool, writer : as of `derive_tables`
    """
    warehouse = warehouse or open_configured(settings)
    check = functools.partial(validate_landed, window, settings, warehouse=warehouse)
    try:
        derive_tables(window, settings, warehouse=warehouse, landed=landed, pool=pool, writer=writer, first=check)
    finally:
        if writer is not None:
            writer.wait()  # an error in the flows is raised before an error in what stages made of them
    conclude(window, settings, warehouse=warehouse)
    send_messages(window, settings, now_ns=time.time_ns(), warehouse=warehouse)


def derive_tables(
    window: Window,
    settings: Settings,
    *,
    warehouse: Warehouse | None = None,
    landed: LandedFlows | None = None,
    pool: Pool | None = None,
    writer: Writer | None = None,
    first: Work | None = None,
) -> None:
    """Run all stages of the plan for a landed window; tables are written while stages are running.

    Parameters
    ----------
    warehouse : if it is open already
    landed : flows that need not be read
    pool : worker processes that share the work
    writer : the background thread that writes; without one, everything is written when this returns
    first : called before anything is written, and before flows are read that are not in memory
    """
    warehouse = warehouse or open_configured(settings)
    read = functools.partial(read_inputs, warehouse, window, settings)
    with background_writer() if writer is None else nullcontext(writer) as thread:
        if first is not None:
            thread.submit(first)
        with TableWriter(warehouse, window, thread) as tables:
            flows = None if landed is None else landed.of(window.lookback(settings.window.lookback_windows))
            if flows is None:
                tables.wait()
                inputs = read(tables_read_first(STAGES))
            else:
                inputs = {"flows": flows, "topology": read_topology(settings.places.topology)}
            if not run_in_memory(STAGES, inputs, window, settings, pool, tables):
                count = inputs["flows"].height
                del inputs, flows
                run_by_jobs(STAGES, _after_writing(tables, read), window, settings, tables, flows=count)
            tables.end()


def _after_writing(
    tables: TableWriter, read: Callable[..., dict[str, pl.DataFrame]]
) -> Callable[..., dict[str, pl.DataFrame]]:
    """Return a function that reads what `read` does, once everything is written that was taken before."""

    def read_written(wanted: Sequence[str], jobs: Sequence[str] | None = None) -> dict[str, pl.DataFrame]:
        tables.wait()
        return read(wanted, jobs)

    return read_written


def preload(method: str) -> None:
    """Import what validation and the stages need, which takes a second, before it is needed.

    No thread is started: a process that imports this may be forked afterwards, as Airflow's scheduler does.
    """
    validation.prepare()
    stage_runner.stage_functions(method)


def _warn_of_the_future(windows: Sequence[Window], *, now_ns: int) -> None:
    """Warn of windows of later days: a clock that is wrong, or another unit of time; the report would look healthy."""
    later = [window for window in windows if window.start_ns > now_ns + FARTHEST_NS]
    if later:
        logger.warning(
            "%d of %d windows are more than a day in the future, the last is %s. Check the collector's clock, and the "
            "unit of its times (--columns).",
            len(later),
            len(windows),
            later[-1],
        )


def _warn_of_missing_nics(warehouse: Warehouse, windows: Sequence[Window], settings: Settings) -> None:
    """Warn of jobs that train with NICs which the topology does not list, and when no job can be seen at all."""
    if not windows:
        return
    span = Window(windows[0].start_ns, windows[-1].end_ns - windows[0].start_ns)
    jobs = store.read(warehouse, "jobs", span, columns=["job_id", "unlisted"])
    unlisted = jobs.drop_nulls("unlisted")
    if unlisted.height:
        logger.warning("%s", unlisted_warning(dict(unlisted.iter_rows())))
    if jobs.is_empty():
        _warn_if_topology_is_of_others(warehouse, span, settings)


def _warn_if_topology_is_of_others(warehouse: Warehouse, span: Window, settings: Settings) -> None:
    """Warn when not one NIC of the topology is in the flows: without this, an empty report would look healthy."""
    nics = read_topology(settings.places.topology)["addr"]
    if nics.is_empty():
        logger.warning("%s lists no NIC: no job can be seen. Add a row for each.", settings.places.topology)
        return
    if landed_flows.sees(warehouse, span, nics):
        return
    seen = landed_flows.addresses(warehouse, span)
    if seen:
        logger.warning(
            "none of the %d NICs of %s is among the %d addresses of the flows, such as %s: no job can be seen. "
            "Check that both write addresses alike.",
            len(nics),
            settings.places.topology,
            len(seen),
            min(seen),
        )
