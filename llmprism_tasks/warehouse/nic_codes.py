"""Flows and the timeline, most of what is written, are stored with numbers for their texts, in half of the time.

An address or a path is in `stored.names` or `stored.paths` once, whatever flows there are of it; so are a NIC of a job
in `stored.nics`, and what it does with whom in `stored.acts`. Views give the texts back, in any order of rows: joins
keep none. Whoever can do without texts asks the stored tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import numpy as np
import polars as pl

from llmprism_tasks.contract.frames import paths
from llmprism_tasks.warehouse.sql_files import statement

NUMBERED: Mapping[str, Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "flows": {
        "src_addr": ("names", ("src_addr",)),
        "dst_addr": ("names", ("dst_addr",)),
        "switch_path": ("paths", ("switch_path",)),
    },
    "timeline": {"nic": ("nics", ("job_id", "addr")), "act": ("acts", ("phase", "peer"))},
}
"""Tables to their columns that are numbers: where what they stand for is, and which of the table's columns that are."""

NOTHING = np.uint32(2**32 - 1)
"""Stands for a text that is NULL among codes of categories."""


def stored(table: str) -> str:
    """Return where rows of a table are written to and deleted from."""
    return f'stored."{table}"' if table in NUMBERED else f'"{table}"'


def of_jobs(table: str, condition: str) -> str:
    """Return a condition on `job_id` as one on rows of a table as they are stored."""
    if "nic" not in NUMBERED.get(table, ()):
        return condition
    return f"nic IN (SELECT number FROM (SELECT number, value.job_id AS job_id FROM stored.nics) WHERE {condition})"


def numbered(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows as they are stored; texts that have no number yet get one, within the caller's transaction.

    Parameters
    ----------
    rows : of a table in `NUMBERED`; texts may be categories, and paths those of their switches, joined
    """
    numbers = [
        _numbered(connection, rows.select(columns), place).alias(name)
        for name, (place, columns) in NUMBERED[table].items()
    ]
    known = [column for _, columns in NUMBERED[table].values() for column in columns]
    return rows.drop(known).with_columns(numbers)


def texts(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return stored rows, or some columns of them, each of whose numbers stands for one text, with these."""
    columns = {name: place for name, (place, _) in NUMBERED[table].items() if name in rows.columns}
    values = {place: _values(connection, place) for place in columns.values()}
    return rows.with_columns(values[place].gather(rows[name]).alias(name) for name, place in columns.items())


def _values(connection: duckdb.DuckDBPyConnection, place: str) -> pl.Series:
    """Return what each number stands for, in their order."""
    return pl.Series(
        pl.from_arrow(connection.execute(f"FROM stored.{place} ORDER BY number").to_arrow_table()["value"])
    )


def _numbered(connection: duckdb.DuckDBPyConnection, columns: pl.DataFrame, place: str) -> pl.Series:
    if columns.width > 1:
        distinct, which = _together(columns)
    elif columns.dtypes == [pl.List(pl.String)]:
        distinct, which = _lists(columns.to_series())
    else:
        return _of_words(connection, columns.to_series().cast(pl.Categorical), place)
    return _at(_numbers(connection, distinct, place), which)


def _of_words(connection: duckdb.DuckDBPyConnection, column: pl.Series, place: str) -> pl.Series:
    """Return the numbers of categories, of texts or of lists of switches."""
    from llmprism_tasks.numerics import encoding  # noqa: PLC0415 - brings numba, for which who only reads has no use

    codes = column.to_physical()
    met = encoding.codes_met(codes.drop_nulls().to_numpy())
    words = pl.Series(column.name, met).cat.to(column.dtype)
    values = paths(words) if column.name == "switch_path" else words.cast(pl.String)
    numbers = np.zeros(met.max(initial=0) + 1, np.int32)
    numbers[met] = _numbers(connection, values, place)
    return _at(pl.Series(numbers), codes)


def _at(numbers: pl.Series, places: pl.Series) -> pl.Series:
    """Return the numbers at places, all of which there are: Polars would look whether they are."""
    from llmprism_tasks.numerics import grouped_sort  # noqa: PLC0415 - as above

    if places.has_nulls():
        return numbers.gather(places)
    return pl.Series(grouped_sort.taken(numbers.to_numpy(), places.to_numpy()))


def _together(columns: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """Return the distinct pairs of two texts, each a struct of both, and which of them each row has."""
    from llmprism_tasks.numerics import encoding  # noqa: PLC0415 - brings numba, for which who only reads has no use

    codes = (column.cast(pl.Categorical).to_physical().fill_null(NOTHING).to_numpy() for column in columns)
    which, rows = encoding.numbered(*codes)
    return columns[rows].cast(pl.String).to_struct(), pl.Series(which)


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
