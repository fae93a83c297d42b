"""Rows of a user's query as they are printed: each column has a name of its own, and a form that JSON and CSV know.

Numbers of up to 64 bits, truth values, texts, and lists and structs of these stay what they are. All else is text, as
DuckDB writes it: times, intervals, decimals and so on. Some of their values, such as an interval of a month or a time
without end, are none that Polars or Python can hold.
"""

from __future__ import annotations

import duckdb
import polars as pl
import pyarrow as pa

from llmprism_tasks.contract.errors import InputError

KEPT_TYPES = frozenset(
    {
        *(f"{sign}{size}" for sign in ("", "u") for size in ("tinyint", "smallint", "integer", "bigint")),
        *("float", "double", "boolean", "varchar"),
    }
)
"""DuckDB's names of the types that stay."""
NESTED = ("list", "array", "struct")  # these stay if all that is in them stays
ROWS_AT_A_TIME = 122_880  # DuckDB's row group


def at_most(rows: duckdb.DuckDBPyRelation, most: int) -> pl.DataFrame:
    """Return a query's rows as they are printed; refuse more than `most` before they fill the memory.

    A name that comes a second time gets a number, as in DuckDB's own tables: `a`, `a_1`.

    Raises
    ------
    InputError : there are more
    """
    names = rows.project("*").columns
    forms = (f"#{at}" if _stays(kind) else f"CAST(#{at} AS VARCHAR)" for at, kind in enumerate(rows.types, 1))
    stream, batches, count = rows.project(", ".join(forms)).to_arrow_reader(ROWS_AT_A_TIME), [], 0
    for batch in stream:
        batches.append(batch)
        count += batch.num_rows
        if count > most:
            raise InputError(
                found=f"a query with more than {most:,} rows",
                expected="rows that fit into memory",
                todo="Count or group them, or take some with LIMIT.",
            )
    return pl.DataFrame(pl.from_arrow(pa.Table.from_batches(batches, stream.schema).rename_columns(names)))


def _stays(kind: duckdb.sqltypes.DuckDBPyType) -> bool:
    if kind.id in NESTED:
        return all(_stays(part) for _, part in kind.children if isinstance(part, duckdb.sqltypes.DuckDBPyType))
    return kind.id in KEPT_TYPES
