"""Integer codes for addresses, switch paths, NICs and phases, so that flows and timeline take half the time to write.

Each address and each path is stored once, in `stored.names` and `stored.paths`; each NIC of a job in `stored.nics`;
each pair of phase and peer in `stored.acts`. Views join the texts back; joins do not keep the order of rows. Code that
needs no texts reads the stored tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl

from llmprism_tasks.contract.errors import TransientError
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
"""For each table, its coded columns, with the table of their values and the contract's columns that they replace."""

NULL_CODE = np.uint32(2**32 - 1)
"""Category code of a NULL text."""


def stored(table: str) -> str:
    """Return the name of the table to which rows of a contract table are written, and from which they are deleted."""
    return f'stored."{table}"' if table in NUMBERED else f'"{table}"'


def of_jobs(table: str, condition: str) -> str:
    """Return a condition on `job_id` as a condition on the stored rows of a table."""
    if "nic" not in NUMBERED.get(table, ()):
        return condition
    return f"nic IN (SELECT number FROM (SELECT number, value.job_id AS job_id FROM stored.nics) WHERE {condition})"


def numbered(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with codes in place of texts; new texts get a code within the caller's transaction.

    Parameters
    ----------
    rows : rows of a table in `NUMBERED`; texts may be categories, and paths the joined names of their switches
    """
    numbers = [
        _numbered(connection, rows.select(columns), place).alias(name)
        for name, (place, columns) in NUMBERED[table].items()
    ]
    known = [column for _, columns in NUMBERED[table].values() for column in columns]
    return rows.drop(known).with_columns(numbers)


def texts(connection: duckdb.DuckDBPyConnection, table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return stored rows, or some of their columns, with each code replaced by its text."""
    columns = {name: place for name, (place, _) in NUMBERED[table].items() if name in rows.columns}
    texts_of: dict[str, tuple[pl.Series, pl.Series]] = {}
    for place in dict.fromkeys(columns.values()):
        used = [rows[name].drop_nulls().to_numpy() for name, its in columns.items() if its == place]
        texts_of[place] = _values(connection, place, used)
    return rows.with_columns(
        texts_of[place][1].gather(texts_of[place][0].gather(rows[name])).alias(name) for name, place in columns.items()
    )


def _values(
    connection: duckdb.DuckDBPyConnection, place: str, used: Sequence[npt.NDArray[np.int32]]
) -> tuple[pl.Series, pl.Series]:
    """Return the places of some codes' values, by code, and the values.

    Raises
    ------
    TransientError : a code has no value, for it expired between the reading of the one and of the other
    """
    met = np.zeros(max((int(codes.max(initial=0)) for codes in used), default=0) + 1, np.bool_)
    for codes in used:
        met[codes] = True
    numbers = pl.Series("number", np.flatnonzero(met).astype(np.int32))
    connection.register("used_numbers", numbers.to_frame().to_arrow())
    query = statement("values_of_numbers").replace("/* place */", place)
    values = pl.Series(pl.from_arrow(connection.execute(query).to_arrow_table()["value"]))
    connection.unregister("used_numbers")
    if values.len() < numbers.len():
        raise TransientError(
            found="rows that expired while they were read",
            expected="rows that are still kept",
            todo="Run it again.",
        )
    at = np.zeros(met.size, np.uint32)
    at[met] = np.arange(numbers.len(), dtype=np.uint32)
    return pl.Series(at), values


def _numbered(connection: duckdb.DuckDBPyConnection, columns: pl.DataFrame, place: str) -> pl.Series:
    if columns.width > 1:
        distinct, which = _together(columns)
    elif columns.dtypes == [pl.List(pl.String)]:
        distinct, which = _lists(columns.to_series())
    else:
        return _of_words(connection, columns.to_series().cast(pl.Categorical), place)
    return _at(_numbers(connection, distinct, place), which)


def _of_words(connection: duckdb.DuckDBPyConnection, column: pl.Series, place: str) -> pl.Series:
    """Return the codes of a categorical column: of addresses, or of paths as joined names of switches."""
    from llmprism_tasks.numerics import encoding  # noqa: PLC0415 - imports numba, which reading does not need

    codes = column.to_physical()
    met = encoding.distinct_codes(codes.drop_nulls().to_numpy())
    words = pl.Series(column.name, met).cat.to(column.dtype)
    values = paths(words) if column.name == "switch_path" else words.cast(pl.String)
    numbers = np.zeros(met.max(initial=0) + 1, np.int32)
    numbers[met] = _numbers(connection, values, place)
    return _at(pl.Series(numbers), codes)


def _at(numbers: pl.Series, places: pl.Series) -> pl.Series:
    """Return `numbers[places]`, without Polars' bounds check: all places exist."""
    from llmprism_tasks.numerics import grouped_sort  # noqa: PLC0415 - imports numba, which reading does not need

    if places.has_nulls():
        return numbers.gather(places)
    return pl.Series(grouped_sort.taken(numbers.to_numpy(), places.to_numpy()))


def _together(columns: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """Return the distinct pairs of two texts as structs, and the index of each row's pair."""
    from llmprism_tasks.numerics import encoding  # noqa: PLC0415 - imports numba, which reading does not need

    codes = (column.cast(pl.Categorical).to_physical().fill_null(NULL_CODE).to_numpy() for column in columns)
    which, rows = encoding.numbered(*codes)
    return columns[rows].cast(pl.String).to_struct(), pl.Series(which)


def _lists(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the distinct lists, and the index of each row's list."""
    rows = column.to_frame("value").with_row_index("row")
    groups = rows.drop_nulls("value").group_by("value", maintain_order=True).agg("row").with_row_index("which")
    which = rows.join(groups.select("which", "row").explode("row"), on="row", how="left", maintain_order="left")
    return groups["value"], which["which"]


def _numbers(connection: duckdb.DuckDBPyConnection, values: pl.Series, place: str) -> pl.Series:
    """Return the codes of distinct values; new values get the next codes, in order."""
    rows = values.alias("value").to_frame().with_row_index("row")
    connection.register("incoming_values", rows.to_arrow(compat_level=pl.CompatLevel.newest()))
    known = statement("numbers_of_values").replace("/* place */", place)
    numbers = pl.Series(pl.from_arrow(connection.execute(known).to_arrow_table()["number"]))
    if numbers.has_nulls():
        # Two transactions that number values at once write the same row: one of them conflicts, and begins again.
        connection.execute(f"UPDATE stored.{place} SET value = value WHERE number = 0")
        connection.execute(statement("number_values").replace("/* place */", place))
        numbers = pl.Series(pl.from_arrow(connection.execute(known).to_arrow_table()["number"]))
    connection.unregister("incoming_values")
    return numbers
