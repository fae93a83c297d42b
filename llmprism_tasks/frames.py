"""Polars frames of the contract's tables: empty ones, and rows brought to the table's columns, types and order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import polars as pl

from llmprism_tasks.errors import ContractError
from llmprism_tasks.tables import TOPOLOGY_COLUMNS, Column, table_named

POLARS_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    "BIGINT": pl.Int64,
    "INTEGER": pl.Int32,
    "DOUBLE": pl.Float64,
    "BOOLEAN": pl.Boolean,
    "VARCHAR": pl.String,
    "VARCHAR[]": pl.List(pl.String),
}


class Part(NamedTuple):
    """Flows of some of a platform's hosts, and when others send.

    Attributes
    ----------
    flows : those from or to a NIC of the hosts, in the order of the flows table
    elsewhere : `flow_start_ns` of flows of others, the last of each millisecond, ascending
    """

    flows: pl.DataFrame
    elsewhere: pl.DataFrame


def schema(columns: Iterable[Column]) -> pl.Schema:
    """Return the Polars schema of contract columns."""
    return pl.Schema({column.name: POLARS_TYPES[column.type] for column in columns})


def empty(table: str) -> pl.DataFrame:
    """Return a frame of a contract table (or `topology`) without rows."""
    columns = TOPOLOGY_COLUMNS if table == "topology" else table_named(table).columns
    return pl.DataFrame(schema=schema(columns))


def conform(frame: pl.DataFrame, table: str, *, ordered: bool = False) -> pl.DataFrame:
    """Bring rows to a contract table's columns, types and key order; optional columns they do not have are NULL.

    Parameters
    ----------
    ordered : whether the rows are in the order of the key already

    Raises
    ------
    ContractError : a column is missing, or holds values that its type cannot
    """
    wanted = table_named(table)
    unknown = [column.name for column in wanted.columns if column.optional and column.name not in frame.columns]
    frame = frame.with_columns(pl.lit(None).alias(name) for name in unknown)
    missing = [name for name in wanted.column_names if name not in frame.columns]
    if missing:
        raise ContractError(
            found=f"rows for table {table} without column {', '.join(missing)}",
            expected=f"the columns {', '.join(wanted.column_names)}",
            todo="This is a fault in the stage that made the rows; please report it.",
        )
    conformed = frame.select(wanted.column_names).cast(schema(wanted.columns))
    return conformed if ordered or table == "flows" else conformed.sort(wanted.key, nulls_last=False)
