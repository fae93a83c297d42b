"""Minutes: which windows were ever expected, what became of their runs, and which are due to be run (again).

A window's row is made when the schedule expects it, when somebody runs it, or when records of it are found. It says
what the window's last run saw: a digest of the flows of each window that the run looked back at, and of its own. So a
window is known to be stale by comparing contents, whatever the clocks of two hosts say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import statement
from llmprism_tasks.warehouse.storage import window_row

SCHEDULE, RUN = "schedule", "run"
"""Who expected a window: each minute is, or somebody ran it."""

LATE_RECORDS = "late_records"
"""Mark on a window of which records were found in a file that its run has not read."""

FORGOTTEN = "forgotten"
"""Mark on a window that was landed from a file that somebody had forgotten."""


def expect(connection: duckdb.DuckDBPyConnection, starts_ns: Sequence[int], now_ns: int, *, by: str = SCHEDULE) -> None:
    """Make rows of windows that are expected from now on; those that are expected already stay as they are.

    Parameters
    ----------
    starts_ns : starts of the windows
    now_ns : the time, nanoseconds since the Unix epoch
    """
    connection.execute(statement("expect_minutes"), {"starts_ns": list(starts_ns), "now_ns": now_ns, "by": by})


def mark_due(connection: duckdb.DuckDBPyConnection, starts_ns: Sequence[int], reason: str, *, now_ns: int) -> None:
    """Mark windows as due to land and run again; their next run takes the mark away. Call it in the transaction that
    makes them so.

    Windows that look back at them need no mark: they are due by themselves once these are landed with other flows.

    Parameters
    ----------
    starts_ns : starts of the windows, whether they were expected or not; only those need be named that were landed
    reason : such as `LATE_RECORDS`
    now_ns : the time, nanoseconds since the Unix epoch; a mark that is there keeps its time
    """
    if not starts_ns:
        return
    expect(connection, starts_ns, now_ns, by=RUN)
    connection.execute(statement("mark_due"), {"starts_ns": list(starts_ns), "reason": reason, "now_ns": now_ns})


def flows_digest(connection: duckdb.DuckDBPyConnection, window: Window) -> str:
    """Return a digest of what stages see of a window's flows, whatever their order; empty if it has none."""
    ((digest,),) = connection.execute(statement("flows_digest"), {"start_ns": window.start_ns}).fetchall()
    return str(digest)


class Run(NamedTuple):
    """A run of a window, as it begins.

    Attributes
    ----------
    lookback_windows : how many windows before its own it reads
    now_ns : the time, nanoseconds since the Unix epoch
    """

    lookback_windows: int
    now_ns: int


def begin_run(connection: duckdb.DuckDBPyConnection, window: Window, run: Run) -> None:
    """Record that a window's run begins, and which flows it sees; call it in the transaction that lands the window.

    Flows that are landed later, for a window that the run looks back at, make the window due, whether the run has read
    them or not.
    """
    expect(connection, [window.start_ns], run.now_ns, by=RUN)
    span = {"start_ns": window.start_ns, "length_ns": window.length_ns, "windows": run.lookback_windows + 1}
    ((seen,),) = connection.execute(statement("seen_flows"), span).fetchall()
    connection.execute(statement("begin_run"), {"start_ns": window.start_ns, "now_ns": run.now_ns, "seen": seen})


def record_run(connection: duckdb.DuckDBPyConnection, window: Window, *, now_ns: int) -> None:
    """Record that a window's run was finished; call it in the transaction that records the window as done."""
    connection.execute(statement("record_run"), {"start_ns": window.start_ns, "now_ns": now_ns})


def take_up(connection: duckdb.DuckDBPyConnection, starts_ns: Sequence[int], *, now_ns: int) -> None:
    """Record that due windows are about to be run."""
    connection.execute(statement("take_up_minutes"), {"starts_ns": list(starts_ns), "now_ns": now_ns})


def record_done(warehouse: Warehouse, window: Window, *, now_ns: int, made: str | None = None) -> int:
    """Record that a window is done and its run finished, and return its number of diagnoses.

    Parameters
    ----------
    now_ns : the time, nanoseconds since the Unix epoch
    made : as of `window_row.refuse_others`

    Raises
    ------
    ContractError : the window was never landed
    ReplacedMeanwhileError : as `window_row.refuse_others`
    """

    def work(connection: duckdb.DuckDBPyConnection) -> int:
        window_row.refuse_others(connection, window, made)
        window_row.record(connection, window, status="done")
        record_run(connection, window, now_ns=now_ns)
        return len(store.rows(connection, "diagnoses", window, columns=["kind"]))

    return warehouse.write(work)
