"""Polars schemas of the contract's tables; empty frames, and conversion of rows to a table's columns and types."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from llmprism_tasks.contract.columns import Column
from llmprism_tasks.contract.errors import ContractError
from llmprism_tasks.contract.tables import TOPOLOGY_COLUMNS, table_named

POLARS_TYPES: dict[str, pl.DataType | type[pl.DataType]] = {
    "BIGINT": pl.Int64,
    "INTEGER": pl.Int32,
    "DOUBLE": pl.Float64,
    "BOOLEAN": pl.Boolean,
    "VARCHAR": pl.String,
    "VARCHAR[]": pl.List(pl.String),
    "DOUBLE[]": pl.List(pl.Float64),
}


BETWEEN_SWITCHES = "|"
"""Separator of switches in a compact path."""


def schema(columns: Iterable[Column]) -> pl.Schema:
    """Return the Polars schema of contract columns."""
    return pl.Schema({column.name: POLARS_TYPES[column.type] for column in columns})


def compact_schema(columns: Iterable[Column]) -> pl.Schema:
    """Return a schema that takes little memory: texts are categories, and so are lists of texts, joined into one."""
    texts = (pl.String, pl.List(pl.String))
    return pl.Schema({name: pl.Categorical() if kind in texts else kind for name, kind in schema(columns).items()})


def paths(compact: pl.Series) -> pl.Series:
    """Return switch paths as lists of switches; columns that are lists already are returned unchanged."""
    if compact.dtype != pl.Categorical:
        return compact
    text = pl.col(compact.name).cast(pl.String)
    lists = pl.when(text == "").then(pl.lit([], pl.List(pl.String))).otherwise(text.str.split(BETWEEN_SWITCHES))
    return compact.to_frame().select(lists.alias(compact.name)).to_series()


def plain(rows: pl.DataFrame) -> pl.DataFrame:
    """Convert compact rows of a table to the contract's types."""
    texts = [name for name, kind in rows.schema.items() if kind == pl.Categorical and name != "switch_path"]
    with_paths = [paths(rows["switch_path"])] if "switch_path" in rows.columns else []
    return rows.with_columns(pl.col(texts).cast(pl.String), *with_paths)


def empty(table: str) -> pl.DataFrame:
    """Return an empty frame of a contract table, or of `topology`."""
    columns = TOPOLOGY_COLUMNS if table == "topology" else table_named(table).columns
    return pl.DataFrame(schema=schema(columns))


def conform(frame: pl.DataFrame, table: str, *, ordered: bool = False, compact: bool = False) -> pl.DataFrame:
    """Convert rows to a contract table's columns, types and key order; missing optional columns become NULL.

    Parameters
    ----------
    ordered : whether the rows are sorted by the key already
    compact : whether categories stay categories

    Raises
    ------
    ContractError : a required column is missing
    polars.exceptions.InvalidOperationError : a column holds values that its type cannot
    """
    wanted = table_named(table)
    unknown = [column.name for column in wanted.columns if column.optional and column.name not in frame.columns]
    frame = frame.with_columns(pl.lit(None).alias(name) for name in unknown)
    missing = [name for name in wanted.column_names if name not in frame.columns]
    if missing:
        raise ContractError(
            found=f"rows for table {table} without column {', '.join(missing)}",
            expected=f"the columns {', '.join(wanted.column_names)}",
            todo="This is a bug in the stage that made the rows; please report it.",
        )
    kept = frame.select(pl.col(pl.Categorical)).columns if compact else ()
    kinds = pl.Schema({name: kind for name, kind in schema(wanted.columns).items() if name not in kept})
    conformed = frame.select(wanted.column_names).cast(kinds)
    return conformed if ordered or table == "flows" else conformed.sort(wanted.key, nulls_last=False)
