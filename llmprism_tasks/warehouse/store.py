"""Store: read a window's rows, and replace a window's rows in one transaction; the only access to the tables."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa

from llmprism_tasks.contract.errors import ContractError, InputError, QueryTooLong
from llmprism_tasks.contract.frames import conform, schema
from llmprism_tasks.contract.tables import Table, table_named
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse.connect import LONGEST_PAUSE_S, Warehouse
from llmprism_tasks.warehouse.sql_files import identifier, statement, texts
from llmprism_tasks.warehouse.storage import allowed_queries, failures, flow_order, nic_codes
from llmprism_tasks.warehouse.storage.nic_codes import NUMBERED, stored

IN_SPAN = "window_start_ns >= $start_ns AND window_start_ns < $end_ns"
OF_JOBS = "job_id IN (SELECT unnest($jobs::VARCHAR[]))"
QUERY_TRIES = 8  # on a busy machine a reader rather waits ten seconds than reads so; writers go in between
BATCHES_AT_A_TIME = 8  # Arrow batches, a million rows: DuckDB logs rows that do not fill a row group a second time


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
        conditions.append(OF_JOBS)
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
    found = nic_codes.texts(connection, "flows", frame(connection.execute(f"SELECT {names} {query}", values)))
    if not found["flow_start_ns"].is_sorted():  # a window was landed after a later one
        found = found.sort("flow_start_ns", maintain_order=True)
    return _typed(found.select(columns), table_named("flows"))


def _typed(found: pl.DataFrame, table: Table) -> pl.DataFrame:
    return found.cast({name: kind for name, kind in schema(table.columns).items() if name in found.columns})


class LandedFlows(NamedTuple):
    """How many flows windows have, and a digest of all that stages see of them."""

    rows: int
    digest: str


def landed_flows(warehouse: Warehouse, span: Window) -> LandedFlows:
    """Return how many flows the windows of a span have, and a digest of their rows, in whatever order they are."""
    values = {"start_ns": span.start_ns, "end_ns": span.end_ns}
    with warehouse.reading() as connection:
        ((count, digest),) = connection.execute(statement("digest_of_flows"), values).fetchall()
    return LandedFlows(count, digest)


def addresses(warehouse: Warehouse, span: Window) -> set[str]:
    """Return the source and destination addresses of a span's flows."""
    ends = " UNION ".join(f"SELECT {end}_addr FROM stored.flows WHERE {IN_SPAN}" for end in ("src", "dst"))
    named = f"SELECT value FROM stored.names WHERE number IN ({ends})"
    with warehouse.reading() as connection:
        rows = connection.execute(named, {"start_ns": span.start_ns, "end_ns": span.end_ns}).fetchall()
    return {str(addr) for (addr,) in rows}


def sees(warehouse: Warehouse, span: Window, addrs: pl.Series) -> bool:
    """Return whether a flow of a span comes from or goes to one of some addresses."""
    known = "SELECT number FROM stored.names WHERE value IN (SELECT addr FROM incoming_addrs)"
    ends = (f"EXISTS (FROM stored.flows WHERE {IN_SPAN} AND {end}_addr IN ({known}))" for end in ("src", "dst"))
    with warehouse.reading() as connection:
        connection.register("incoming_addrs", addrs.alias("addr").to_frame().to_arrow())
        values = {"start_ns": span.start_ns, "end_ns": span.end_ns}
        return connection.execute(f"SELECT {' OR '.join(ends)}", values).fetchone() == (True,)


class Change(NamedTuple):
    """New rows of a window for several tables; `replace` explains the fields."""

    frames: Mapping[str, pl.DataFrame]
    streams: Mapping[str, Callable[[], Any]] = MappingProxyType({})
    clears: Sequence[str] = ()
    jobs: Sequence[str] | None = None
    ordered: bool = False
    stage_ns: Mapping[str, int] = MappingProxyType({})

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
    tables
        too large for a frame
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
        _check(table, arrived, window)
    if "flows" in incoming:
        incoming["flows"] = flow_order.in_order(incoming["flows"])
    if change.jobs is not None:
        _check_jobs(change.touched)
    return change._replace(frames=incoming)


def _make(connection: duckdb.DuckDBPyConnection, change: Change, window: Window) -> None:
    for table in change.touched:
        _delete(connection, table, window, change.jobs)
    for table, stream in change.streams.items():
        insert(connection, table, stream())
    for table, arrived in change.frames.items():
        insert(connection, table, arrived)
    for stage, elapsed_ns in change.stage_ns.items():
        record(connection, window, status="running", stage=stage, elapsed_ns=elapsed_ns)


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
) -> None:
    """Delete the rows of some jobs in a window, and record it, in one transaction.

    Parameters
    ----------
    jobs : `job_id` of the jobs; may be empty
    tables : tables from which the jobs' rows are deleted
    results : all rows of `validation_results` that the window is to have
    reason : new `reason` of the window; the reason for which it was stopped is dropped

    Raises
    ------
    ContractError : one of the tables has no `job_id`
    WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
    """
    incoming = conform(results, "validation_results")
    _check("validation_results", incoming, window)
    _check_jobs(tables)

    def work(connection: duckdb.DuckDBPyConnection) -> None:
        for table in tables if jobs else ():
            _delete(connection, table, window, jobs)
        _delete(connection, "validation_results", window, None)
        insert(connection, "validation_results", incoming)
        connection.execute(statement("record_reason"), {"start_ns": window.start_ns, "reason": reason})

    warehouse.write(work)


def query(warehouse: Warehouse, sql: str) -> pl.DataFrame:
    """Return the rows of a user's query, with DuckDB's types; it reads the warehouse, and nothing else.

    Raises
    ------
    InputError : the query is invalid, or does something else (`allowed_queries`)
    """
    with warehouse.reading(shared=False) as connection:
        allowed_queries.confine(connection)
        try:
            allowed_queries.check(connection, sql)
            return frame(connection.execute(sql))
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


class Asked:
    """Queries of `sql/pages`, asked so that no run waits long for them; `asking` makes it.

    The connection is closed when it was open for `longest_s`, and opened again after a pause in which a run that waits
    can write. A query that is at work by then is interrupted, and asked once more.

    Attributes
    ----------
    took_s : how long each query took, in seconds, by its name
    """

    def __init__(self, warehouse: Warehouse, longest_s: float) -> None:
        self._warehouse, self._longest_s = warehouse, longest_s
        self._open = ExitStack()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._began = 0.0
        self.took_s: dict[str, float] = {}

    def __call__(self, name: str, **values: object) -> pl.DataFrame:
        """Return the rows of `sql/pages/<name>.sql`; each text has a limit, which is the value `most` in most.

        Raises
        ------
        QueryTooLong : it takes longer than `longest_s`, each time it is tried
        """
        return self._rows(name, texts("pages")[name], values)

    def of_text(self, sql: str, *, most: int) -> pl.DataFrame:
        """Return at most `most` rows of a stored query, such as an incident's `evidence_sql`.

        Raises
        ------
        InputError : it is no single SELECT
        QueryTooLong : it takes longer than `longest_s`, each time it is tried
        """
        kinds = [one.type.name for one in self._connected().extract_statements(sql)]
        if kinds != ["SELECT"]:
            raise InputError(
                found=f"a stored query of the kinds {', '.join(kinds) or 'none'}",
                expected="one SELECT",
                todo="Run the windows of this incident again.",
            )
        return self._rows("evidence", f"SELECT * FROM ({sql.rstrip().rstrip(';')}) LIMIT $most", {"most": most})

    def close(self) -> None:
        """Close the connection; the next query opens another one."""
        self._open.close()
        self._connection = None

    def _connected(self) -> duckdb.DuckDBPyConnection:
        if self._connection is not None and time.monotonic() - self._began > self._longest_s / 2:
            self.close()
            time.sleep(LONGEST_PAUSE_S)  # a run that waits looks again within that time
        if self._connection is None:
            self._connection = self._open.enter_context(self._warehouse.reading())
            self._began = time.monotonic()
        return self._connection

    def _rows(self, name: str, sql: str, values: Mapping[str, object]) -> pl.DataFrame:
        for _ in range(QUERY_TRIES):
            connection = self._connected()
            alarm = threading.Timer(self._began + self._longest_s - time.monotonic(), connection.interrupt)
            alarm.start()
            began = time.perf_counter()
            try:
                rows = frame(connection.execute(sql, dict(values)))
            except duckdb.InterruptException:
                self.close()
                time.sleep(LONGEST_PAUSE_S)
            else:
                self.took_s[name] = self.took_s.get(name, 0.0) + time.perf_counter() - began
                return rows
            finally:
                alarm.cancel()
        raise QueryTooLong(
            found=f"the query {name}, which took longer than {self._longest_s:g} s, {QUERY_TRIES} times",
            expected="an answer within that time, so that no run waits for it",
            todo="Choose a shorter range of time, or try again when the machine is less busy.",
        )


@contextmanager
def asking(warehouse: Warehouse, *, longest_s: float) -> Iterator[Asked]:
    """Ask queries of `sql/pages`, and keep others from writing for at most `longest_s` seconds at a time.

    Raises
    ------
    QueryTooLong : a query took longer
    WarehouseBusy : another process held the warehouse for longer than `lock_wait_s`
    """
    asked = Asked(warehouse, longest_s)
    try:
        yield asked
    finally:
        asked.close()


def record_window(
    warehouse: Warehouse, window: Window, *, status: str | None = None, reason: str | None = None
) -> None:
    """Update a window's row in `windows`; values that are None stay as they are.

    Raises
    ------
    ContractError : the window was never landed
    """
    warehouse.write(lambda connection: record(connection, window, status=status, reason=reason))


def record(
    connection: duckdb.DuckDBPyConnection,
    window: Window,
    *,
    status: str | None,
    reason: str | None = None,
    stage: str | None = None,
    elapsed_ns: int | None = None,
) -> None:
    """Update a window's row in `windows`; a stage's run time replaces an earlier one."""
    if not _has_rows(connection, "windows", window, None):
        raise ContractError(
            found=f"no row in windows for window {window}",
            expected="a window that was landed before stages run",
            todo="Land the window first.",
        )
    values = {"status": status, "reason": reason, "stage": stage or "", "elapsed_ns": elapsed_ns}
    connection.execute(statement("record_window"), {"start_ns": window.start_ns} | values)


def _check(table: str, rows: pl.DataFrame, window: Window) -> None:
    strangers = int(rows["window_start_ns"].ne_missing(pl.Series([window.start_ns])).sum())
    empty = [
        column.name for column in table_named(table).columns if not column.optional and rows[column.name].has_nulls()
    ]
    if strangers or empty:
        raise ContractError(
            found=f"{strangers} rows of other windows" if strangers else f"NULL in {', '.join(empty)}",
            expected=f"rows of table {table} for window {window} only, with all required columns filled",
            todo="This is a bug in the stage that made the rows; please report it.",
        )


def _check_jobs(tables: Sequence[str]) -> None:
    without = [table for table in tables if "job_id" not in table_named(table).column_names]
    if without:
        raise ContractError(
            found=f"tables {', '.join(without)}, which have no job_id, to be replaced for some jobs only",
            expected="tables whose rows belong to jobs",
            todo="Replace them for the whole window.",
        )


def _where(table: str, jobs: Sequence[str] | None) -> str:
    return "window_start_ns = $start_ns" + ("" if jobs is None else f" AND {nic_codes.of_jobs(table, OF_JOBS)}")


def _values(window: Window, jobs: Sequence[str] | None) -> dict[str, object]:
    return {"start_ns": window.start_ns} | ({} if jobs is None else {"jobs": list(jobs)})


def _has_rows(connection: duckdb.DuckDBPyConnection, table: str, window: Window, jobs: Sequence[str] | None) -> bool:
    sql = f"SELECT 1 FROM {stored(table)} WHERE {_where(table, jobs)} LIMIT 1"
    return connection.execute(sql, _values(window, jobs)).fetchone() is not None


def _delete(connection: duckdb.DuckDBPyConnection, table: str, window: Window, jobs: Sequence[str] | None) -> None:
    """Delete rows only if there are any: in a DuckLake even an empty delete makes other writers' commits fail."""
    if (jobs is None or jobs) and _has_rows(connection, table, window, jobs):
        connection.execute(f"DELETE FROM {stored(table)} WHERE {_where(table, jobs)}", _values(window, jobs))


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Any) -> None:
    """Insert rows, a frame or an Arrow stream, into a table within the caller's transaction."""
    for part in [rows] if isinstance(rows, pl.DataFrame) else _parts(rows):
        if part.is_empty():
            continue
        incoming = nic_codes.numbered(connection, table, part) if table in NUMBERED else part
        # Arrow's newest format has string views, which need no copy
        connection.register("incoming_rows", incoming.to_arrow(compat_level=pl.CompatLevel.newest()))
        connection.execute(f"INSERT INTO {stored(table)} BY NAME SELECT * FROM incoming_rows")
        connection.unregister("incoming_rows")


def _parts(rows: Any) -> Iterator[pl.DataFrame]:
    """Yield the rows of an Arrow stream, several batches at a time."""
    stream = pa.RecordBatchReader.from_stream(rows)
    while batches := list(itertools.islice(stream, BATCHES_AT_A_TIME)):
        yield pl.DataFrame(pl.from_arrow(pa.Table.from_batches(batches)))


def frame(result: duckdb.DuckDBPyConnection) -> pl.DataFrame:
    """Return a result's rows, with the types that DuckDB gives them."""
    rows = pl.from_arrow(result.to_arrow_table())
    return rows if isinstance(rows, pl.DataFrame) else rows.to_frame()
