"""Queries of pages, asked so that nobody who writes has to wait long for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import duckdb
import polars as pl

from llmprism_tasks.contract.errors import InputError, QueryTooLong
from llmprism_tasks.warehouse.connect import LONGEST_PAUSE_S, Warehouse
from llmprism_tasks.warehouse.sql_files import identifier, texts
from llmprism_tasks.warehouse.store import frame

QUERY_TRIES = 8  # on a busy machine a reader rather waits ten seconds than reads so; writers go in between


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

    def of_text(self, sql: str, *, since_ns: int, most: int) -> pl.DataFrame:
        """Return at most `most` flows of a stored query, such as an incident's `evidence_sql`, in order of time.

        Flows that end at `since_ns` or later come first, for a query may begin with what was normal before a fault.

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
        ordered = "ORDER BY flow_end_ns < $since_ns, flow_start_ns LIMIT $most"
        values = {"since_ns": since_ns, "most": most}
        return self._rows("evidence", f"FROM ({sql.rstrip().rstrip(';')}) {ordered}", values)

    def has(self, table: str) -> bool:
        """Return whether the warehouse has a table or view: a read copy has neither flows nor timelines."""
        try:
            self._connected().execute(f"FROM {identifier(table)} LIMIT 0")
        except duckdb.CatalogException:
            return False
        return True

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
