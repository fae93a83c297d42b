"""Expiry: which windows' rows have been kept long enough, and their deletion, a few windows per transaction.

Ages are counted back from the end of the newest window in the warehouse, not from the clock: old files that are
analysed today, or a platform that stood still, lose nothing. Windows that the clock has not reached are of wrong times,
and make nothing older. Flows that a window still waits for are kept longer, and so are those of a backfill of old
windows while it goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import duckdb
import polars as pl

from llmprism_tasks.contract.errors import PermanentError
from llmprism_tasks.contract.tables import TABLES
from llmprism_tasks.contract.windows import ALL_TIME, Window
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import identifier, statement
from llmprism_tasks.warehouse.storage import incidents
from llmprism_tasks.warehouse.storage.value_codes import NUMBERED, stored

HELD_TIMES = 4
"""How many times as long flows are kept for windows that wait to be run: a day, as long as outages are caught up."""

WINDOWS_AT_A_TIME = 10
"""Deleted in one transaction: writers wait for tenths of a second, and a DuckLake gets few snapshots."""

FOR_EVER_NS = 2**63 - 1
FLOWS = ("flows", "flows_quarantine")
TIMELINE = ("timeline", "pair_steps", "steps", "step_breakdown")
"""What single NICs did in single steps; of `steps`, the rows of jobs stay with the results."""

EVERYTHING = tuple(table.name for table in TABLES if "window_start_ns" in table.column_names)
IN_WINDOWS = "window_start_ns BETWEEN $first AND $last AND window_start_ns IN (SELECT unnest($starts::BIGINT[]))"


class ExpiredError(PermanentError):
    """A window cannot be run again, for flows that it needs were kept long enough and deleted."""


class Kept(NamedTuple):
    """How long rows are kept, ns; None for ever.

    begun_since_ns : flows of windows whose run began at this moment or later, by the clock, and of their look-back stay
    now_ns : windows that end later, by the clock, make nothing older
    """

    flows_ns: int | None
    timeline_ns: int | None
    results_ns: int | None
    begun_since_ns: int = FOR_EVER_NS
    now_ns: int = FOR_EVER_NS


class Due(NamedTuple):
    """Windows by their starts, ns, of which rows are to be deleted: of flows, of timeline, or everything.

    `held` are windows whose flows are old enough, and are kept because a window needs them that waits to be run, or
    began a short time ago.
    """

    flows: tuple[int, ...] = ()
    timeline: tuple[int, ...] = ()
    everything: tuple[int, ...] = ()
    held: tuple[int, ...] = ()

    def by_tables(self) -> tuple[tuple[tuple[str, ...], tuple[int, ...]], ...]:
        """Return tables from which rows are deleted together, with the windows whose rows these are."""
        return (FLOWS, self.flows), (TIMELINE, self.timeline), (EVERYTHING, self.everything)


class Rows(NamedTuple):
    """How many rows a table has, and how many of them are due."""

    all: int
    due: int


def due(
    windows: pl.DataFrame, waiting: Collection[int], kept: Kept, *, lookback_windows: int, begun: Collection[int] = ()
) -> Due:
    """Return which windows' rows have been kept long enough.

    Parameters
    ----------
    windows : `window_start_ns`, `window_end_ns` and `expired` of all windows, which have one length
    waiting : starts of the windows that are to be run, or are run
    lookback_windows : how many windows before it a window reads
    begun : starts of the windows whose run began a short time ago
    """
    if windows.is_empty():
        return Due()
    length = windows["window_end_ns"][0] - windows["window_start_ns"][0]
    needed, at_work = (
        [one - back * length for one in starts for back in range(lookback_windows + 1)] for starts in (waiting, begun)
    )
    ends = pl.col("window_end_ns")
    over = windows.filter(ends <= kept.now_ns)
    age = windows.select((windows if over.is_empty() else over)["window_end_ns"].max() - ends).to_series()
    gone = windows["expired"].fill_null([])

    def old(limit_ns: int | None) -> pl.Series:
        return age >= (FOR_EVER_NS if limit_ns is None else limit_ns)

    def starts(chosen: pl.Series) -> tuple[int, ...]:
        return tuple(windows.filter(chosen)["window_start_ns"].sort())

    young = ~old(kept.results_ns)
    flows = young & old(kept.flows_ns) & ~gone.list.contains(FLOWS[0])
    longest = None if kept.flows_ns is None else HELD_TIMES * kept.flows_ns
    start_ns = windows["window_start_ns"]
    held = flows & (start_ns.is_in(at_work) | (start_ns.is_in(needed) & ~old(longest)))
    timeline = young & old(kept.timeline_ns) & ~gone.list.contains(TIMELINE[0])
    return Due(starts(flows & ~held), starts(timeline), starts(~young), starts(held))


def find_due(warehouse: Warehouse, kept: Kept, *, lookback_windows: int) -> Due:
    """Return what `due` does, for the windows of a warehouse."""
    with warehouse.reading() as connection:
        return _due(connection, kept, lookback_windows)


def count_rows(warehouse: Warehouse, found: Due) -> dict[str, Rows]:
    """Return how many rows each table has, and how many are due."""
    with warehouse.reading() as connection:
        return {
            table: Rows(
                _count(connection, table),
                sum(
                    _count(connection, table, starts, group=group)
                    for group, starts in found.by_tables()
                    if table in group
                ),
            )
            for table in EVERYTHING
        }


def delete(warehouse: Warehouse, found: Due, kept: Kept, *, lookback_windows: int) -> None:
    """Delete the rows that are due, and note in `windows` what was deleted; may be killed and run again.

    What is due is asked again in each transaction, for a window may have been landed since.
    """
    for place, (tables, starts) in enumerate(found.by_tables()):
        for first in range(0, len(starts), WINDOWS_AT_A_TIME):
            some = starts[first : first + WINDOWS_AT_A_TIME]

            def work(
                connection: duckdb.DuckDBPyConnection,
                place: int = place,
                tables: Sequence[str] = tables,
                some: Collection[int] = some,
            ) -> None:
                """Delete the rows of those of some windows that are still due."""
                still = _due(connection, kept, lookback_windows)
                _delete(connection, tables, sorted(set(some) & set(still.by_tables()[place][1])))

            warehouse.write(work)
    if any(starts for _, starts in found.by_tables()):
        warehouse.write(incidents.renew)


def sweep(warehouse: Warehouse) -> None:
    """Delete the numbers that stand for texts which no row has any more."""
    with warehouse.reading() as connection:
        unused = [place for place in _users() if connection.execute(_unused("SELECT 1 FROM", place)).fetchone()]

    def work(connection: duckdb.DuckDBPyConnection) -> None:
        for place in unused:
            connection.execute(_unused("DELETE FROM", place))

    if unused:
        warehouse.write(work)


def refuse_expired(
    warehouse: Warehouse,
    window: Window,
    *,
    lookback_windows: int,
    landing: bool = False,
    anew: Collection[int] = (),
) -> None:
    """Refuse to run a window whose rows, or flows that it looks back on, have expired: the result would be emptier.

    Parameters
    ----------
    landing : whether the run begins, and writes all other rows anew: then only flows matter
    anew : starts of windows, ns, whose flows are about to be landed again

    Raises
    ------
    ExpiredError : they have
    """
    found = store.read(
        warehouse, "windows", window.lookback(lookback_windows), columns=["window_start_ns", "expired"]
    ).filter(~pl.col("window_start_ns").is_in(list(anew)))
    own = found.filter(window_start_ns=window.start_ns)["expired"].explode().drop_nulls().to_list()
    past = found.filter(pl.col("expired").list.contains(FLOWS[0]), pl.col("window_start_ns") < window.start_ns)
    if landing and FLOWS[0] not in own:
        own = []
    if not own and past.is_empty():
        return
    if own:
        what = f"its {', '.join(own)} expired"
    else:
        earliest, latest = (Window(one, window.length_ns) for one in (past.item(0, 0), past.item(-1, 0)))
        what = f"the flows that it looks back on, of {earliest} to {latest}, expired"
    raise ExpiredError(
        found=f"window {window}, to be run although {what}",
        expected="windows whose flows and look-back are still kept, so that results are not replaced by emptier ones",
        todo="What is there stands. To run it all the same, analyze the files into another warehouse.",
    )


def refuse_fewer(warehouse: Warehouse, windows: Mapping[Window, int]) -> None:
    """Refuse to land windows anew from fewer records than they had, if the flows that they had have expired.

    Parameters
    ----------
    windows : with how many records the files have of each

    Raises
    ------
    ExpiredError : of a window there are fewer; nothing is changed
    """
    had = store.read(warehouse, "windows", ALL_TIME, columns=["window_start_ns", "rows_landed", "expired"])
    expired = had.filter(pl.col("expired").list.contains(FLOWS[0]))
    landed = dict(expired.select("window_start_ns", "rows_landed").iter_rows())
    for window, records in windows.items():
        if records < landed.get(window.start_ns, 0):
            raise ExpiredError(
                found=f"window {window}, of which the files have {records:,} records; {landed[window.start_ns]:,} were "
                "landed, and have expired",
                expected="all files of a window whose flows are no longer kept, so that its results are not replaced "
                "by those of a part",
                todo="What is there stands. Put the files back, or analyze what came late into another warehouse.",
            )


def _due(connection: duckdb.DuckDBPyConnection, kept: Kept, lookback_windows: int) -> Due:
    windows = store.frame(connection.execute(statement("windows_to_expire"), {"gone": [FLOWS[0], TIMELINE[0]]}))
    waiting = connection.execute(statement("waiting_windows")).fetchall()
    begun = connection.execute(statement("begun_windows"), {"since_ns": kept.begun_since_ns}).fetchall()
    return due(
        windows,
        {start for (start,) in waiting},
        kept,
        lookback_windows=lookback_windows,
        begun={start for (start,) in begun},
    )


def _count(
    connection: duckdb.DuckDBPyConnection, table: str, starts: Sequence[int] | None = None, *, group: Sequence[str] = ()
) -> int:
    if starts is not None and not starts:
        return 0
    where, values = ("", {}) if starts is None else (f"WHERE {_due_rows(table, group)}", _values(starts))
    ((count,),) = connection.execute(f"SELECT count(*) FROM {stored(table)} {where}", values).fetchall()
    return int(count)


def _due_rows(table: str, group: Sequence[str]) -> str:
    """Return the condition on the rows of a table that expire together with those of a group of tables."""
    return f"{IN_WINDOWS} AND addr IS NOT NULL" if table == "steps" and group is TIMELINE else IN_WINDOWS


def _values(starts: Sequence[int]) -> dict[str, object]:
    return {"first": min(starts), "last": max(starts), "starts": list(starts)}


def _delete(connection: duckdb.DuckDBPyConnection, tables: Sequence[str], starts: Sequence[int]) -> None:
    if not starts:
        return
    values = _values(starts)
    for table in tables:
        of_table = f"FROM {stored(table)} WHERE {_due_rows(table, tables)}"
        # In a DuckLake even an empty delete is a snapshot, and makes other writers' commits fail.
        if connection.execute(f"SELECT 1 {of_table} LIMIT 1", values).fetchone():
            connection.execute(f"DELETE {of_table}", values)
    if "windows" not in tables:
        noted = "list_sort(list_distinct(list_concat(coalesce(expired, []), $tables::VARCHAR[])))"
        connection.execute(
            f"UPDATE windows SET expired = {noted} WHERE {IN_WINDOWS}", values | {"tables": list(tables)}
        )


def _users() -> dict[str, list[str]]:
    """Return, for each table of numbered texts, queries for the numbers that rows have."""
    users: dict[str, list[str]] = {}
    for table, columns in NUMBERED.items():
        for column, (place, _) in columns.items():
            users.setdefault(place, []).append(f"SELECT {identifier(column)} FROM {stored(table)}")
    return users


def _unused(begin: str, place: str) -> str:
    """Return a statement about the numbers that no row has; number 0 is not a row's."""
    used = " UNION ".join(_users()[place])
    return (
        f"{begin} stored.{place} WHERE number <> 0 AND number NOT IN "
        f"(SELECT * FROM ({used}) AS used (number) WHERE number IS NOT NULL)"
    )
