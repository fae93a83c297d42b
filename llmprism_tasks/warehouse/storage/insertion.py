"""Insertion of rows into a table of the warehouse, with numbers for its texts where the table stores these."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa

from llmprism_tasks.contract.errors import ContractError
from llmprism_tasks.contract.tables import table_named
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.warehouse.storage import value_codes
from llmprism_tasks.warehouse.storage.value_codes import NUMBERED, stored

BATCHES_AT_A_TIME = 8  # Arrow batches, a million rows: DuckDB logs rows that do not fill a row group a second time


def check(table: str, rows: pl.DataFrame, window: Window) -> None:
    """Refuse rows that are of another window, or lack what the table must have.

    Raises
    ------
    ContractError : there are such rows
    """
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


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Any) -> None:
    """Insert rows, a frame or an Arrow stream, into a table within the caller's transaction."""
    if table not in NUMBERED and not isinstance(rows, pl.DataFrame):
        _insert_arrow(connection, table, rows)  # as a whole: DuckDB writes full row groups out while rows come
        return
    for part in [rows] if isinstance(rows, pl.DataFrame) else _parts(rows):
        if part.is_empty():
            continue
        incoming = value_codes.numbered(connection, table, part) if table in NUMBERED else part
        # A column without any value is left to BY NAME: Arrow warns on standard error of its empty buffers.
        incoming = incoming.select(column for column in incoming if column.null_count() < column.len())
        # Arrow's newest format has string views, which need no copy
        _insert_arrow(connection, table, incoming.to_arrow(compat_level=pl.CompatLevel.newest()))


def _insert_arrow(connection: duckdb.DuckDBPyConnection, table: str, rows: Any) -> None:
    connection.register("incoming_rows", rows)
    connection.execute(f"INSERT INTO {stored(table)} BY NAME SELECT * FROM incoming_rows")
    connection.unregister("incoming_rows")


def _parts(rows: Any) -> Iterator[pl.DataFrame]:
    """Yield the rows of an Arrow stream, several batches at a time."""
    stream = pa.RecordBatchReader.from_stream(rows)
    while batches := list(itertools.islice(stream, BATCHES_AT_A_TIME)):
        yield pl.DataFrame(pl.from_arrow(pa.Table.from_batches(batches)))
