"""Landing: write flow records from files to a window's `flows`, `flows_quarantine` and `windows`, in one transaction.

A record belongs to the window in which it starts; `records.py` explains where records without a usable start go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

import duckdb
import polars as pl

from llmprism_tasks import __version__
from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.contract.frames import conform
from llmprism_tasks.contract.plan import DERIVED, STAGES
from llmprism_tasks.contract.windows import ALL_TIME, NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.sources import flows as sources
from llmprism_tasks.sources.pattern import MAGIC
from llmprism_tasks.warehouse import minutes, store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import columnar
from llmprism_tasks.warehouse.landing.records import Staging, staging, starts_after, warn_of
from llmprism_tasks.warehouse.minutes import Run

logger = logging.getLogger(__name__)

LONGEST_GAP_NS = 86_400 * NANOSECONDS_PER_SECOND  # one record with a wrong year must not create millions of windows
STALE = (*DERIVED, "validation_results")  # tables that are cleared when a window starts over
SEEN = list(dict.fromkeys(column for stage in STAGES for column in stage.flow_columns))  # columns that stages read
NOT_ARRIVED = "flows may not all have arrived: there was no file for the window, or no record at or after its end"
EMPTY = "no record starts in the window, although its file or later records have arrived"


def land(
    warehouse: Warehouse, window: Window, flows: str, *, lateness_ns: int, run: Run | None = None
) -> dict[str, int]:
    """Land a window's flows; the window starts over, so all tables derived from it are cleared.

    Parameters
    ----------
    flows : a file, a folder, a glob, or a pattern that contains the window's start; for a pattern, files of
        neighbouring windows are read too, as far as the lateness reaches
    lateness_ns : how far outside the interval of its file's name a record may start
    run : the window's run, which begins with this landing; None if nothing follows

    Returns
    -------
    number of records `read`, `landed` and `quarantined`, and of quarantined records that are `duplicate`

    Raises
    ------
    InputError : a file cannot be read at all, or a plain file or folder does not exist; nothing was written
    WarehouseBusy : another process held the warehouse for too long; nothing was written
    """
    files = sources.find(flows, length_ns=window.length_ns, within=window, lateness_ns=lateness_ns)
    with _records(files, length_ns=window.length_ns, lateness_ns=lateness_ns, within=window) as staged:
        arrived = flows_arrived(window, flows)
        if not arrived:
            logger.info("window %s: %s", window, NOT_ARRIVED)
        _write(warehouse, window, staged, arrived=arrived, run=run)
        return asdict(staged.counts(window))


def start_over(warehouse: Warehouse, window: Window, run: Run) -> dict[str, int]:
    """Begin a run of a window whose flows stay as they are: clear all that is derived from them.

    Returns
    -------
    what `land` returned for them

    Raises
    ------
    ContractError : the window was never landed
    """

    def begin(connection: duckdb.DuckDBPyConnection) -> None:
        store.record(connection, window, status="landed")
        minutes.begin_run(connection, window, run)

    store.replace(warehouse, window, {}, clears=STALE, then=begin)
    (row,) = store.read(warehouse, "windows", window).to_dicts()
    return {name: row[f"rows_{name}"] for name in ("read", "landed", "quarantined", "duplicate")}


def land_lookback(warehouse: Warehouse, window: Window, flows: str, *, lookback_windows: int, lateness_ns: int) -> None:
    """Land the earlier windows that a window looks back on, if they are not in the warehouse yet.

    Windows that exist are never changed, whichever run landed them. Windows without a record are not written: there is
    nothing to look back on, and their own run will record that they were empty.
    """
    past = [window.shifted(-back) for back in range(lookback_windows, 0, -1)]
    if not past:
        return
    span = Window(past[0].start_ns, window.start_ns - past[0].start_ns)
    there = set(store.read(warehouse, "windows", span)["window_start_ns"])
    absent = [earlier for earlier in past if earlier.start_ns not in there]
    if not absent:
        return
    within = Window(absent[0].start_ns, absent[-1].end_ns - absent[0].start_ns)
    files = sources.find(flows, length_ns=window.length_ns, within=within, lateness_ns=lateness_ns)
    with _records(files, length_ns=window.length_ns, lateness_ns=lateness_ns, within=within) as staged:
        placed = staged.placed()
        for earlier in absent:
            if earlier.start_ns in placed:
                arrived = sources.arrived(earlier, flows) is not False
                _write(warehouse, earlier, staged, arrived=arrived, unless_landed=True)


def landed_before(warehouse: Warehouse, length_ns: int) -> pl.Series:
    """Return the starts of the warehouse's windows; windows of two lengths are refused, because they would overlap.

    Raises
    ------
    SettingsError : the warehouse holds windows of another length
    """
    there = store.read(warehouse, "windows", ALL_TIME, columns=["window_start_ns", "window_end_ns"])
    lengths = there.select(pl.col("window_end_ns") - pl.col("window_start_ns")).to_series()
    others = lengths.filter(lengths != length_ns)
    if others.len():
        raise SettingsError(
            found=f"window.length_s = {length_ns // NANOSECONDS_PER_SECOND}, and windows of "
            f"{others[0] // NANOSECONDS_PER_SECOND} s in {warehouse.location}",
            expected="windows of one length in a warehouse",
            todo="Set the same length as before, or use another warehouse.",
        )
    return there["window_start_ns"]


def land_all(
    warehouse: Warehouse,
    flows: str,
    *,
    length_ns: int,
    lateness_ns: int,
    held: dict[int, pl.DataFrame] | None = None,
    submit: Callable[[Callable[[], object]], object] = lambda work: work(),
    run: Run | None = None,
) -> list[Window]:
    """Land every window of a source of flows; files are read once, and each window is written in its own transaction.

    Parameters
    ----------
    held : if given and no record is bad, receives the columns of `flows` that stages read, compact, by window start
    submit : receives the work of writing a window, and runs it now or later. Windows with bad records are written here
    run : the runs of all windows, which begin with their landing; None if nothing follows

    Returns
    -------
    the windows in order, as by `windows_in`; each as if it had been landed alone
    """
    files = sources.find(flows, length_ns=length_ns)
    with _records(files, length_ns=length_ns, lateness_ns=lateness_ns) as staged:
        windows = _windows(staged, length_ns)
        for window in windows:
            arrived = sources.arrived(window, flows)
            arrived = window != windows[-1] if arrived is None else arrived
            write = partial(_write, warehouse, window, staged, arrived=arrived, run=run)
            if isinstance(staged, columnar.Sound):
                submit(write)
                if held is not None:
                    held[window.start_ns] = staged.frame(window).select(SEEN)
            else:
                write()
    return windows


def windows_in(_warehouse: Warehouse | None, flows: str, length_ns: int, *, lateness_ns: int = 0) -> list[Window]:
    """Return every window of a source of flows, in order.

    These are the windows with records, the windows named by a pattern's files, and all windows in between, because
    silence is a finding. Only gaps of more than a day are left out.
    """
    files = sources.find(flows, length_ns=length_ns)
    with _records(files, length_ns=length_ns, lateness_ns=lateness_ns) as staged:
        return _windows(staged, length_ns)


def flows_arrived(window: Window, flows: str) -> bool:
    """Return whether a window's flows have all arrived, as far as files show it.

    For a pattern, they have if the file named for the window exists; for a file, folder or glob, if a record starts at
    or after the window's end.
    """
    arrived = sources.arrived(window, flows)
    if arrived is not None:
        return arrived
    if not any(sign in flows for sign in MAGIC) and not Path(flows).exists():
        return False
    return starts_after(sources.find(flows, length_ns=window.length_ns), window.end_ns)


@contextmanager
def _records(
    files: Sequence[sources.FlowFile], *, length_ns: int, lateness_ns: int, within: Window = ALL_TIME
) -> Iterator[Staging | columnar.Sound]:
    """Read files and provide their records: from `columnar` if no record is bad, else from `records.staging`."""
    found = columnar.read(files, length_ns=length_ns, lateness_ns=lateness_ns, within=within)
    if found is not None:
        warn_of(found.strangers)
        yield found
        return
    with staging(files, length_ns=length_ns, lateness_ns=lateness_ns, within=within) as staged:
        yield staged


def _windows(staged: Staging | columnar.Sound, length_ns: int) -> list[Window]:
    promised = {file.span.start_ns for file in staged.files if file.span and file.span.length_ns == length_ns}
    starts = sorted(staged.placed() | promised)
    windows: list[Window] = []
    for start_ns in starts:
        gap_ns = start_ns - windows[-1].end_ns if windows else 0
        between = range(windows[-1].end_ns, start_ns, length_ns) if windows and gap_ns <= LONGEST_GAP_NS else ()
        windows += [Window(ns, length_ns) for ns in (*between, start_ns)]
    return windows


def _write(
    warehouse: Warehouse,
    window: Window,
    staged: Staging | columnar.Sound,
    *,
    arrived: bool,
    unless_landed: bool = False,
    run: Run | None = None,
) -> None:
    counts = staged.counts(window)
    odd = EMPTY if counts.read == 0 else None
    row = {
        "window_start_ns": window.start_ns,
        "window_end_ns": window.end_ns,
        "status": "landed",
        "reason": odd if arrived else NOT_ARRIVED,
        "rows_read": counts.read,
        "rows_landed": counts.landed,
        "rows_quarantined": counts.quarantined,
        "rows_duplicate": counts.duplicate,
        "stage_ns": "{}",
        "software_version": __version__,
    }

    def keep_books(connection: duckdb.DuckDBPyConnection) -> None:
        digest = minutes.flows_digest(connection, window)
        store.insert(connection, "windows", conform(pl.DataFrame([row | {"flows_digest": digest}]), "windows"))
        if run is not None:
            minutes.begin_run(connection, window, run)

    frames, streams = {"flows_quarantine": staged.quarantine(window)}, {"flows": staged.flows(window)}
    clears = ("windows", *STALE)
    store.replace(
        warehouse, window, frames, streams=streams, clears=clears, unless_landed=unless_landed, then=keep_books
    )
