"""Record-by-record landing: read files into a temporary DuckDB, check each record, and place it in a window.

The warehouse is closed meanwhile, because reading may take long and would block other processes. A record is placed by
its start. A record whose start is unusable, or outside the interval of its file's name by more than the allowed
lateness, goes to the first window of that interval. If the name gives no interval, it goes to the window of the file's
first usable start; in a file without any, to that of the earliest usable start in all files; without any at all, to the
window at 1970. So the place of a record depends on the files alone, and not on what was landed before.
"""

from __future__ import annotations

import csv
import glob
import itertools
import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa

from llmprism_tasks.contract import system_errors
from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.tables import FLOW_COLUMNS
from llmprism_tasks.contract.windows import ALL_TIME, Window
from llmprism_tasks.sources.flows import FlowFile, check_whole, unreadable
from llmprism_tasks.warehouse import flow_order
from llmprism_tasks.warehouse.sql_files import statement

logger = logging.getLogger(__name__)

MEMORY_LIMIT = "2GB"  # above it DuckDB spills to a temporary folder; a minute of a large platform needs a tenth
ROWS_AT_A_TIME = 122_880  # one row group of DuckDB
KEYS_SAMPLE = 1_000  # lines of a JSON file that are searched for unknown keys

NAMES = tuple(column.name for column in FLOW_COLUMNS)
REQUIRED = tuple(column.name for column in FLOW_COLUMNS if not column.optional)
INTEGERS = {f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")} | {
    "HUGEINT"
}
NOT_THE_FILE = (duckdb.OutOfMemoryException, duckdb.InterruptException, duckdb.InternalException, duckdb.FatalException)


@dataclass(frozen=True)
class Counts:
    """Outcome of a window's records: `read` is `landed` plus `quarantined`, which includes `duplicate`."""

    read: int
    landed: int
    quarantined: int
    duplicate: int


@dataclass(frozen=True)
class Staging:
    """Records that were read, checked and placed, and wait to be landed."""

    connection: duckdb.DuckDBPyConnection
    files: Sequence[FlowFile]

    def placed(self) -> set[int]:
        """Return the starts of all windows with records."""
        rows = self.connection.execute("SELECT DISTINCT window_start_ns FROM staged").fetchall()
        return {int(row[0]) for row in rows}

    def counts(self, window: Window) -> Counts:
        """Return the outcome of a window's records."""
        row = self.connection.execute(statement("staged_counts"), {"window_start_ns": window.start_ns}).fetchone()
        return Counts(*(int(number) for number in row or (0, 0, 0, 0)))

    def flows(self, window: Window) -> Callable[[], Any]:
        """Return a function that returns a window's rows of `flows` in order, as an Arrow stream.

        The rows of the first call are sorted before this returns, so the warehouse is not held meanwhile.
        """
        sorted_rows = itertools.chain([self._sorted(window)], iter(lambda: self._sorted(window), None))
        return lambda: next(sorted_rows)

    def quarantine(self, window: Window) -> pl.DataFrame:
        """Return a window's rows of `flows_quarantine`."""
        values = {"window_start_ns": window.start_ns, "files": [file.path for file in self.files]}
        return self.connection.execute(statement("staged_quarantine"), values).pl()

    def _sorted(self, window: Window) -> Any:
        values, cursor = {"window_start_ns": window.start_ns}, self.connection.cursor()
        if cursor.execute(statement("starts_ascend"), values).fetchone() != (True,):
            query = f"{statement('staged_flows')} {flow_order.ORDER_BY}"
            return cursor.execute(query, values).to_arrow_reader(ROWS_AT_A_TIME)
        read = cursor.execute(statement("staged_flows"), values).to_arrow_reader(ROWS_AT_A_TIME)
        return pa.RecordBatchReader.from_batches(read.schema, flow_order.ties_in_order(read))


@contextmanager
def staging(
    files: Sequence[FlowFile], *, length_ns: int, lateness_ns: int, within: Window | None = None
) -> Iterator[Staging]:
    """Read files and provide their records.

    Parameters
    ----------
    length_ns : length of a window
    lateness_ns : how far outside the interval of its file's name a record may start
    within : keep only records placed in this interval; None for all

    Raises
    ------
    InputError : a file cannot be read at all; names the file, the position in it and the reason
    """
    with tempfile.TemporaryDirectory(prefix="llmprism-") as spill:
        connection = duckdb.connect(":memory:", config={"temp_directory": spill, "memory_limit": MEMORY_LIMIT})
        try:
            connection.execute("SET enable_progress_bar = false")
            connection.execute(statement("staging"))
            _read(connection, files, length_ns, lateness_ns, within or ALL_TIME)
            connection.execute(statement("mark_duplicates"))
            yield Staging(connection, files)
        finally:
            connection.close()


def warn_of(strangers: set[str]) -> None:
    """Warn of columns that flows do not have."""
    if strangers:
        logger.warning("ignored unknown columns in files of flows: %s", ", ".join(sorted(strangers)))


def starts_after(files: Sequence[FlowFile], time_ns: int) -> bool:
    """Return whether any record of the files has a usable start at or after a time."""
    with duckdb.connect(":memory:") as connection:
        connection.execute(statement("staging"))
        for file in reversed(files):  # files with the latest names are most likely to hold the latest records
            records, values, _ = _reader(connection, file, Window(time_ns, ALL_TIME.end_ns - time_ns))
            sql = statement("starts_after").replace("/* records */", records)
            if _execute(connection, file, sql, values | {"time_ns": time_ns}).fetchone():
                return True
    return False


def _read(
    connection: duckdb.DuckDBPyConnection, files: Sequence[FlowFile], length_ns: int, lateness_ns: int, within: Window
) -> None:
    unknown: set[str] = set()
    for number, file in enumerate(files):
        check_whole(file.path)
        records, values, strangers = _reader(connection, file, ALL_TIME if file.span else within)
        unknown |= strangers
        values |= {
            "file": number,
            "length_ns": length_ns,
            "lateness_ns": lateness_ns,
            "span_start_ns": file.span.start_ns if file.span else None,
            "span_end_ns": file.span.end_ns if file.span else None,
            "low_ns": within.start_ns,
            "high_ns": within.end_ns,
        }
        _execute(connection, file, statement("check_records").replace("/* records */", records), values)
        if "header" in values:
            connection.execute(statement("name_fields"), {"file": number, "header": values["header"]})
    warn_of(unknown)
    _place_the_rest(connection, files, length_ns, within)


def _place_the_rest(
    connection: duckdb.DuckDBPyConnection, files: Sequence[FlowFile], length_ns: int, within: Window
) -> None:
    """Place records without a usable start in files whose names give no interval, as the module docstring explains."""
    rows = connection.execute("SELECT DISTINCT file FROM staged WHERE window_start_ns IS NULL ORDER BY file").fetchall()
    for (number,) in rows:
        start_ns = _first_start(connection, files[number])
        if start_ns is None:
            starts = [start for file in files if (start := _first_start(connection, file)) is not None]
            start_ns = min(starts, default=0)
        window = Window.containing(start_ns, length_ns)
        connection.execute(
            "UPDATE staged SET window_start_ns = ? WHERE window_start_ns IS NULL AND file = ?",
            [window.start_ns, number],
        )
    if rows:
        outside = "DELETE FROM staged WHERE window_start_ns < ? OR window_start_ns >= ?"
        connection.execute(outside, [within.start_ns, within.end_ns])


def _first_start(connection: duckdb.DuckDBPyConnection, file: FlowFile) -> int | None:
    records, values, _ = _reader(connection, file, ALL_TIME)
    row = _execute(connection, file, statement("first_start").replace("/* records */", records), values).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _reader(
    connection: duckdb.DuckDBPyConnection, file: FlowFile, within: Window
) -> tuple[str, dict[str, object], set[str]]:
    """Return the SQL that reads a file's records, its values, and the file's columns that the contract does not have.

    Parameters
    ----------
    within : records of Parquet files that start elsewhere are left out if that saves reading; text is read whole
    """
    values: dict[str, object] = {"file_name": glob.escape(file.path)}
    if file.format == "parquet":
        columns = _parquet_columns(connection, file)
        return (
            statement("read_parquet"),
            values | {"from_ns": within.start_ns, "to_ns": within.end_ns},
            set(columns) - set(NAMES),
        )
    lines = statement("read_lines")
    if file.format == "csv":
        header = _csv_header(connection, file, lines, values)
        return (
            statement("read_csv").replace("/* lines */", lines),
            values | {"header": header},
            set(header) - set(NAMES),
        )
    keys = _execute(
        connection, file, statement("json_keys").replace("/* lines */", lines), values | {"sample": KEYS_SAMPLE}
    ).fetchall()
    return statement("read_jsonl").replace("/* lines */", lines), values, {str(row[0]) for row in keys} - set(NAMES)


def _parquet_columns(connection: duckdb.DuckDBPyConnection, file: FlowFile) -> dict[str, str]:
    described = _execute(
        connection, file, "DESCRIBE FROM read_parquet($file_name)", {"file_name": glob.escape(file.path)}
    )
    columns = {str(row[0]): str(row[1]) for row in described.fetchall()}
    _check_columns(file, columns, "schema")
    for column in FLOW_COLUMNS:
        found = columns.get(column.name)
        wanted = {"VARCHAR"} if column.type == "VARCHAR" else INTEGERS
        if column.optional:  # some exporters write numbers as text, or as fractions where some are missing
            wanted = INTEGERS | {"VARCHAR", "VARCHAR[]", "DOUBLE", "FLOAT"}
        if found is not None and found not in wanted:
            meaning = f" ({column.meaning}, in nanoseconds since 1970 UTC)" if column.name.endswith("_ns") else ""
            raise unreadable(file.path, f"column {column.name}", f"is {found}", f"{column.type}{meaning}")
    return columns


def _csv_header(
    connection: duckdb.DuckDBPyConnection, file: FlowFile, lines: str, values: dict[str, object]
) -> list[str]:
    first = _execute(connection, file, f"SELECT line FROM ({lines}) LIMIT 1", values).fetchone()
    header = [name.strip() for name in next(csv.reader([str(first[0])]))] if first else []
    _check_columns(file, header, "line 1 (header)")
    if len(set(header)) < len(header):
        twice = sorted({name for name in header if header.count(name) > 1})
        raise unreadable(file.path, "line 1 (header)", f"names {', '.join(twice)} twice", "each column once")
    return header


def _check_columns(file: FlowFile, columns: Sequence[str] | dict[str, str], position: str) -> None:
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        found = f"has no column {', '.join(missing)}, only {', '.join(columns) or 'nothing'}"[:300]
        raise unreadable(file.path, position, found, f"the columns {', '.join(REQUIRED)}")


def _execute(
    connection: duckdb.DuckDBPyConnection, file: FlowFile, sql: str, values: dict[str, object]
) -> duckdb.DuckDBPyConnection:
    """Execute SQL that reads one file, so that an error can name the file."""
    try:
        return connection.execute(sql, {name: value for name, value in values.items() if f"${name}" in sql})
    except NOT_THE_FILE:
        raise
    except duckdb.Error as error:
        if "Could not write" in str(error):  # not the file that is read, but the temporary folder
            raise system_errors.typed(error) or error from error
        raise _cannot_read(file, str(error)) from error


def _cannot_read(file: FlowFile, message: str) -> InputError:
    reason = message.partition(":")[2].strip().splitlines()[0] if ":" in message else message
    line = re.search(r"Line: (\d+)", message)
    if line:
        unicode_error = "Invalid unicode" in message
        reason = "text that is not UTF-8" if unicode_error else reason
        return unreadable(file.path, f"line {line[1]}", reason, "lines of UTF-8 text")
    size = Path(file.path).stat().st_size if Path(file.path).exists() else 0
    return unreadable(file.path, f"a file of {size} bytes", reason, f"a whole {file.format} file")
