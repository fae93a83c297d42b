"""Record-by-record landing: read files into a temporary DuckDB, check each record, and place it in a window.

The warehouse is closed meanwhile, because reading may take long and would block other processes. A record is placed by
its start, whatever its file is called. A record whose start is unusable, or more than a day away from the interval of
its file's name, goes to the first window of that interval: such a start is a wrong clock, not a late record. If the
name gives no interval, a record without a usable start goes to the window of the file's first usable start; in a file
without any, to that of the earliest usable start in all files; without any at all, to the window at 1970. So the place
of a record depends on the files alone, and not on what was landed before.
"""

from __future__ import annotations

import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from llmprism_tasks.contract.errors import InputError, TransientError
from llmprism_tasks.contract.windows import ALL_TIME, NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.sources.addresses import ADDRESS
from llmprism_tasks.sources.flows import FlowFile, UnfinishedError, check_whole
from llmprism_tasks.warehouse.landing import gone_files, oddities
from llmprism_tasks.warehouse.landing.intake import Intake
from llmprism_tasks.warehouse.landing.readers import execute, reader
from llmprism_tasks.warehouse.sql_files import statement
from llmprism_tasks.warehouse.storage import flow_order
from llmprism_tasks.warehouse.storage.temporary_folder import temporary_folder

logger = logging.getLogger(__name__)

MEMORY_LIMIT = "1GB"  # above it DuckDB spills to a temporary folder; a minute of a large platform needs a fifth of it
ROWS_AT_A_TIME = 122_880  # one row group of DuckDB
FARTHEST_NS = 86_400 * NANOSECONDS_PER_SECOND
"""How far from its file's name a record may start: the longest timers of exporters cut flows within the hour, and files
that are sent again are of the same day. A start beyond is one of a wrong clock."""

PutAside = Mapping[int, int]
"""By window, how many addresses that the topology does not list had their flows put aside."""


@dataclass(frozen=True)
class Counts:
    """Outcome of a window's records: `read` is `landed` plus `quarantined`, which includes `duplicate`."""

    read: int
    landed: int
    quarantined: int
    duplicate: int


@dataclass(frozen=True)
class Staging:
    """Records that were read, checked and placed, and wait to be landed.

    Attributes
    ----------
    files : the files, by their number in `staged`
    parts : by file, how many of its records were placed in each window, by the window's start
    skipped : files of other windows that could not be read, with the reason
    aside : by window, how many addresses that the topology does not list had their flows put aside
    """

    connection: duckdb.DuckDBPyConnection
    files: list[str]
    parts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    aside: PutAside = field(default_factory=dict)

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

    def quarantine(self, window: Window) -> Callable[[], Any]:
        """Return a function that returns a window's rows of `flows_quarantine` in order, as an Arrow stream."""
        values = {"window_start_ns": window.start_ns, "files": self.files}
        query = statement("staged_quarantine")
        return lambda: self.connection.cursor().execute(query, values).to_arrow_reader(ROWS_AT_A_TIME)

    def keep(self, window: Window, kept: gone_files.Kept) -> gone_files.Outcome:
        """Add to a window's records what the warehouse holds of files that are gone."""
        self.files.extend(path for path in kept.files if path not in self.files)
        return gone_files.add(self.connection, window, kept, self.files)

    def _sorted(self, window: Window) -> Any:
        values, cursor = {"window_start_ns": window.start_ns}, self.connection.cursor()
        if cursor.execute(statement("starts_ascend"), values).fetchone() != (True,):
            query = f"{statement('staged_flows')} {flow_order.ORDER_BY}"
            return cursor.execute(query, values).to_arrow_reader(ROWS_AT_A_TIME)
        read = cursor.execute(statement("staged_flows"), values).to_arrow_reader(ROWS_AT_A_TIME)
        return pa.RecordBatchReader.from_batches(read.schema, flow_order.ties_in_order(read))


@contextmanager
def staging(
    files: Sequence[FlowFile],
    *,
    length_ns: int,
    within: Window | None = None,
    whole: Set[str] | None = None,
    intake: Intake | None = None,
) -> Iterator[Staging]:
    """Read files and provide their records.

    Parameters
    ----------
    length_ns : length of a window
    within : keep only records placed in this interval; None for all
    whole : paths of files whose records are to be counted in all windows; None for all files

    Raises
    ------
    InputError : a file cannot be read at all; names the file, the position in it and the reason. A file whose name
        gives an interval without `within` is skipped instead
    TransientError : a file cannot be read, but was changed a moment ago
    """
    intake = intake or Intake()
    with temporary_folder() as spill:
        connection = duckdb.connect(":memory:", config={"temp_directory": str(spill), "memory_limit": MEMORY_LIMIT})
        try:
            connection.execute("SET enable_progress_bar = false")
            connection.execute(staging_sql())
            reading = _Reading(connection, files, length_ns, within or ALL_TIME, whole, intake)
            reading.read()
            parts = reading.parts()
            connection.execute(statement("mark_duplicates"))
            aside = {} if intake.listed is None else oddities.put_aside(connection, intake.listed, intake.most_unlisted)
            yield Staging(connection, [file.path for file in files], parts, reading.skipped, aside)
        finally:
            connection.close()


def staging_sql() -> str:
    """Return the SQL of the tables and macros with which records are read and checked."""
    return statement("staging").replace("/* address */", ADDRESS)


def warn_of(strangers: set[str]) -> None:
    """Warn of columns that flows do not have."""
    if strangers:
        logger.warning("ignored unknown columns in files of flows: %s", ", ".join(sorted(strangers)))


def starts_after(files: Sequence[FlowFile], time_ns: int, given: Mapping[str, str]) -> bool:
    """Return whether any record of the files has a usable start at or after a time."""
    with duckdb.connect(":memory:") as connection:
        connection.execute(staging_sql())
        for file in reversed(files):  # files with the latest names are most likely to hold the latest records
            read = reader(connection, file, Window(time_ns, ALL_TIME.end_ns - time_ns), given)
            sql = statement("starts_after").replace("/* records */", read.sql)
            if execute(connection, file, sql, {**read.values, **read.factors(), "time_ns": time_ns}).fetchone():
                return True
    return False


class _Reading:
    """The reading of some files into `staged`."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        files: Sequence[FlowFile],
        length_ns: int,
        within: Window,
        whole: Set[str] | None,
        intake: Intake,
    ) -> None:
        self._connection, self._files, self._length_ns = connection, files, length_ns
        self._within, self._whole, self._intake = within, whole, intake
        self.skipped: dict[str, str] = {}

    def read(self) -> None:
        """Place the records of all files, and refuse the files that cannot be read."""
        unknown: set[str] = set()
        for number, file in enumerate(self._files):
            try:
                unknown |= self._take(number, file)
            except InputError as error:
                self._refuse(file, error)
        warn_of(unknown)
        oddities.clean_names(self._connection, self._files)
        self._place_the_rest()

    def parts(self) -> dict[str, dict[int, int]]:
        """Return how many records of each file were placed in each window, and drop those of other windows."""
        parts: dict[str, dict[int, int]] = defaultdict(dict)
        counted = "SELECT file, window_start_ns, count(*) FROM staged GROUP BY ALL ORDER BY ALL"
        for number, start_ns, records in self._connection.execute(counted).fetchall():
            parts[self._files[number].path][start_ns] = records
        if self._within != ALL_TIME:
            outside = "DELETE FROM staged WHERE window_start_ns < ? OR window_start_ns >= ?"
            self._connection.execute(outside, [self._within.start_ns, self._within.end_ns])
        return parts

    def _reads_whole(self, file: FlowFile) -> bool:
        return self._whole is None or file.path in self._whole

    def _take(self, number: int, file: FlowFile) -> set[str]:
        """Stage a file's records; return the file's columns that flows do not have."""
        check_whole(file.path)
        within = ALL_TIME if self._reads_whole(file) else self._within
        read = reader(self._connection, file, ALL_TIME if file.span else within, self._intake.columns)
        values = {
            **read.values,
            **read.factors(),
            "file": number,
            "length_ns": self._length_ns,
            "farthest_ns": FARTHEST_NS,
            "span_start_ns": file.span.start_ns if file.span else None,
            "span_end_ns": file.span.end_ns if file.span else None,
            "low_ns": within.start_ns,
            "high_ns": within.end_ns,
        }
        execute(self._connection, file, statement("check_records").replace("/* records */", read.sql), values)
        oddities.refuse_other_units(self._connection, number, file, read)
        if read.header:
            named = {"file": number, "header": list(read.header)}
            self._connection.execute(statement("name_fields"), named)
        return read.strangers

    def _refuse(self, file: FlowFile, error: InputError) -> None:
        """Raise an error, or skip the file if its name gives other windows: these will raise it.

        Raises
        ------
        InputError, TransientError : as by `staging`
        """
        within = self._within
        if file.span and (file.span.end_ns <= within.start_ns or within.end_ns <= file.span.start_ns):
            logger.warning("left out a file of other windows: %s", error)
            self.skipped[file.path] = str(error)
            self._connection.execute("DELETE FROM staged WHERE file = ?", [self._files.index(file)])
            return
        if isinstance(error, UnfinishedError) and self._intake.is_young(file.path):
            raise TransientError(
                found=f"{error.found}; it was changed less than {self._intake.young_s} s ago, so it is probably still "
                "being written",
                expected=error.expected,
                todo=f"It is tried again until it has not changed for {self._intake.young_s} s. "
                "A collector should write to a name that ends in .part, and rename the file when it is whole.",
            ) from error
        raise InputError(found=error.found, expected=error.expected, todo=error.todo) from error

    def _place_the_rest(self) -> None:
        """Place records without a usable start in files whose names give no interval; the module docstring says how."""
        rows = self._connection.execute(
            "SELECT DISTINCT file FROM staged WHERE window_start_ns IS NULL ORDER BY file"
        ).fetchall()
        for (number,) in rows:
            start_ns = self._first_start(self._files[number])
            if start_ns is None:
                starts = [start for file in self._files if (start := self._first_start(file)) is not None]
                start_ns = min(starts, default=0)
            window = Window.containing(start_ns, self._length_ns)
            self._connection.execute(
                "UPDATE staged SET window_start_ns = ? WHERE window_start_ns IS NULL AND file = ?",
                [window.start_ns, number],
            )

    def _first_start(self, file: FlowFile) -> int | None:
        read = reader(self._connection, file, ALL_TIME, self._intake.columns)
        sql = statement("first_start").replace("/* records */", read.sql)
        row = execute(self._connection, file, sql, {**read.values, **read.factors()}).fetchone()
        return None if row is None or row[0] is None else int(row[0])
