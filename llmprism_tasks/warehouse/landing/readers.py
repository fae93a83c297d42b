"""Readers: the SQL that reads a file's records, with the fields of a flow under the contract's names, whatever the
format.

A field's name in the file is found by `sources.columns`. Names of folders mean nothing. A file that cannot be read is
refused with its name, the position in it and the reason.
"""

from __future__ import annotations

import csv
import glob
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from llmprism_tasks.contract import system_errors
from llmprism_tasks.contract.errors import InputError
from llmprism_tasks.contract.tables import FLOW_COLUMNS
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.sources import columns as columns_of_files
from llmprism_tasks.sources.columns import NANOSECONDS_IN, TIMES, Origin
from llmprism_tasks.sources.flows import FlowFile, UnfinishedError, unreadable
from llmprism_tasks.warehouse.sql_files import identifier, statement

ROW_NUMBER = "file_row_number"
KEYS_SAMPLE = 1_000  # lines of a JSON file that are searched for unknown keys

NAMES = tuple(column.name for column in FLOW_COLUMNS)
REQUIRED = tuple(column.name for column in FLOW_COLUMNS if not column.optional)
INTEGERS = {f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")} | {
    "HUGEINT"
}
OTHER_SEPARATORS = re.compile(r"[;\t|]")
NUMBERS_AND_TEXT = INTEGERS | {"VARCHAR", "VARCHAR[]", "DOUBLE", "FLOAT"}
MOMENTS = NUMBERS_AND_TEXT | {"TIMESTAMP", "TIMESTAMP_NS", "TIMESTAMP_MS", "TIMESTAMP_S", "TIMESTAMP WITH TIME ZONE"}
NOT_THE_FILE = (duckdb.OutOfMemoryException, duckdb.InterruptException, duckdb.InternalException, duckdb.FatalException)


@dataclass(frozen=True)
class Reader:
    """How a file's records are read.

    Attributes
    ----------
    sql : a query that returns them
    values : the query's values
    origins : where the file has each field
    strangers : columns of the file that flows do not have
    header : names of a CSV file's columns; empty for other formats
    """

    sql: str
    values: Mapping[str, object]
    origins: Mapping[str, Origin]
    strangers: set[str]
    header: tuple[str, ...] = ()

    def factor(self, field: str) -> int:
        """Return how many nanoseconds the unit of a time is."""
        return NANOSECONDS_IN[self.origins[field].unit] if field in self.origins else 1

    def factors(self) -> dict[str, object]:
        """Return the values that the checks of times need."""
        return {"start_factor": self.factor(TIMES[0]), "end_factor": self.factor(TIMES[1])}


def reader(connection: duckdb.DuckDBPyConnection, file: FlowFile, within: Window, given: Mapping[str, str]) -> Reader:
    """Return how a file's records are read.

    Parameters
    ----------
    within : records of Parquet files that start elsewhere are left out if that saves reading; text is read whole
    given : the user's names of columns, by field

    Raises
    ------
    InputError : the file cannot be read, or lacks a required column
    """
    values: dict[str, object] = {"file_name": glob.escape(file.path)}
    if file.format == "parquet":
        return _parquet(connection, file, within, given, values)
    lines = statement("read_lines")
    if file.format == "csv":
        return _csv(connection, file, lines, given, values)
    return _json_lines(connection, file, lines, given, values)


def execute(
    connection: duckdb.DuckDBPyConnection, file: FlowFile, sql: str, values: Mapping[str, object]
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


def _parquet(
    connection: duckdb.DuckDBPyConnection,
    file: FlowFile,
    within: Window,
    given: Mapping[str, str],
    values: dict[str, object],
) -> Reader:
    schema = "DESCRIBE FROM read_parquet($file_name, hive_partitioning = false, filename = false)"
    described = execute(connection, file, schema, values)
    columns = {str(row[0]): str(row[1]) for row in described.fetchall()}
    origins = _origins(file, columns, "schema", given)
    for column in FLOW_COLUMNS:
        origin = origins.get(column.name, Origin(()))
        wanted = {"VARCHAR"} if column.type == "VARCHAR" else INTEGERS
        # Some exporters write numbers as text, or as fractions where some are missing. Times would lose digits.
        if column.optional or column.name == "bytes":
            wanted = NUMBERS_AND_TEXT
        if origin.unit != "ns":
            wanted = MOMENTS
        for name in origin.names:
            if columns[name] not in wanted:
                meaning = f" ({column.meaning}, in nanoseconds since 1970 UTC)" if column.name in TIMES else ""
                raise unreadable(file.path, f"column {name}", f"is {columns[name]}", f"{column.type}{meaning}")
    taken = {name.lower() for name in columns}
    if ROW_NUMBER in taken:
        raise unreadable(file.path, f"column {ROW_NUMBER}", "has a name that DuckDB keeps for itself", "another name")
    whole = next(name for number in range(len(columns) + 1) if (name := f"whole_record_{number}") not in taken)
    in_ns = origins[TIMES[0]].unit == "ns"
    near = statement("near").replace("/* start */", identifier(origins[TIMES[0]].names[0])) if in_ns else "true"
    sql = (
        statement("read_parquet")
        .replace("/* fields */", _fields(origins, identifier))
        .replace("/* whole */", identifier(whole))
        .replace("/* near */", near)
    )
    bounds = {"from_ns": within.start_ns, "to_ns": within.end_ns}
    return Reader(sql, values | bounds, origins, _strangers(columns, origins))


def _csv(
    connection: duckdb.DuckDBPyConnection,
    file: FlowFile,
    lines: str,
    given: Mapping[str, str],
    values: dict[str, object],
) -> Reader:
    first = execute(connection, file, f"SELECT line FROM ({lines}) LIMIT 1", values).fetchone()
    header = [name.strip() for name in next(csv.reader([str(first[0])]))] if first else []
    if not header:
        found, expected = "names no columns: the file is empty", f"the columns {', '.join(REQUIRED)}"
        raise UnfinishedError.of(unreadable(file.path, "line 1 (header)", found, expected))
    if len(header) == 1 and (sign := OTHER_SEPARATORS.search(header[0])):
        found = f"has one column, {header[0][:100]}, as if {sign[0]!r} were between the fields"
        raise unreadable(file.path, "line 1 (header)", found, "commas between the fields")
    if len(set(header)) < len(header):
        twice = sorted({name for name in header if header.count(name) > 1})
        raise unreadable(file.path, "line 1 (header)", f"names {', '.join(twice)} twice", "each column once")
    origins = _origins(file, header, "line 1 (header)", given)
    fields = _fields(origins, lambda name: f"nullif(trim(texts[{header.index(name) + 1}]), '')")
    sql = statement("read_csv").replace("/* lines */", lines).replace("/* fields */", fields)
    return Reader(sql, values | {"columns": len(header)}, origins, _strangers(header, origins), tuple(header))


def _json_lines(
    connection: duckdb.DuckDBPyConnection,
    file: FlowFile,
    lines: str,
    given: Mapping[str, str],
    values: dict[str, object],
) -> Reader:
    sample = statement("json_keys").replace("/* lines */", lines)
    found = {str(row[0]) for row in execute(connection, file, sample, values | {"sample": KEYS_SAMPLE}).fetchall()}
    origins = columns_of_files.origins(found, given)
    for field in NAMES:  # the first lines need not have every key
        origins.setdefault(field, columns_of_files.user_origin(given.get(field, field)))
    keys = [name for origin in origins.values() for name in origin.names]
    paths = ['$."' + name.replace('"', '\\"') + '"' for name in keys]
    fields = _fields(origins, lambda name: f"nullif(texts[{keys.index(name) + 1}], '')")
    sql = statement("read_jsonl").replace("/* lines */", lines).replace("/* fields */", fields)
    return Reader(sql, values | {"keys": paths}, origins, found - set(keys))


def _fields(origins: Mapping[str, Origin], value: Callable[[str], str]) -> str:
    """Return the SQL that gives each field its name in the contract; NULL without a type if the file lacks it."""
    return ",\n    ".join(
        f"{_value(origins[field], value) if field in origins else 'NULL'} AS {field}" for field in NAMES
    )


def _value(origin: Origin, value: Callable[[str], str]) -> str:
    return value(origin.names[0]) if len(origin.names) == 1 else f"coalesce({', '.join(map(value, origin.names))})"


def _origins(
    file: FlowFile, columns: Sequence[str] | Mapping[str, str], position: str, given: Mapping[str, str]
) -> dict[str, Origin]:
    origins = columns_of_files.origins(list(columns), given)
    missing = [name for name in REQUIRED if name not in origins]
    asked = {field: text for field, text in given.items() if field not in origins}
    if missing or asked:
        wanted = [name for name in missing if name not in asked]
        wanted += [f"{text} (for {field}, as --columns or [columns] has it)" for field, text in asked.items()]
        found = f"has no column {', '.join(wanted)}, only {', '.join(columns) or 'nothing'}"[:300]
        raise unreadable(
            file.path,
            position,
            found,
            f"the columns {', '.join(REQUIRED)}, their IPFIX names, or those that `--columns` names",
            todo="Name them, as in --columns flow_start_ns=first_seen:ms,bytes=octets; or export the file again, or "
            "remove it. Nothing was written.",
        )
    return origins


def _strangers(columns: Sequence[str] | Mapping[str, str], origins: Mapping[str, Origin]) -> set[str]:
    return set(columns) - {name for origin in origins.values() for name in origin.names}


def _cannot_read(file: FlowFile, message: str) -> InputError:
    kind, _, rest = message.strip().partition(":")
    reason = (rest.strip() or kind).splitlines()[0]
    line = re.search(r"Line: (\d+)", message)
    if line:
        unicode_error = "Invalid unicode" in message
        reason = "text that is not UTF-8" if unicode_error else reason
        return unreadable(file.path, f"line {line[1]}", reason, "lines of UTF-8 text")
    size = Path(file.path).stat().st_size if Path(file.path).exists() else 0
    return UnfinishedError.of(unreadable(file.path, f"a file of {size} bytes", reason, f"a whole {file.format} file"))
