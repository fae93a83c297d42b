"""Landing: write flow records from files to a window's `flows`, `flows_quarantine` and `windows`, in one transaction.

A record belongs to the window in which it starts, whatever its file is called; `records.py` explains where records
without a usable start go, and `file_register.py` how records of a window are found that come later, or in another
window's file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from types import MappingProxyType

import duckdb
import polars as pl

from llmprism_tasks import __version__
from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.contract.frames import conform
from llmprism_tasks.contract.plan import DERIVED, STAGES
from llmprism_tasks.contract.windows import ALL_TIME, NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.sources import flows as sources
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.bookkeeping import minutes
from llmprism_tasks.warehouse.bookkeeping.minutes import Run
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.landing import arrival, columnar, file_register, gone_files
from llmprism_tasks.warehouse.landing.file_register import Stock
from llmprism_tasks.warehouse.landing.gaps import without_long_gaps
from llmprism_tasks.warehouse.landing.gone_files import Outcome, Records
from llmprism_tasks.warehouse.landing.intake import Intake
from llmprism_tasks.warehouse.landing.records import Staging, staging, warn_of
from llmprism_tasks.warehouse.storage import insertion, window_row

logger = logging.getLogger(__name__)

CLEARED_TABLES = (*DERIVED, "validation_results")  # tables that are cleared when a window starts over
STAGE_COLUMNS = list(
    dict.fromkeys(column for stage in STAGES for column in stage.flow_columns)
)  # columns that stages read
EMPTY = "no record starts in the window, although its file or later records have arrived"


def land(
    warehouse: Warehouse,
    window: Window,
    flows: str,
    *,
    lateness_ns: int,
    intake: Intake | None = None,
    run: Run | None = None,
) -> dict[str, int]:
    """Land a window's flows; the window starts over, so all tables derived from it are cleared.

    Windows that were landed before, and of which records are found that they were not landed with, are marked as due.

    Parameters
    ----------
    flows : a file, a folder, a glob, or a pattern that contains the window's start; for a pattern, files of
        neighbouring windows are read too, as far as the lateness reaches, and others that are known to hold records of
        it
    lateness_ns : how far from the window the names of the files may be that are looked at
    intake : what a landing must know besides the files
    run : the window's run, which begins with this landing; None if nothing follows

    Returns
    -------
    number of records `read`, `landed` and `quarantined`, and of quarantined records that are `duplicate`

    Raises
    ------
    InputError : a file of the window cannot be read at all, or a plain file or folder does not exist; nothing was
        written
    TransientError : such a file was changed a moment ago; nothing was written
    WarehouseBusy : another process held the warehouse for too long; nothing was written
    """
    intake = intake or Intake()
    files = sources.find(flows, length_ns=window.length_ns, within=window, lateness_ns=lateness_ns)
    stock, gone = file_register.take_stock(warehouse, files, flows, window)
    with _records(stock, length_ns=window.length_ns, within=window, intake=intake, gone=gone) as staged:
        reasons = arrival.unusual(window, flows, staged, intake, later_records=bool(gone) or None, was_there=bool(gone))
        _Landing(warehouse, staged, stock, intake, run=run, gone=gone).write(window, reasons)
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
        window_row.record(connection, window, status="landed")
        window_row.forget_stages(connection, window, [stage.name for stage in STAGES])
        minutes.begin_run(connection, window, run)

    store.replace(warehouse, window, {}, clears=CLEARED_TABLES, then=begin)
    (row,) = store.read(warehouse, "windows", window).to_dicts()
    return {name: row[f"rows_{name}"] for name in ("read", "landed", "quarantined", "duplicate")}


def land_lookback(
    warehouse: Warehouse,
    window: Window,
    flows: str,
    *,
    lookback_windows: int,
    lateness_ns: int,
    intake: Intake | None = None,
) -> None:
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
    intake = intake or Intake()
    within = Window(absent[0].start_ns, absent[-1].end_ns - absent[0].start_ns)
    files = sources.find(flows, length_ns=window.length_ns, within=within, lateness_ns=lateness_ns)
    stock, _ = file_register.take_stock(warehouse, files, flows, within)
    with _records(stock, length_ns=window.length_ns, within=within, intake=intake) as staged:
        placed = staged.placed()
        writing = _Landing(warehouse, staged, stock, intake, frozenset(one.start_ns for one in absent))
        for earlier in absent:
            if earlier.start_ns in placed:
                arrived = sources.files_of(earlier, flows) != []
                writing.write(earlier, [] if arrived else [arrival.NOT_ARRIVED], unless_landed=True)


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
    held: dict[int, pl.DataFrame] | None = None,
    submit: Callable[[Callable[[], object]], object] = lambda work: work(),
    intake: Intake | None = None,
    check: Callable[[Mapping[Window, int]], None] = lambda _: None,
    run: Run | None = None,
) -> list[Window]:
    """Land every window of a source of flows; files are read once, and each window is written in its own transaction.

    Parameters
    ----------
    held : if given and no record is bad, receives the columns of `flows` that stages read, compact, by window start
    submit : receives the work of writing a window, and runs it now or later. Windows with bad records are written here
    check : called before anything is written with the windows, and how many records of each the files have; may raise
    run : the runs of all windows, which begin with their landing; None if nothing follows

    Returns
    -------
    the windows in order, as by `windows_in`; each as if it had been landed alone
    """
    intake = intake or Intake()
    stock = file_register.stock_of_all(sources.find(flows, length_ns=length_ns), flows)
    gone = file_register.gone(warehouse, stock, ALL_TIME)
    with _records(stock, length_ns=length_ns, within=ALL_TIME, intake=intake, gone=gone) as staged:
        windows = _windows(staged, stock, length_ns, intake)
        check({one: sum(of.get(one.start_ns, 0) for of in staged.parts.values()) for one in windows})
        landed_too = frozenset(window.start_ns for window in windows)
        writing = _Landing(warehouse, staged, stock, intake, landed_too, run, gone)
        for window in windows:
            came = window != windows[-1] or window.start_ns in gone
            reasons = arrival.unusual(
                window, flows, staged, intake, later_records=came, was_there=window.start_ns in gone
            )
            write = partial(writing.write, window, reasons)
            if isinstance(staged, columnar.Sound):
                submit(write)
                if held is not None:
                    held[window.start_ns] = staged.frame(window).select(STAGE_COLUMNS)
            else:
                write()
    return windows


def windows_in(flows: str, length_ns: int, *, intake: Intake | None = None) -> list[Window]:
    """Return every window of a source of flows, in order.

    These are the windows with records, the windows named by a pattern's files, and the windows in between, because
    silence is a finding; `gaps.py` says which gaps are left out.
    """
    intake = intake or Intake()
    stock = file_register.stock_of_all(sources.find(flows, length_ns=length_ns), flows)
    with _records(stock, length_ns=length_ns, within=ALL_TIME, intake=intake) as staged:
        return _windows(staged, stock, length_ns, intake)


def _surplus(kept: Outcome) -> str:
    return (
        f"{kept.surplus:,} flows of an older version of a changed file stay, because they cannot be told from those of "
        f"{', '.join(sorted(kept.records))}, which is gone: put it back, or run `llmprism forget --file` for it"
    )


@contextmanager
def _records(
    stock: Stock,
    *,
    length_ns: int,
    within: Window,
    intake: Intake,
    gone: Mapping[int, Records] = MappingProxyType({}),
) -> Iterator[Staging | columnar.Sound]:
    """Read files and provide their records: from `columnar` if no record is bad, else from `records.staging`.

    Parameters
    ----------
    gone : gone files of which windows were landed; where such windows are landed, what is kept is added to the staging
    """
    found = columnar.read(stock.files, length_ns=length_ns, within=within, whole=stock.whole, intake=intake)
    if found is not None and gone:
        starts = [window.start_ns for window in _windows(found, stock, length_ns, intake)]
        found = found if within == ALL_TIME and gone.keys().isdisjoint(starts) else None
    if found is not None:
        warn_of(found.strangers)
        yield found
        return
    with staging(stock.files, length_ns=length_ns, within=within, whole=stock.whole, intake=intake) as staged:
        yield staged


def _windows(staged: Staging | columnar.Sound, stock: Stock, length_ns: int, intake: Intake) -> list[Window]:
    promised = {file.span.start_ns for file in stock.found if file.span and file.span.length_ns == length_ns}
    starts = sorted(staged.placed() | promised)
    return without_long_gaps(starts, length_ns, intake.most_empty_windows, staged.parts)


@dataclass(frozen=True)
class _Landing:
    """The writing of windows of which the records have been read.

    Attributes
    ----------
    landed_too : starts of all windows that are landed together
    run : the runs of the windows, which begin with their landing; None if nothing follows
    gone : gone files of which windows were landed, by the window's start
    """

    warehouse: Warehouse
    staged: Staging | columnar.Sound
    stock: Stock
    intake: Intake
    landed_too: frozenset[int] = field(default_factory=frozenset)
    run: Run | None = None
    gone: Mapping[int, Records] = field(default_factory=dict)

    def write(self, window: Window, reasons: Sequence[str], *, unless_landed: bool = False) -> None:
        """Write a window's rows, and what is known of files, in one transaction.

        Parameters
        ----------
        reasons : what is unusual about the window
        """
        kept = self._keep(window)
        counts = self.staged.counts(window)
        if kept.surplus:
            reasons = [*reasons, _surplus(kept)]
        said = [*reasons, *([EMPTY] if counts.read == 0 and not reasons else []), *self._flood(window)]
        row = {
            "window_start_ns": window.start_ns,
            "window_end_ns": window.end_ns,
            "status": "landed",
            "reason": "; ".join(said) or None,
            "rows_read": counts.read,
            "rows_landed": counts.landed,
            "rows_quarantined": counts.quarantined,
            "rows_duplicate": counts.duplicate,
            "stage_ns": "{}",
            "software_version": __version__,
        }

        def keep_books(connection: duckdb.DuckDBPyConnection) -> None:
            digest = minutes.flows_digest(connection, window)
            insertion.insert(connection, "windows", conform(pl.DataFrame([row | {"flows_digest": digest}]), "windows"))
            if self.run is not None:
                minutes.begin_run(connection, window, self.run)
            self._record_files(connection, window, kept)

        store.replace(
            self.warehouse,
            window,
            {},
            streams={"flows": self.staged.flows(window), "flows_quarantine": self.staged.quarantine(window)},
            clears=("windows", *CLEARED_TABLES),
            unless_landed=unless_landed,
            then=keep_books,
        )

    def _keep(self, window: Window) -> Outcome:
        """Add to the records of a window what is kept of files that are gone."""
        files = self.gone.get(window.start_ns)
        if not files or not isinstance(self.staged, Staging):
            return Outcome()
        kept = gone_files.kept_of(self.warehouse, window, files, unchanged=self.stock.unchanged)
        return self.staged.keep(window, kept)

    def _record_files(self, connection: duckdb.DuckDBPyConnection, window: Window, kept: Outcome) -> None:
        due = file_register.record(
            connection,
            window,
            self.stock,
            self.staged.parts,
            kept=kept.records,
            skipped=self.staged.skipped,
            landed_too=self.landed_too,
            now_ns=self.intake.now_ns,
        )
        for start_ns in due:
            logger.info("window %s: records of window %s came in its files", window, Window(start_ns, window.length_ns))

    def _flood(self, window: Window) -> list[str]:
        addrs = self.staged.aside.get(window.start_ns)
        if addrs is None:
            return []
        return [
            f"a flood: more than {self.intake.most_unlisted:,} addresses that are not in the topology; the flows of "
            f"the {addrs:,} that sent and received least were put aside"
        ]
