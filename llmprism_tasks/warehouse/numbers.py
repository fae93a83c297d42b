"""Flows are stored with numbers for their texts, which takes half of the time: they are most of what is written.

An address or a path is in `stored.names` or `stored.paths` once, whatever flows there are of it. The view `flows` gives
the texts back, in any order of rows: joins keep none. So the timeline, whose order its checks go by, has its own texts.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import numpy as np
import polars as pl

from llmprism_tasks.frames import paths
from llmprism_tasks.warehouse.statements import statement

NUMBERED: Mapping[str, Mapping[str, str]] = {
    "flows": {"src_addr": "names", "dst_addr": "names", "switch_path": "paths"},
}
"""Tables to their columns that are numbers, and where what they stand for is."""


def stored(table: str) -> str:
    """Return where rows of a table are written to and deleted from."""
    return f'stored."{table}"' if table in NUMBERED else f'"{table}"'


def numbered(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows as they are stored; texts that have no number yet get one, within the caller's transaction.

    Parameters
    ----------
    rows : of a table in `NUMBERED`; texts may be categories, and paths those of their switches, joined
    """
    return rows.with_columns(_numbered(connection, rows[name], place) for name, place in NUMBERED[table].items())


def texts(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return stored rows, or some columns of them, with the texts that their numbers stand for."""
    columns = {name: place for name, place in NUMBERED[table].items() if name in rows.columns}
    values = {place: _values(connection, place) for place in columns.values()}
    return rows.with_columns(values[place].gather(rows[name]).alias(name) for name, place in columns.items())


def _values(connection: duckdb.DuckDBPyConnection, place: str) -> pl.Series:
    """Return what each number stands for, in their order."""
    return pl.Series(
        pl.from_arrow(connection.execute(f"FROM stored.{place} ORDER BY number").to_arrow_table()["value"])
    )


def _numbered(connection: duckdb.DuckDBPyConnection, column: pl.Series, place: str) -> pl.Series:
    distinct, which = _lists(column) if isinstance(column.dtype, pl.List) else _words(column.cast(pl.Categorical))
    return _numbers(connection, distinct, place).gather(which).alias(column.name)


def _words(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the distinct values of categories, as texts or lists of switches, and which of them each row has."""
    distinct = column.unique().drop_nulls()
    categories = distinct.to_physical().to_numpy()
    which = np.zeros(categories.max(initial=0) + 1, np.uint32)
    which[categories] = np.arange(distinct.len())
    values = paths(distinct) if column.name == "switch_path" else distinct.cast(pl.String)
    return values, pl.Series(which).gather(column.to_physical())


def _lists(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the distinct lists, and which of them each row has."""
    rows = column.to_frame("value").with_row_index("row")
    groups = rows.drop_nulls("value").group_by("value", maintain_order=True).agg("row").with_row_index("which")
    which = rows.join(groups.select("which", "row").explode("row"), on="row", how="left", maintain_order="left")
    return groups["value"], which["which"]


def _numbers(connection: duckdb.DuckDBPyConnection, values: pl.Series, place: str) -> pl.Series:
    """Return the numbers of distinct values; those that have none get the next ones, in order."""
    rows = values.alias("value").to_frame().with_row_index("row")
    connection.register("incoming_values", rows.to_arrow(compat_level=pl.CompatLevel.newest()))
    known = statement("numbers_of_values").replace("/* place */", place)
    numbers = pl.Series(pl.from_arrow(connection.execute(known).to_arrow_table()["number"]))
    if numbers.has_nulls():
        connection.execute(f"UPDATE stored.{place} SET value = value WHERE number = 0")
        connection.execute(statement("number_values").replace("/* place */", place))
        numbers = pl.Series(pl.from_arrow(connection.execute(known).to_arrow_table()["number"]))
    connection.unregister("incoming_values")
    return numbers
