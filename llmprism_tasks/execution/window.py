"""The steps of one window that are not stages: wait for flows, land them, validate, finish, send messages.

Each function opens the warehouse for itself, computes while nothing is locked, and writes in one transaction. So it may
be killed at any moment and run again, and the tables end the same.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from llmprism_tasks import validation
from llmprism_tasks.contract.errors import TransientError
from llmprism_tasks.contract.plan import DERIVED, LANDED
from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.execution.notify import incidents
from llmprism_tasks.execution.notify.metrics_file import write_metrics
from llmprism_tasks.execution.partitions.handover import delete_handovers
from llmprism_tasks.settings import Settings
from llmprism_tasks.sources.topology import read_topology
from llmprism_tasks.validation import data_docs
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.bookkeeping import minutes
from llmprism_tasks.warehouse.bookkeeping.minutes import Run
from llmprism_tasks.warehouse.connect import Warehouse, configured, existing_warehouse, open_warehouse
from llmprism_tasks.warehouse.landing import arrival, landing
from llmprism_tasks.warehouse.landing.intake import Intake
from llmprism_tasks.warehouse.upkeep import expiry, read_copy

logger = logging.getLogger(__name__)


def open_configured(settings: Settings) -> Warehouse:
    """Open the warehouse that the settings name, and make it if there is none."""
    return open_warehouse(configured(settings))


def intake(settings: Settings, *, now_ns: int) -> Intake:
    """Return what a landing must know besides the files.

    Parameters
    ----------
    now_ns : the time, nanoseconds since the Unix epoch

    Raises
    ------
    InputError : the topology cannot be read
    """
    return Intake(
        columns=settings.columns.given,
        now_ns=now_ns,
        young_ns=settings.window.allowed_lateness_ns,
        quiet_ns=settings.window.quiet_ns,
        waits_for_next=settings.window.waits_for_next_file == "yes",
        listed=read_topology(settings.places.topology)["addr"],
        most_empty_windows=settings.window.most_empty_windows,
    )


def open_for_window(window: Window, settings: Settings, *, landing: bool = False) -> Warehouse:
    """Open the warehouse for a task of a window.

    Parameters
    ----------
    landing : whether the task is the first of a run

    Raises
    ------
    ExpiredError : rows of the window, or flows that it looks back on, have expired; what is there stands
    InputError : there is no warehouse; it was removed since the window was landed
    """
    warehouse = existing_warehouse(configured(settings))
    expiry.refuse_expired(warehouse, window, lookback_windows=settings.window.lookback_windows, landing=landing)
    return warehouse


def open_for_landing(settings: Settings) -> tuple[Warehouse, pl.Series]:
    """Open the warehouse; what would stop the window later stops it here, before any table is cleared.

    Returns
    -------
    the warehouse, and the starts of the windows that it holds

    Raises
    ------
    InputError : the topology cannot be read
    SettingsError : the warehouse holds windows of another length
    """
    read_topology(settings.places.topology)
    warehouse = open_configured(settings)
    return warehouse, landing.landed_before(warehouse, settings.window.length_ns)


def read_inputs(
    warehouse: Warehouse,
    window: Window,
    settings: Settings,
    tables: Sequence[str],
    jobs: Sequence[str] | None = None,
) -> dict[str, pl.DataFrame]:
    """Read what the plan promises to stages: flows with the look-back, the topology whole, other tables of the window.

    Parameters
    ----------
    jobs : read only their rows, and flows from or to their members
    """
    lookback = window.lookback(settings.window.lookback_windows)
    spans = {table: lookback if table == "flows" else window for table in tables if table != "topology"}
    found = store.read_each(warehouse, spans, jobs=jobs, columns={"flows": landing.STAGE_COLUMNS})
    return found | ({"topology": read_topology(settings.places.topology)} if "topology" in tables else {})


def seconds_to_wait(window: Window, settings: Settings, *, now_ns: int) -> float:
    """Return how long to wait before asking again whether a window can be run; 0 when it can be, now.

    It can be run once its own file and the next one are there and quiet, or its allowed lateness has passed. Each wait
    is a quarter of the time since a file was last expected, at the window's end or at that of the next one, and a
    second at least: flows that come soon are noticed soon, and late ones cost little.

    Parameters
    ----------
    now_ns : the time, nanoseconds since the Unix epoch
    """
    left_ns = window.end_ns + settings.window.allowed_lateness_ns - now_ns
    asked = Intake(
        columns=settings.columns.given,
        now_ns=now_ns,
        quiet_ns=settings.window.quiet_ns,
        waits_for_next=settings.window.waits_for_next_file == "yes",
    )
    if left_ns <= 0 or arrival.flows_arrived(window, settings.places.flows, asked):
        return 0.0
    since_ns = (now_ns - window.end_ns) % window.length_ns
    pause_ns = max(min(since_ns // 4, window.length_ns - since_ns), NANOSECONDS_PER_SECOND)
    logger.info(
        "window %s: flows have not arrived; waiting up to %.0f s more", window, left_ns / NANOSECONDS_PER_SECOND
    )
    return min(pause_ns, left_ns) / NANOSECONDS_PER_SECOND


def land_window(window: Window, settings: Settings) -> dict[str, int]:
    """Land a window's flows, and those of its look-back that are not in the warehouse yet.

    Returns
    -------
    how many records were `read`, `landed`, `quarantined` and, among the last, `duplicate`, for the window alone

    Raises
    ------
    ExpiredError : flows of the window or its look-back have expired; what is there stands
    """
    open_for_landing(settings)
    warehouse = open_for_window(window, settings, landing=True)
    lateness_ns, known = settings.window.allowed_lateness_ns, intake(settings, now_ns=time.time_ns())
    landing.land_lookback(
        warehouse,
        window,
        settings.places.flows,
        lookback_windows=settings.window.lookback_windows,
        lateness_ns=lateness_ns,
        intake=known,
    )
    run = Run(settings.window.lookback_windows, time.time_ns())
    return landing.land(warehouse, window, settings.places.flows, lateness_ns=lateness_ns, intake=known, run=run)


def validate_landed(window: Window, settings: Settings, *, warehouse: Warehouse | None = None) -> dict[str, int]:
    """Check what was landed, before anything that stages make of it is written.

    Parameters
    ----------
    warehouse : if it is open already

    Returns
    -------
    how many expectations were `checked`, and how many of them are `broken` and do not stop the window

    Raises
    ------
    ContractError : a critical expectation is broken; the window is `stopped`, its flows and quarantine stay
    """
    tables = (*LANDED, "flow_files", "flow_file_windows", "windows", "minutes")
    warehouse = warehouse or open_for_window(window, settings)
    return _validate(warehouse, window, settings, tables, "landed", validation.validate)


def validate_results(
    window: Window, settings: Settings, *, warehouse: Warehouse | None = None, made: str | None = None
) -> dict[str, int]:
    """Check what the stages wrote; takes, returns and raises what `validate_landed` does.

    Where only some jobs' rows break critical expectations, these jobs are set aside, and the window goes on.

    Parameters
    ----------
    made : as of `window_row.refuse_others`, which raises where others' rows are there
    """
    warehouse = warehouse or open_for_window(window, settings)
    check = functools.partial(validation.validate_by_job, made=made)
    return _validate(warehouse, window, settings, DERIVED, "results", check)


def finish(
    window: Window, settings: Settings, *, warehouse: Warehouse | None = None, made: str | None = None
) -> dict[str, int]:
    """Mark a window as done, delete what its tasks left for each other, and publish the read copy and the metrics.

    Parameters
    ----------
    warehouse : if it is open already
    made : as of `window_row.refuse_others`, which raises where others' rows are there

    Returns
    -------
    how many `diagnoses` it ended with
    """
    warehouse = warehouse or open_configured(settings)
    diagnoses = minutes.record_done(warehouse, window, now_ns=time.time_ns(), made=made)
    delete_handovers(settings.places.handover, settings.places.warehouse, window)
    publish_copy(warehouse, settings)
    write_metrics(warehouse, settings.places.metrics, now_ns=time.time_ns())
    return {"diagnoses": diagnoses}


def publish_copy(warehouse: Warehouse, settings: Settings) -> None:
    """Publish the read copy, if the settings name one; a failure is logged, for the next window publishes again."""
    if settings.places.read_copy:
        try:
            read_copy.publish(warehouse, Path(settings.places.read_copy))
        except TransientError as error:
            logger.warning("%s", error)


def send_messages(
    window: Window, settings: Settings, *, now_ns: int, warehouse: Warehouse | None = None
) -> dict[str, int]:
    """Send messages about incidents that opened or closed, once a window is done; failures are logged, never raised.

    Parameters
    ----------
    now_ns : the time, nanoseconds since the Unix epoch
    warehouse : if it is open already

    Returns
    -------
    how many messages were `sent`, and how many were `not_sent`
    """
    try:
        warehouse = warehouse or open_configured(settings)
        return incidents.send_messages(warehouse, window, settings, now_ns=now_ns)
    except TransientError as error:
        logger.warning("window %s: the next one will send the messages of its incidents: %s", window, error)
        return {"sent": 0, "not_sent": 0}


def _validate(
    warehouse: Warehouse,
    window: Window,
    settings: Settings,
    tables: Sequence[str],
    what: str,
    check: Callable[..., pl.DataFrame],
) -> dict[str, int]:
    """Run the suites of some tables; stop the window when a critical expectation is broken, by more than some jobs."""
    docs = data_docs.pages(settings, window, what)
    results = check(warehouse, window, tables, docs=docs)
    for line in validation.rows_that_break(results):
        logger.info("window %s: %s", window, line)
    if docs.is_dir():
        logger.info("window %s: Data Docs are in %s", window, data_docs.index(docs))
    stopping = validation.stopping_error(window, results, docs=docs)
    if stopping is not None:
        store.record_window(warehouse, window, status="stopped", reason=stopping.found)
        raise stopping
    warning = validation.set_aside_warning(window, results)
    if warning is not None:
        logger.warning("%s", warning)
    return {"checked": results.height, "broken": results.filter(~pl.col("success")).height}
