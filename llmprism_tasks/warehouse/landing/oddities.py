"""Oddities of whole files and windows: times in another unit, paths with another separator, floods of addresses."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import duckdb
import polars as pl

from llmprism_tasks.contract.visible_text import STEERING
from llmprism_tasks.sources.columns import NANOSECONDS_IN, TIMES
from llmprism_tasks.sources.flows import FlowFile, unreadable
from llmprism_tasks.warehouse.landing.readers import Reader, execute
from llmprism_tasks.warehouse.sql_files import statement

logger = logging.getLogger(__name__)

MEMORY_LIMIT = "200MB"  # for the sorting out of a flood; above it DuckDB spills to a temporary folder
UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", "iso": "ISO 8601 text"}


def refuse_other_units(connection: duckdb.DuckDBPyConnection, number: int, file: FlowFile, read: Reader) -> None:
    """Refuse a file if most of its records have times in another unit, or paths with another separator.

    A few such records are refused one by one. If most are, the file says something else than we understand.

    Parameters
    ----------
    number : the file's number among the staged ones

    Raises
    ------
    InputError : names the column, an example and the factor
    """
    counted = connection.execute(statement("odd_records"), {"file": number}).fetchone() or (0, 0, 0, 0)
    records, odd_times, paths, odd_paths = (int(count) for count in counted)
    if odd_times * 2 > records:
        _refuse_times(connection, file, read, records)
    if odd_paths * 2 > paths:
        _refuse_paths(connection, file, read, odd_paths, paths)


def clean_names(connection: duckdb.DuckDBPyConnection, files: Sequence[FlowFile]) -> None:
    """Remove control characters from the names of switches, so that they never reach a terminal or a picture.

    Raises
    ------
    InputError : two names differ in nothing else
    """
    controls = {"controls": STEERING}
    found = connection.execute(statement("names_with_controls"), controls).fetchall()
    if not found:
        return
    name, clean, ambiguous = found[0]
    if ambiguous:
        first = connection.execute(
            "SELECT file, source_position FROM staged WHERE list_contains(switch_path, ?) ORDER BY ALL", [name]
        ).fetchone() or (0, 0)
        raise unreadable(
            files[first[0]].path,
            f"record {first[1]}",
            f"switch {name!r}, which without its control characters is {clean!r}, as another switch is, or nothing",
            "names that differ in what can be seen",
        )
    cleaned = "list_transform(switch_path, lambda name: regexp_replace(name, $controls, '', 'g'))"
    connection.execute(f"UPDATE staged SET switch_path = {cleaned} WHERE switch_path IS NOT NULL", controls)
    logger.warning("removed control characters from %d names of switches, such as %r", len(found), name)


def put_aside(connection: duckdb.DuckDBPyConnection, listed: pl.Series, most: int) -> dict[int, int]:
    """Refuse flows of addresses that the topology does not list, beyond a number of such addresses in a window.

    The addresses with most flows are kept, so that storage, and NICs that the topology lacks, are still seen.

    Parameters
    ----------
    listed : addresses of the topology
    most : such addresses whose flows are kept, in a window

    Returns
    -------
    by window, how many addresses had their flows put aside
    """
    about = connection.execute(statement("most_addrs")).fetchone() or (0,)
    if about[0] < most / 2:  # far beyond the error of an estimate
        return {}
    connection.execute("SET threads = 1")  # each has buffers of its own, and a flood is no time to spend memory
    connection.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
    connection.register("listed_addrs", listed.alias("addr").to_frame().to_arrow())
    try:
        connection.execute(statement("unlisted_addrs"), {"most": most})
        counted = "SELECT window_start_ns, count(*) FROM beyond GROUP BY window_start_ns ORDER BY window_start_ns"
        aside = {int(start_ns): int(addrs) for start_ns, addrs in connection.execute(counted).fetchall()}
        if aside:
            connection.execute(statement("put_aside"))
    finally:
        connection.unregister("listed_addrs")
        connection.execute("DROP TABLE IF EXISTS beyond")
    return aside


def _refuse_times(connection: duckdb.DuckDBPyConnection, file: FlowFile, read: Reader, records: int) -> None:
    sql = statement("units_of_times").replace("/* records */", read.sql)
    said_units = {"start_unit": read.origins[TIMES[0]].unit, "end_unit": read.origins[TIMES[1]].unit}
    row = execute(connection, file, sql, {**read.values, **said_units}).fetchone()
    if row is None or row[2] * 2 <= records:
        return
    field, unit, count, example = row
    origin = read.origins[field]
    (name,), said = origin.names, UNITS[origin.unit]
    factor = "" if unit == "iso" else f" (a factor of {_factor(unit, origin.unit)})"
    how = "s" if unit == "iso" else unit
    raise unreadable(
        file.path,
        f"column {name}",
        f"{example} looks like {UNITS[unit]}, and so do {count} of {records} records{factor}",
        f"{said} since 1970 UTC",
        todo=f"Convert {name} at the export, or say how it is: --columns {field}={name}:{how}, or [columns] in the "
        f"settings ({', '.join(NANOSECONDS_IN)}; ISO 8601 is understood in s, ms and us). Nothing was written.",
    )


def _factor(found: str, said: str) -> str:
    large, small = NANOSECONDS_IN[found], NANOSECONDS_IN[said]
    return f"{max(large, small) // min(large, small):,}"


def _refuse_paths(
    connection: duckdb.DuckDBPyConnection, file: FlowFile, read: Reader, odd_paths: int, paths: int
) -> None:
    sql = statement("separators_of_paths").replace("/* records */", read.sql)
    row = execute(connection, file, sql, read.values).fetchone()
    if row is None or row[1] * 2 <= paths:
        return
    sign, count, example = row
    raise unreadable(
        file.path,
        f"column {read.origins['switch_path'].names[0]}",
        f"{example} has {sign!r} between its switches, as {count} of {paths} paths have",
        "switches joined by '|', or a list",
        todo="Write leaf1|spine0|leaf0, or a JSON list; or leave the column out. Nothing was written.",
    )
