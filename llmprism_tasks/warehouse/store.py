"""Store: read a window's rows, and replace a window's rows in one transaction; the only access to the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import duckdb
import polars as pl

from llmprism_tasks.contract.columns import Table
from llmprism_tasks.contract.errors import ContractError, InputError
from llmprism_tasks.contract.frames import conform, schema
from llmprism_tasks.contract.tables import table_named
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse.connect import Warehouse
from llmprism_tasks.warehouse.sql_files import identifier, statement
from llmprism_tasks.warehouse.storage import (
    allowed_queries,
    failures,
    flow_order,
    insertion,
    value_codes,
    window_row,
    written_rows,
)
from llmprism_tasks.warehouse.storage.value_codes import NUMBERED, stored

IN_SPAN = "window_start_ns >= $start_ns AND window_start_ns < $end_ns"
IN_JOBS = "job_id IN (SELECT unnest($jobs::VARCHAR[]))"


def read(
    warehouse: Warehouse,
    table: str,
    span: Window,
    *,
    jobs: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> pl.DataFrame:
    """Return a table's rows whose window starts within `span`, as `rows` does, with a connection of its own."""
    with warehouse.reading() as connection:
        return rows(connection, table, span, jobs=jobs, columns=columns)


def read_each(
    warehouse: Warehouse,
    tables: Mapping[str, Window],
    *,
    jobs: Sequence[str] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, pl.DataFrame]:
    """Return the rows of several tables, each of its own span, as of one moment.

    Parameters
    ----------
    columns : for some of the tables, the columns to read
    """
    if not tables:
        return {}
    some = columns or {}
    with warehouse.reading() as connection:
        return {
            table: rows(connection, table, span, jobs=jobs, columns=some.get(table)) for table, span in tables.items()
        }


def rows(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    span: Window,
    *,
    jobs: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> pl.DataFrame:
    """Return a table's rows whose window starts within `span`, with the contract's columns and types.

    Parameters
    ----------
    span : one window, or several as one long one (`Window.lookback`)
    jobs : only rows of these jobs. Flows have no job: of `flows`, those from or to a NIC that is a member of one of the
        jobs in the last window of `span`. Tables without jobs and members are returned whole
    columns : only these columns, in this order; None for all

    Returns
    -------
    sorted by the key; `flows` by window, start, addresses, ports and further columns (`flow_order.FLOW_ORDER`)
    """
    wanted = table_named(table)
    conditions, values = [IN_SPAN], {"start_ns": span.start_ns, "end_ns": span.end_ns, "jobs": list(jobs or ())}
    if jobs is None:
        del values["jobs"]
    elif "job_id" in wanted.column_names:
        conditions.append(IN_JOBS)
    elif table == "flows":
        conditions.append(statement("flows_of_jobs"))
    else:
        del values["jobs"]
    where = f"WHERE {' AND '.join(conditions)}"
    if table == "flows":
        return _flows(connection, f"FROM {stored(table)} {where}", values, columns or wanted.column_names)
    names = ", ".join(map(identifier, columns or wanted.column_names))
    order = ", ".join(f"{identifier(name)} NULLS FIRST" for name in wanted.key)
    return _typed(
        frame(connection.execute(f"SELECT {names} FROM {identifier(table)} {where} ORDER BY {order}", values)), wanted
    )


def _flows(
    connection: duckdb.DuckDBPyConnection, query: str, values: Mapping[str, object], columns: Sequence[str]
) -> pl.DataFrame:
    """Return flows in the order in which each window's are stored; usually nothing needs sorting."""
    names = ", ".join(map(identifier, dict.fromkeys((*columns, "flow_start_ns"))))
    found = value_codes.texts(connection, "flows", frame(connection.execute(f"SELECT {names} {query}", values)))
    if not found["flow_start_ns"].is_sorted():  # a window was landed after a later one
        found = found.sort("flow_start_ns", maintain_order=True)
    return _typed(found.select(columns), table_named("flows"))


def _typed(found: pl.DataFrame, table: Table) -> pl.DataFrame:
    return found.cast({name: kind for name, kind in schema(table.columns).items() if name in found.columns})


class Change(NamedTuple):
    """New rows of a window for several tables; `replace` explains the fields.

    `forgets` are stages whose run times are forgotten, for what they made is cleared.
    """

    frames: Mapping[str, pl.DataFrame]
    streams: Mapping[str, Callable[[], Any]] = MappingProxyType({})
    clears: Sequence[str] = ()
    jobs: Sequence[str] | None = None
    ordered: bool = False
    stage_ns: Mapping[str, int] = MappingProxyType({})
    forgets: Sequence[str] = ()

    @property
    def touched(self) -> tuple[str, ...]:
        """Tables from which rows are deleted."""
        return tuple(dict.fromkeys((*self.frames, *self.streams, *self.clears)))


def replace(
    warehouse: Warehouse,
    window: Window,
    frames: Mapping[str, pl.DataFrame],
    *,
    streams: Mapping[str, Callable[[], Any]] | None = None,
    clears: Sequence[str] = (),
    jobs: Sequence[str] | None = None,
    unless_landed: bool = False,
    ordered: bool = False,
    stage_ns: Mapping[str, int] | None = None,
    then: Callable[[duckdb.DuckDBPyConnection], object] = lambda connection: None,
) -> bool:
    """Replace a window's rows in several tables, all in one transaction.

    Parameters
    ----------
    frames : the window's new rows by table; a frame without rows leaves the window without rows
    streams : by table, a function that returns the window's new rows as an Arrow stream, checked and in order; for
        tables too large for a frame
    clears : further tables from which the window's rows are deleted
    jobs : delete only the rows of these jobs, in all of these tables
    stage_ns : run times of the stages that made the rows, ns; the window's status becomes `running`
    unless_landed : do nothing if `windows` has a row for the window already
    ordered : whether the rows of `frames` are sorted by their tables' keys already, as the stages' results are
    then : what else belongs into the transaction, once the rows are there; it may be run again

    Returns
    -------
    whether the rows were replaced; False is possible only with `unless_landed`

    Raises
    ------
    ContractError : rows of another window, rows that the columns cannot hold, or `jobs` for a table without `job_id`
    WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
    """
    change = _checked(Change(frames, streams or {}, clears, jobs, ordered, stage_ns or {}), window)

    def work(connection: duckdb.DuckDBPyConnection) -> bool:
        if unless_landed and _has_rows(connection, "windows", window, None):
            return False
        _make(connection, change, window)
        then(connection)
        return True

    return warehouse.write(work)


def replace_each(warehouse: Warehouse, window: Window, changes: Iterable[Change]) -> None:
    """Replace a window's rows change by change, as the changes come, in one transaction that stays open meanwhile.

    Raises
    ------
    the errors of `replace`
    """
    came: list[Change] = []
    coming = iter(changes)

    def work(connection: duckdb.DuckDBPyConnection) -> None:
        for change in came:  # the transaction may be run again
            _make(connection, change, window)
        for change in coming:
            came.append(_checked(change, window))
            _make(connection, came[-1], window)

    warehouse.write(work)


def _checked(change: Change, window: Window) -> Change:
    """Check a change's rows, and bring them to the form in which they are stored, except for codes of texts.

    Raises
    ------
    ContractError : as for `replace`
    """
    incoming = {
        table: conform(rows, table, ordered=change.ordered, compact=table in NUMBERED)
        for table, rows in change.frames.items()
    }
    for table, arrived in incoming.items():
        insertion.check(table, arrived, window)
    if "flows" in incoming:
        incoming["flows"] = flow_order.in_order(incoming["flows"])
    if change.jobs is not None:
        _check_jobs(change.touched)
    return change._replace(frames=incoming)


def _make(connection: duckdb.DuckDBPyConnection, change: Change, window: Window) -> None:
    for table in change.touched:
        _delete(connection, table, window, change.jobs)
    if change.forgets:
        window_row.forget_stages(connection, window, change.forgets)
    for table, stream in change.streams.items():
        insertion.insert(connection, table, stream())
    for table, arrived in change.frames.items():
        insertion.insert(connection, table, arrived)
    for stage, elapsed_ns in change.stage_ns.items():
        window_row.record(connection, window, status="running", stage=stage, elapsed_ns=elapsed_ns)


def rows_by_job(connection: duckdb.DuckDBPyConnection, rows: str) -> dict[str, int] | None:
    """Count the rows of a query by `job_id`; None if a row has none, or the query has no such column."""
    try:
        counted = connection.execute(f"SELECT job_id, count(*) FROM ({rows}) GROUP BY job_id ORDER BY job_id")
    except duckdb.BinderException:  # rows have no such column
        return None
    counts = dict(counted.fetchall())
    return None if None in counts or not counts else counts


def set_aside(
    warehouse: Warehouse,
    window: Window,
    jobs: Sequence[str],
    *,
    tables: Sequence[str],
    results: pl.DataFrame,
    reason: str | None,
    made: str | None = None,
) -> None:
    """Delete the rows of some jobs in a window, and record it, in one transaction.

    Parameters
    ----------
    jobs : `job_id` of the jobs; may be empty
    tables : tables from which the jobs' rows are deleted
    results : the rows of `validation_results` of these tables that the window is to have
    reason : new `reason` of the window; the reason for which it was stopped is dropped
    made : as of `window_row.refuse_others`

    Raises
    ------
    ContractError : one of the tables has no `job_id`
    ReplacedMeanwhileError : as `window_row.refuse_others`
    WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
    """
    incoming = conform(results, "validation_results")
    insertion.check("validation_results", incoming, window)
    _check_jobs(tables)

    def work(connection: duckdb.DuckDBPyConnection) -> None:
        window_row.refuse_others(connection, window, made)
        for table in tables if jobs else ():
            _delete(connection, table, window, jobs)
        _replace_results(connection, window, tables, incoming)
        connection.execute(statement("record_reason"), {"start_ns": window.start_ns, "reason": reason})

    warehouse.write(work)


def replace_results(warehouse: Warehouse, window: Window, tables: Sequence[str], results: pl.DataFrame) -> None:
    """Replace a window's rows of `validation_results` that are of some tables, in one transaction; others stay.

    Raises
    ------
    ContractError : rows of another window
    WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
    """
    incoming = conform(results, "validation_results")
    insertion.check("validation_results", incoming, window)
    warehouse.write(lambda connection: _replace_results(connection, window, tables, incoming))


def _replace_results(
    connection: duckdb.DuckDBPyConnection, window: Window, tables: Sequence[str], incoming: pl.DataFrame
) -> None:
    of_tables = "window_start_ns = $start_ns AND split_part(expectation, '.', 1) IN (SELECT unnest($tables::VARCHAR[]))"
    values = {"start_ns": window.start_ns, "tables": list(tables)}
    if connection.execute(f"SELECT 1 FROM validation_results WHERE {of_tables} LIMIT 1", values).fetchone():
        connection.execute(f"DELETE FROM validation_results WHERE {of_tables}", values)
    insertion.insert(connection, "validation_results", incoming)


def query(warehouse: Warehouse, sql: str, *, most: int | None = None) -> pl.DataFrame:
    """Return the rows of a user's query, which reads the warehouse and nothing else.

    Parameters
    ----------
    most : at most so many rows, in the form in which they are printed (`written_rows`); None for all rows, with
        DuckDB's types

    Raises
    ------
    InputError : the query is invalid, has more rows, or does something else (`allowed_queries`)
    """
    with warehouse.reading(shared=False) as connection:
        allowed_queries.confine(connection)
        try:
            allowed_queries.check(connection, sql)
            found = connection.sql(sql)
            return frame(found) if most is None else written_rows.at_most(found, most)
        except duckdb.PermissionException as error:
            raise allowed_queries.refused(str(error).partition("\n")[0]) from error
        except duckdb.Error as error:
            if failures.of_storage(error):
                raise
            raise InputError(
                found=f"a query that DuckDB refuses ({error})",
                expected="one SELECT over the tables and views of the warehouse",
                todo="Correct the query; `llmprism sql 'SHOW TABLES'` lists the tables and views.",
            ) from error


def record_window(
    warehouse: Warehouse, window: Window, *, status: str | None = None, reason: str | None = None
) -> None:
    """Update a window's row in `windows`; values that are None stay as they are.

    Raises
    ------
    ContractError : the window was never landed
    """
    warehouse.write(lambda connection: window_row.record(connection, window, status=status, reason=reason))


def _check_jobs(tables: Sequence[str]) -> None:
    without = [table for table in tables if "job_id" not in table_named(table).column_names]
    if without:
        raise ContractError(
            found=f"tables {', '.join(without)}, which have no job_id, to be replaced for some jobs only",
            expected="tables whose rows belong to jobs",
            todo="Replace them for the whole window.",
        )


def _where(table: str, jobs: Sequence[str] | None) -> str:
    return "window_start_ns = $start_ns" + ("" if jobs is None else f" AND {value_codes.of_jobs(table, IN_JOBS)}")


def _values(window: Window, jobs: Sequence[str] | None) -> dict[str, object]:
    return {"start_ns": window.start_ns} | ({} if jobs is None else {"jobs": list(jobs)})


def _has_rows(connection: duckdb.DuckDBPyConnection, table: str, window: Window, jobs: Sequence[str] | None) -> bool:
    sql = f"SELECT 1 FROM {stored(table)} WHERE {_where(table, jobs)} LIMIT 1"
    return connection.execute(sql, _values(window, jobs)).fetchone() is not None


def _delete(connection: duckdb.DuckDBPyConnection, table: str, window: Window, jobs: Sequence[str] | None) -> None:
    """Delete rows only if there are any: in a DuckLake even an empty delete makes other writers' commits fail."""
    if (jobs is None or jobs) and _has_rows(connection, table, window, jobs):
        connection.execute(f"DELETE FROM {stored(table)} WHERE {_where(table, jobs)}", _values(window, jobs))


def frame(result: duckdb.DuckDBPyConnection | duckdb.DuckDBPyRelation) -> pl.DataFrame:
    """Return a result's rows, with the types that DuckDB gives them."""
    rows = pl.from_arrow(result.to_arrow_table())
    return rows if isinstance(rows, pl.DataFrame) else rows.to_frame()
