"""One window through the plan: land, check, read, derive, write. Scheduler and command line both call these functions.

Each opens the warehouse for itself, reads, computes with nothing held, and writes in one transaction. So each may be
killed and run again, and the tables end the same. Only the last parts of a large platform are written while others are
still at work.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence

import polars as pl

from llmprism_tasks import notifications, validation
from llmprism_tasks.aside import Aside, aside
from llmprism_tasks.errors import ContractError, TransientError
from llmprism_tasks.plan import DERIVED, LANDED
from llmprism_tasks.running import Landed, derive_tables, forget_drafts, opened, run_stage
from llmprism_tasks.settings import Settings
from llmprism_tasks.sources.topology import read_topology
from llmprism_tasks.unlisted import unlisted_warning
from llmprism_tasks.validation import data_docs
from llmprism_tasks.warehouse import landing, store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.worker import Worker

__all__ = [
    "analyze",
    "call_out",
    "derive_tables",
    "finish",
    "land_window",
    "run_stage",
    "run_window",
    "seconds_to_wait",
    "validate_landed",
    "validate_results",
]

logger = logging.getLogger(__name__)


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
    warehouse, _ = _ready(settings)
    for later in range(settings.window.lookback_windows + 1):  # all that look at these flows
        forget_drafts(window.shifted(later), settings)
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
    return _validate(warehouse or opened(settings), window, settings, (*LANDED, "windows"))


def validate_results(window: Window, settings: Settings, *, warehouse: Warehouse | None = None) -> dict[str, int]:
    """Check what the stages wrote; takes, returns and raises what `validate_landed` does.

    Where only some jobs' rows break critical expectations, these jobs are set aside, and the window goes on.
    """
    return _validate(warehouse or opened(settings), window, settings, DERIVED, by_job=True)


def finish(window: Window, settings: Settings, *, warehouse: Warehouse | None = None) -> dict[str, int]:
    """Mark a window as done.

    Parameters
    ----------
    warehouse : when it was opened already

    Returns
    -------
    how many `diagnoses` it ended with
    """
    diagnoses = store.record_done(warehouse or opened(settings), window)
    forget_drafts(window, settings)
    return {"diagnoses": diagnoses}


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
    _derive(opened(settings), window, settings)


def analyze(
    settings: Settings,
    *,
    worker: Worker | None = None,
    on_window: Callable[[Window, int, int], None] | None = None,
) -> list[Window]:
    """Run every window found in the flows, oldest first; a window that is stopped does not hold up the others.

    Parameters
    ----------
    worker : who shares the work
    on_window : called before each window with the window, how many came before it, and how many there are

    Returns
    -------
    the windows

    Raises
    ------
    ContractError : windows were stopped; the others are done
    """
    with aside() as writing:
        return _analyze(settings, worker, writing, on_window)


def _analyze(
    settings: Settings,
    worker: Worker | None,
    writing: Aside,
    on_window: Callable[[Window, int, int], None] | None,
) -> list[Window]:
    warehouse, before = _ready(settings)
    if worker is None:  # else both processors are busy as it is
        threading.Thread(target=_import_the_rest, args=(settings,), daemon=True).start()
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
    _say_what_is_odd(warehouse, windows, settings)
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


def _say_what_is_odd(warehouse: Warehouse, windows: Sequence[Window], settings: Settings) -> None:
    """Warn of jobs that are seen without some of their NICs, and when no job can be seen at all."""
    if not windows:
        return
    span = Window(windows[0].start_ns, windows[-1].end_ns - windows[0].start_ns)
    jobs = store.read(warehouse, "jobs", span, columns=["job_id", "unlisted"])
    unlisted = jobs.drop_nulls("unlisted")
    if unlisted.height:
        logger.warning("%s", unlisted_warning(dict(unlisted.iter_rows())))
    if jobs.is_empty():
        _say_if_strangers(warehouse, span, settings)


def _say_if_strangers(warehouse: Warehouse, span: Window, settings: Settings) -> None:
    """Warn when not one NIC of the topology is in the flows: all would be well with jobs that nobody could see."""
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


def _ready(settings: Settings) -> tuple[Warehouse, pl.Series]:
    """Open the warehouse to land in it; what would stop the window later anyway stops it before anything is cleared.

    Returns
    -------
    the warehouse, and the starts of the windows that it has

    Raises
    ------
    InputError : the topology cannot be read
    SettingsError : the warehouse holds windows of another length
    """
    read_topology(settings.places.topology)
    warehouse = opened(settings)
    return warehouse, landing.landed_before(warehouse, settings.window.length_ns)


def _validate(
    warehouse: Warehouse, window: Window, settings: Settings, tables: Sequence[str], *, by_job: bool = False
) -> dict[str, int]:
    """Run the suites of some tables; stop the window when a critical expectation is broken, by more than some jobs."""
    docs = data_docs.pages(settings, window, "results" if by_job else "landed")
    results = (validation.validate_by_job if by_job else validation.validate)(warehouse, window, tables, docs=docs)
    for line in validation.rows_that_break(results):
        logger.info("window %s: %s", window, line)
    if docs.is_dir():
        logger.info("window %s: Data Docs are in %s", window, data_docs.index(docs))
    stopping = validation.stopping_error(window, results)
    if stopping is not None:
        store.record_window(warehouse, window, status="stopped", reason=stopping.found)
        raise stopping
    warning = validation.set_aside_warning(window, results)
    if warning is not None:
        logger.warning("%s", warning)
    return {"checked": results.height, "broken": results.filter(~pl.col("success")).height}
