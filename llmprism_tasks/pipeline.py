"""One window through the plan: land, check, read, derive, write. Scheduler and command line both call these functions.

Each opens the warehouse for itself, reads, computes with nothing held, and writes in one transaction. So each may be
killed and run again, and the tables end the same.
"""

from __future__ import annotations

import functools
import itertools
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from llmprism_tasks import deriving, notifications
from llmprism_tasks.aside import Aside, Work, aside, at_once
from llmprism_tasks.deriving import Derived
from llmprism_tasks.errors import ContractError, TransientError
from llmprism_tasks.frames import conform
from llmprism_tasks.plan import DERIVED, LANDED, PARTS, STAGES, UNLISTED, Stage, stage_named, tables_after
from llmprism_tasks.settings import Settings
from llmprism_tasks.sharing import shared
from llmprism_tasks.sources import flows as sources
from llmprism_tasks.sources.topology import read_topology
from llmprism_tasks.tables import table_named
from llmprism_tasks.unlisted import unlisted_warning
from llmprism_tasks.warehouse import landing, store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.windows import ALL_TIME, NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.worker import Worker, working

logger = logging.getLogger(__name__)

READ = {table for stage in STAGES for table in stage.reads}

WORTH_A_WORKER = 4_000_000
"""Bytes of files of flows from which a worker saves more than its start costs: as Parquet, they hold 250,000 flows."""

LEAST_PARTS = 4
"""Parts that two processes share at least: who has more else to do takes fewer."""

WRITTEN_TOGETHER = 2
"""Parts that are written at a time: DuckDB logs what fills none of its row groups, and packs the last of each again."""

WHOLE = ("jobs", "job_members", "pairs", "steps")
"""Tables of which the last stage sees the whole platform, if it has to."""


@dataclass(frozen=True)
class Landed:
    """Flows that were landed just now.

    Attributes
    ----------
    frames : rows of `flows` of windows by their start
    others : starts of the other windows that the warehouse has
    """

    frames: Mapping[int, pl.DataFrame]
    others: Set[int]

    def of(self, span: Window) -> pl.DataFrame | None:
        """Return the flows of a span's windows, with what stages look at; None if not all of them are at hand."""
        if not self.frames or any(span.start_ns <= start_ns < span.end_ns for start_ns in self.others):
            return None
        starts = [start_ns for start_ns in sorted(self.frames) if span.start_ns <= start_ns < span.end_ns]
        return pl.concat([self.frames[start_ns].select(landing.SEEN) for start_ns in starts], rechunk=len(starts) > 1)


def nothing() -> None:
    """Do nothing."""


def seconds_to_wait(window: Window, settings: Settings, *, now_ns: int) -> float:
    """Return how long to wait before asking again whether a window can be run; 0 when it can be, now.

    It can be run once its flows have arrived, or its allowed lateness has passed. Each wait is a quarter of the time
    since the window's end, a second at least: flows that come soon are noticed soon, and late ones cost little.

    Parameters
    ----------
    now_ns : the time, nanoseconds since the Unix epoch
    """
    left_ns = window.end_ns + settings.window.allowed_lateness_ns - now_ns
    if left_ns <= 0 or landing.flows_arrived(window, settings.places.flows):
        return 0.0
    pause_ns = max((now_ns - window.end_ns) // 4, NANOSECONDS_PER_SECOND)
    logger.info(
        "window %s: flows have not arrived; waiting up to %.0f s more", window, left_ns / NANOSECONDS_PER_SECOND
    )
    return min(pause_ns, left_ns) / NANOSECONDS_PER_SECOND


def land_window(window: Window, settings: Settings) -> dict[str, int]:
    """Land a window's flows, and those of its look-back that are not in the warehouse yet.

    Returns
    -------
    how many records were `read`, `landed`, `quarantined` and, among the last, `duplicate`, for the window alone
    """
    warehouse = _ready(settings)
    lateness_ns = settings.window.allowed_lateness_ns
    landing.land_lookback(
        warehouse,
        window,
        settings.places.flows,
        lookback_windows=settings.window.lookback_windows,
        lateness_ns=lateness_ns,
    )
    return landing.land(warehouse, window, settings.places.flows, lateness_ns=lateness_ns)


def validate_landed(window: Window, settings: Settings, *, warehouse: Warehouse | None = None) -> dict[str, int]:
    """Check what was landed, before anything that stages make of it is written.

    Parameters
    ----------
    warehouse : when it was opened already

    Returns
    -------
    how many expectations were `checked`, and how many of them are `broken` and do not stop the window

    Raises
    ------
    ContractError : a critical expectation is broken; the window is `stopped`, its flows and quarantine stay
    """
    return _validate(warehouse or _open(settings), window, (*LANDED, "windows"))


def run_stage(
    name: str,
    window: Window,
    settings: Settings,
    *,
    jobs: Sequence[str] | None = None,
    warehouse: Warehouse | None = None,
    held: dict[str, pl.DataFrame] | None = None,
    writing: Callable[[Work], None] = at_once,
) -> dict[str, int]:
    """Run one stage of the plan for a window: read its tables, derive, replace the window's rows.

    Parameters
    ----------
    jobs : only these jobs of the window, if the plan has the stage `per_job`; the others' rows stay as they are
    warehouse : when it was opened already
    held : tables that need not be read, as `derive_tables` keeps them; what the stage writes is added
    writing : given the work of writing, does it or sees to it that it is done

    Returns
    -------
    rows written per table
    """
    stage = stage_named(name)
    if jobs is not None and not stage.per_job:
        raise ContractError(
            found=f"stage {name} called for some jobs only",
            expected="a stage that the plan has as per_job",
            todo="Run it for the whole window.",
        )
    warehouse = warehouse or _open(settings)
    began_ns = time.monotonic_ns()
    held = {} if held is None else held
    absent = [table for table in stage.reads if table not in held]
    held |= _read(warehouse, absent, window, settings, jobs, stage.flow_columns)
    results = _results(stage, {table: held[table] for table in stage.reads}, window, settings)
    written: Mapping[str, pl.DataFrame] = dict(zip(stage.writes, results, strict=True))
    clears = tables_after(name)
    writing(
        lambda: store.replace(
            warehouse, window, written, clears=clears, jobs=jobs, ordered=True, stage=name, began_ns=began_ns
        )
    )
    held |= {table: conform(frame, table, ordered=True) for table, frame in written.items() if table in READ}
    rows = {table: frame.height for table, frame in written.items()}
    logger.info("window %s, %s: %s", window, name, ", ".join(f"{count} {table}" for table, count in rows.items()))
    return rows


def _results(
    stage: Stage, frames: Mapping[str, pl.DataFrame], window: Window, settings: Settings
) -> Sequence[pl.DataFrame]:
    """Return what a stage makes of frames: of many flows, part by part of the platform, as far as it can be parted."""
    flows, function = frames["flows"], deriving.function_of(stage, settings.method.name)
    pieces = math.ceil(flows.height / settings.batches.at_once)
    if pieces > 1 and not stage.per_job and settings.method.name == "joint":
        topology = frames["topology"]
        parts = deriving.named(PARTS)(flows, topology, settings.traffic, most=pieces)
        known = {table: frame for table, frame in frames.items() if table not in ("flows", "topology")}
        if parts.number > 1:
            parts = parts._replace(tables=known)
            with _helped(settings) as worker, shared(parts, worker, topology, window, settings, [stage.name]) as each:
                made = list(each)
            if all(one.tables for one in made) and not _share_names(made):
                return list(_together(made, stage.writes, parts.outside, topology, window, settings).values())
    return function(**frames, window=window, settings=settings)


def _together(
    made: Sequence[Derived],
    tables: Sequence[str],
    outside: pl.DataFrame,
    topology: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> dict[str, pl.DataFrame]:
    """Put together what the stages made of parts, and complete it by what only the whole platform tells.

    Parameters
    ----------
    outside : as `stages.parts.Parts` has it
    """
    whole = {table: pl.concat([one.tables[table] for one in made]).sort(table_named(table).key) for table in tables}
    if "jobs" in whole:
        complete = deriving.named(UNLISTED)
        whole["jobs"] = complete(whole["jobs"], whole["job_members"], outside, topology, window, settings)
    return whole


def derive_tables(
    window: Window,
    settings: Settings,
    *,
    warehouse: Warehouse | None = None,
    landed: Landed | None = None,
    worker: Worker | None = None,
    writing: Aside | None = None,
    checked: Work = nothing,
) -> None:
    """Run all stages of the plan for a landed window; what one stage reads or writes, the next need not read again.

    Of many flows, the stages see those of one part of the platform at a time, and a worker takes some of the parts.
    Where they cannot be parted, for all hosts exchange data, the stages that work job by job see those of some jobs at
    a time. Tables are written while the next stage or part is at work.

    Parameters
    ----------
    warehouse : when it was opened already
    landed : rows of `flows` that need not be read
    worker : who shares the work
    writing : who writes; without one, all is written at the end
    checked : called before anything is written, and before flows are read that are not at hand
    """
    warehouse = warehouse or _open(settings)
    flows = None if landed is None else landed.of(window.lookback(settings.window.lookback_windows))
    if flows is None:
        if writing is not None:
            writing.wait()
        checked()
        checked = nothing
        windows = _windows(warehouse, window, settings)
        many = int(windows["rows_landed"].sum())
        if many > settings.batches.held:
            _by_jobs(window, settings, warehouse, math.ceil(many / settings.batches.at_once))
            return
        flows = _read(warehouse, ["flows"], window, settings, None, landing.SEEN)["flows"]
    held = {"flows": flows}
    pieces = math.ceil(flows.height / settings.batches.at_once)
    with aside() if writing is None else nullcontext(writing) as writer:
        writer(checked)
        if (pieces > 1 or worker) and settings.method.name == "joint":
            held["topology"] = read_topology(settings.places.topology)
            most = max(pieces, LEAST_PARTS if worker else 1)
            parts = deriving.named(PARTS)(flows, held["topology"], settings.traffic, most=most)
            if parts.number > 1:
                with shared(parts, worker, held["topology"], window, settings) as each:
                    if _by_parts(each, parts.outside, held, window, settings, warehouse, writer):
                        return
                writer.wait()
                pieces = 1
        if pieces > 1:
            writer.wait()
            del held, flows
            _by_jobs(window, settings, warehouse, pieces)
            return
        for stage in STAGES:
            run_stage(stage.name, window, settings, warehouse=warehouse, held=held, writing=writer)


def _by_parts(
    each: Iterator[Derived],
    outside: pl.DataFrame,
    held: dict[str, pl.DataFrame],
    window: Window,
    settings: Settings,
    warehouse: Warehouse,
    writing: Aside,
) -> bool:
    """Write what the stages make of the parts of a platform, and see to what only the whole of it tells.

    Returns
    -------
    False where jobs of two parts have one name: then only the whole platform tells them apart
    """
    made: list[Derived] = []
    waiting: list[Derived] = []
    writing(functools.partial(store.replace, warehouse, window, {}, clears=DERIVED))
    for derived in each:
        made.append(derived)
        if _share_names(made):
            return False
        waiting.append(derived)
        if len(waiting) == WRITTEN_TOGETHER:
            writing(functools.partial(_write_parts, warehouse, window, waiting))
            waiting = []
    writing(functools.partial(_write_parts, warehouse, window, waiting))
    writing.wait()
    held |= _together(made, WHOLE, outside, held["topology"], window, settings)
    store.replace(warehouse, window, {"jobs": held["jobs"]})
    whole = [one.tables["diagnoses"] for one in made if "diagnoses" in one.tables]
    if len(whole) == len(made):
        store.replace(warehouse, window, {"diagnoses": pl.concat(whole)})
    else:
        run_stage("diagnosis", window, settings, warehouse=warehouse, held=held)
    store.record_stages(warehouse, window, sum((Counter(one.stage_ns) for one in made), Counter()))
    return True


def _share_names(made: Sequence[Derived]) -> bool:
    """Tell whether jobs of two parts have one name: names are short, and each part gives its own."""
    names = pl.concat(
        [pl.Series(dtype=pl.String), *(one.tables["jobs"]["job_id"] for one in made if "jobs" in one.tables)]
    )
    return bool(names.is_duplicated().any())


def _write_parts(warehouse: Warehouse, window: Window, parts: Sequence[Derived]) -> None:
    """Write and let go what parts' stages made, but for what is still to be completed."""
    if not parts:
        return
    jobs = [job_id for part in parts for job_id in part.tables["jobs"]["job_id"]]
    names = parts[0].tables.keys() - {"jobs", "diagnoses"}
    tables = {table: pl.concat([part.tables[table] for part in parts]) for table in sorted(names)}
    store.replace(warehouse, window, tables, jobs=jobs, ordered=True)
    for part in parts:
        for table in names - {*WHOLE}:
            del part.tables[table]


def _by_jobs(window: Window, settings: Settings, warehouse: Warehouse, parts: int) -> None:
    """Take a window through the stages, those that work job by job with some jobs at a time."""
    for per_job, neighbours in itertools.groupby(STAGES, key=lambda stage: stage.per_job):
        stages = list(neighbours)
        batches = [*_dealt(store.read(warehouse, "jobs", window), parts)] if per_job else [None]
        for jobs in batches:
            tables: dict[str, pl.DataFrame] = {}
            for stage in stages:
                run_stage(stage.name, window, settings, jobs=jobs, warehouse=warehouse, held=tables)


def job_batches(window: Window, settings: Settings) -> list[list[str]]:
    """Group a window's jobs into batches that are worth a task each.

    Their number follows the flows that a stage reads (look-back included); a job's share of them is taken to be its
    share of the endpoints. The largest jobs are dealt first, each to the batch with the fewest endpoints.

    Returns
    -------
    job ids, batch by batch, every job in exactly one of them; empty when the window has no jobs
    """
    warehouse = _open(settings)
    worth = int(_windows(warehouse, window, settings)["rows_landed"].sum()) // settings.batches.flows
    return _dealt(store.read(warehouse, "jobs", window), min(max(worth, 1), settings.batches.most))


def _windows(warehouse: Warehouse, window: Window, settings: Settings) -> pl.DataFrame:
    """Return the windows whose flows a stage reads, look-back included: `window_start_ns`, `rows_landed`."""
    span = window.lookback(settings.window.lookback_windows)
    return store.read(warehouse, "windows", span, columns=["window_start_ns", "rows_landed"])


def _dealt(jobs: pl.DataFrame, parts: int) -> list[list[str]]:
    """Deal jobs into so many batches at most, none of them empty, with about as many endpoints in each."""
    batches: list[list[str]] = [[] for _ in range(min(parts, jobs.height))]
    endpoints = [0] * len(batches)
    for job_id, members in (
        jobs.sort("endpoints", "job_id", descending=[True, False]).select("job_id", "endpoints").iter_rows()
    ):
        lightest = endpoints.index(min(endpoints))
        batches[lightest].append(job_id)
        endpoints[lightest] += members
    return batches


def validate_results(window: Window, settings: Settings, *, warehouse: Warehouse | None = None) -> dict[str, int]:
    """Check what the stages wrote; takes, returns and raises what `validate_landed` does.

    Where only some jobs' rows break critical expectations, these jobs are set aside, and the window goes on.
    """
    return _validate(warehouse or _open(settings), window, DERIVED, by_job=True)


def finish(window: Window, settings: Settings, *, warehouse: Warehouse | None = None) -> dict[str, int]:
    """Mark a window as done.

    Parameters
    ----------
    warehouse : when it was opened already

    Returns
    -------
    how many `diagnoses` it ended with
    """
    warehouse = warehouse or _open(settings)
    store.record_window(warehouse, window, status="done")
    return {"diagnoses": store.read(warehouse, "diagnoses", window, columns=["kind"]).height}


def call_out(window: Window, settings: Settings, *, now_ns: int) -> dict[str, int]:
    """Tell of incidents that opened or closed, once a window is done; what goes wrong here is logged, never raised.

    Parameters
    ----------
    now_ns : the time, nanoseconds since the Unix epoch

    Returns
    -------
    how many messages were `sent`, and how many were `not_sent`
    """
    warehouse = Warehouse(settings.places.warehouse, settings.warehouse.lock_wait_s)  # up to date: a window was written
    try:
        return notifications.call_out(warehouse, window, settings.notify, now_ns=now_ns)
    except TransientError as error:
        logger.warning("window %s: the next one will tell of its incidents: %s", window, error)
        return {"sent": 0, "not_sent": 0}


def run_window(window: Window, settings: Settings) -> None:
    """Run everything for one window in this process, landing first."""
    land_window(window, settings)
    _derive(_open(settings), window, settings)


def analyze(settings: Settings, *, on_window: Callable[[Window, int, int], None] | None = None) -> list[Window]:
    """Run every window found in the flows, oldest first; a window that is stopped does not hold up the others.

    Parameters
    ----------
    on_window : called before each window with the window, how many came before it, and how many there are

    Returns
    -------
    the windows

    Raises
    ------
    ContractError : windows were stopped; the others are done
    """
    with _sharing(settings) as worker, aside() as writing:
        return _analyze(settings, worker, writing, on_window)


def _sharing(settings: Settings) -> AbstractContextManager[Worker | None]:
    """Start a worker, if there are so many flows that it pays; it gets ready while they are landed."""
    files = sources.find(settings.places.flows, length_ns=settings.window.length_ns)
    worth = sum(Path(file.path).stat().st_size for file in files) >= WORTH_A_WORKER
    return _helped(settings) if worth else nullcontext()


def _helped(settings: Settings) -> AbstractContextManager[Worker | None]:
    """Start a worker where there is a processor for it."""
    return working(settings) if len(os.sched_getaffinity(0)) > 1 else nullcontext()


def _analyze(
    settings: Settings,
    worker: Worker | None,
    writing: Aside,
    on_window: Callable[[Window, int, int], None] | None,
) -> list[Window]:
    warehouse = _ready(settings)
    threading.Thread(target=_import_the_rest, args=(settings,), daemon=True).start()
    before = store.read(warehouse, "windows", ALL_TIME, columns=["window_start_ns"])["window_start_ns"]
    frames: dict[int, pl.DataFrame] = {}
    windows = landing.land_all(
        warehouse,
        settings.places.flows,
        length_ns=settings.window.length_ns,
        lateness_ns=settings.window.allowed_lateness_ns,
        held=frames,
        writing=writing,
    )
    landed = Landed(frames, {*before, *(window.start_ns for window in windows)} - frames.keys())
    stopped: list[ContractError] = []
    for number, window in enumerate(windows):
        if on_window is not None:
            on_window(window, number, len(windows))
        try:
            _derive(warehouse, window, settings, landed, worker, writing)
        except ContractError as error:
            logger.error("%s", error)
            stopped.append(error)
    _say_if_strangers(warehouse, windows, settings)
    _say_if_unlisted(warehouse, windows)
    if stopped:
        first = stopped[0]
        raise ContractError(
            found=f"{len(stopped)} of {len(windows)} windows stopped, the first with: {first.found}",
            expected=first.expected,
            todo=first.todo,
        )
    return windows


def _import_the_rest(settings: Settings) -> None:
    """Import what checks and stages are made of, which takes a second, while files are read and Python is idle."""
    from llmprism_tasks import warm  # noqa: PLC0415 - brings Great Expectations

    warm.checks()
    warm.stages(settings.method.name)


def _say_if_strangers(warehouse: Warehouse, windows: Sequence[Window], settings: Settings) -> None:
    """Warn when not one NIC of the topology is in the flows: all would be well with jobs that nobody could see."""
    if not windows:
        return
    span = Window(windows[0].start_ns, windows[-1].end_ns - windows[0].start_ns)
    nics = read_topology(settings.places.topology)["addr"]
    if store.sees(warehouse, span, nics):
        return
    seen = store.addresses(warehouse, span)
    if seen:
        logger.warning(
            "none of the %d NICs of %s is among the %d addresses of the flows, such as %s: no job can be seen. "
            "Check that both write addresses alike.",
            len(nics),
            settings.places.topology,
            len(seen),
            min(seen),
        )


def _say_if_unlisted(warehouse: Warehouse, windows: Sequence[Window]) -> None:
    """Warn when addresses that the topology lacks train with those it has: jobs are then seen without them."""
    if not windows:
        return
    span = Window(windows[0].start_ns, windows[-1].end_ns - windows[0].start_ns)
    jobs = store.read(warehouse, "jobs", span).drop_nulls("unlisted")
    if jobs.height:
        logger.warning("%s", unlisted_warning(dict(jobs.select("job_id", "unlisted").iter_rows())))


def _derive(
    warehouse: Warehouse,
    window: Window,
    settings: Settings,
    landed: Landed | None = None,
    worker: Worker | None = None,
    writing: Aside | None = None,
) -> None:
    """Take a landed window to its end; `landed`, `worker` and `writing` as of `derive_tables`."""
    checked = functools.partial(validate_landed, window, settings, warehouse=warehouse)
    try:
        derive_tables(
            *(window, settings), warehouse=warehouse, landed=landed, worker=worker, writing=writing, checked=checked
        )
    finally:
        if writing is not None:
            writing.wait()  # what is wrong with the flows is told before what stages made of them
    validate_results(window, settings, warehouse=warehouse)
    finish(window, settings, warehouse=warehouse)
    call_out(window, settings, now_ns=time.time_ns())


def _ready(settings: Settings) -> Warehouse:
    """Open the warehouse to land in it; what would stop the window later anyway stops it before anything is cleared.

    Raises
    ------
    InputError : the topology cannot be read
    SettingsError : the warehouse holds windows of another length
    """
    read_topology(settings.places.topology)
    warehouse = _open(settings)
    landing.check_length(warehouse, settings.window.length_ns)
    return warehouse


def _open(settings: Settings) -> Warehouse:
    return open_warehouse(settings.places.warehouse, lock_wait_s=settings.warehouse.lock_wait_s)


def _read(
    warehouse: Warehouse,
    tables: Sequence[str],
    window: Window,
    settings: Settings,
    jobs: Sequence[str] | None,
    flow_columns: Sequence[str],
) -> dict[str, pl.DataFrame]:
    """Read a stage's tables as the plan promises them: flows with look-back, the topology whole."""
    lookback = window.lookback(settings.window.lookback_windows)
    spans = {table: lookback if table == "flows" else window for table in tables if table != "topology"}
    topology = {"topology": read_topology(settings.places.topology)} if "topology" in tables else {}
    return store.read_each(warehouse, spans, jobs=jobs, columns={"flows": flow_columns}) | topology


def _validate(warehouse: Warehouse, window: Window, tables: Sequence[str], *, by_job: bool = False) -> dict[str, int]:
    """Run the suites of some tables; stop the window when a critical expectation is broken, by more than some jobs."""
    from llmprism_tasks import validation  # noqa: PLC0415 - brings Great Expectations, for this task only

    results = (validation.validate_by_job if by_job else validation.validate)(warehouse, window, tables)
    stopping = validation.stopping_error(window, results)
    if stopping is not None:
        store.record_window(warehouse, window, status="stopped", reason=stopping.found)
        raise stopping
    warning = validation.set_aside_warning(window, results)
    if warning is not None:
        logger.warning("%s", warning)
    return {"checked": results.height, "broken": results.filter(~pl.col("success")).height}
