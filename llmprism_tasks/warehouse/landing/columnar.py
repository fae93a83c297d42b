"""Columnar landing: read and check Parquet files without bad records column by column, not record by record.

Most files are like that. The checks of `check_records.sql` are made on whole columns, in a tenth of the time, two row
groups at a time. If a record is bad, or a column's type needs a second look, `records.py` reads the files again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from llmprism_tasks.contract.frames import compact_schema, empty
from llmprism_tasks.contract.tables import table_named
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics import encoding
from llmprism_tasks.sources.addresses import ADDRESS
from llmprism_tasks.sources.flows import FlowFile
from llmprism_tasks.warehouse.landing import flow_buffer
from llmprism_tasks.warehouse.landing.flow_buffer import TYPES, Columns, OddError
from llmprism_tasks.warehouse.landing.intake import Intake
from llmprism_tasks.warehouse.landing.records import FARTHEST_NS, Counts, PutAside
from llmprism_tasks.warehouse.storage import flow_order

FIRST_MOMENT_NS, LAST_MOMENT_NS = 946_684_800_000_000_000, 7_258_118_400_000_000_000  # as the macro `moment` has them

START = "flow_start_ns"

MOST_ROWS = 40_000_000
"""Above this number of rows, which take 2.5 GiB, files are staged in DuckDB, which can spill to disk."""

READERS = 2
"""Row groups read at a time; each needs memory of its own until its rows are copied to the shared buffer."""


@dataclass(frozen=True)
class Sound:
    """Records of files without a bad record, with the methods of `records.Staging`.

    Attributes
    ----------
    files : the files
    by_window : rows of `flows` by the start of their window, compact and in order
    strangers : columns of the files that flows do not have
    parts, skipped, aside : as of `records.Staging`; nothing is skipped or put aside
    """

    files: Sequence[FlowFile]
    by_window: Mapping[int, pl.DataFrame]
    strangers: set[str]
    parts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    aside: PutAside = field(default_factory=dict)

    def placed(self) -> set[int]:
        """Return the starts of all windows with records."""
        return set(self.by_window)

    def counts(self, window: Window) -> Counts:
        """Return how many of a window's records were landed."""
        rows = self.frame(window).height
        return Counts(read=rows, landed=rows, quarantined=0, duplicate=0)

    def frame(self, window: Window) -> pl.DataFrame:
        """Return a window's rows of `flows`, compact and in order."""
        none = pl.DataFrame(schema=compact_schema(table_named("flows").columns))
        return self.by_window.get(window.start_ns, none)

    def flows(self, window: Window) -> Callable[[], Any]:
        """Return a function that returns a window's rows of `flows`, compact and in order."""
        return lambda: self.frame(window)

    def quarantine(self, _window: Window) -> Callable[[], Any]:
        """Return a function that returns a window's rows of `flows_quarantine`: none."""
        return lambda: empty("flows_quarantine")


def read(
    files: Sequence[FlowFile],
    *,
    length_ns: int,
    within: Window,
    whole: Set[str] | None = None,
    intake: Intake | None = None,
) -> Sound | None:
    """Read files if none of their records is bad.

    Parameters
    ----------
    length_ns : length of a window
    within : keep only records placed in this interval
    whole : paths of files whose records are to be counted in all windows; None for all files

    Returns
    -------
    None if a record is bad, or may be; `records.staging` then reads the files, and says what is wrong
    """
    intake = intake or Intake()
    if not files or any(file.format != "parquet" for file in files) or intake.columns:
        return None
    found = _read(files, length_ns, within, whole, intake)
    if found is None:
        pa.default_memory_pool().release_unused()  # what is done instead needs the memory
    return found


def _read(
    files: Sequence[FlowFile], length_ns: int, within: Window, whole: Set[str] | None, intake: Intake
) -> Sound | None:
    try:
        if sum(pq.read_metadata(file.path).num_rows for file in files) > MOST_ROWS:
            return None
        taken = _Taken(length_ns, within, intake)
        rows = taken.rows(_pieces(files, within, whole))
        ordered = _in_order(rows) if _have_addresses(rows) else None
        strangers = {name for file in files for name in pq.read_schema(file.path).names if name not in TYPES}
    except (OddError, pl.exceptions.PolarsError, pa.ArrowException, OSError, UnicodeDecodeError):
        return None
    if ordered is None:
        return None
    return Sound(files, _by_window(ordered, length_ns), strangers, parts=taken.parts)


class _Piece(NamedTuple):
    """A row group of a file.

    Attributes
    ----------
    bounded : whether records that start elsewhere are dropped before they are checked, because the file's name gives no
        interval
    span : interval in which all records must start, if the file's name gives one
    """

    path: str
    metadata: pq.FileMetaData
    group: int
    bounded: bool
    span: Window | None

    def records(self) -> pa.Table:
        """Read the row group, with texts as dictionaries."""
        paths = _paths(self.metadata)
        texts = [path for path in paths if path.partition(".")[0] in (*flow_buffer.ADDRESSES, flow_buffer.PATH)]
        names = self.metadata.schema.to_arrow_schema().names
        with pq.ParquetFile(self.path, metadata=self.metadata, read_dictionary=texts) as reader:
            return reader.read_row_group(
                self.group, columns=[name for name in TYPES if name in names], use_threads=False
            )


def _pieces(files: Sequence[FlowFile], within: Window, whole: Set[str] | None) -> list[_Piece]:
    """Return the row groups of files that may hold records of an interval, and all of files that are read whole.

    Raises
    ------
    OddError : a file's columns cannot be those of flows
    """
    pieces = []
    for file in files:
        metadata = pq.read_metadata(file.path)
        if not flow_buffer.fits(metadata.schema.to_arrow_schema()):
            raise OddError
        start = _paths(metadata).index(START)
        narrow = within.start_ns > 0 or within.end_ns < LAST_MOMENT_NS
        bounded = narrow and file.span is None and whole is not None and file.path not in whole
        span = Window(file.span.start_ns - FARTHEST_NS, file.span.length_ns + 2 * FARTHEST_NS) if file.span else None
        pieces += [
            _Piece(file.path, metadata, group, bounded, span)
            for group in range(metadata.num_row_groups)
            if not bounded or not _elsewhere(metadata.row_group(group).column(start).statistics, within)
        ]
    return pieces


def _paths(metadata: pq.FileMetaData) -> list[str]:
    return [metadata.schema.column(place).path for place in range(metadata.num_columns)]


class _Taken:
    """The records of row groups that are placed in an interval, with the counts of all records that were read."""

    def __init__(self, length_ns: int, within: Window, intake: Intake) -> None:
        self._length_ns, self._within, self._intake = length_ns, within, intake
        self._unlisted: pa.Array = pa.array([], pa.string())
        self._lock = Lock()
        self.parts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))

    def rows(self, pieces: Sequence[_Piece]) -> Columns:
        """Read row groups; return their records in the order of files.

        Raises
        ------
        OddError : a record is bad, or too many addresses are not in the topology
        """
        begins = np.cumsum([0, *(piece.metadata.row_group(piece.group).num_rows for piece in pieces)]).tolist()
        rows = Columns(begins[-1])

        def take(piece: _Piece, begin: int) -> tuple[int, int]:
            """Read a row group into its place; return where it begins and how many of its records were placed."""
            records = piece.records()
            self._look_for_flood(records)
            part = flow_buffer.compact(records)
            part = part.filter(_here(self._within)) if piece.bounded else part
            if not _sound(part, piece.span):
                raise OddError
            self._count(piece.path, part)
            placed = _placed(part, self._length_ns, self._within)
            rows.fill(begin, placed)
            return begin, placed.height

        with ThreadPoolExecutor(max_workers=READERS) as threads:
            rows.close_up(threads.map(take, pieces, begins))
        return rows

    def _count(self, path: str, flows: pl.DataFrame) -> None:
        windows = flows[START].to_numpy() // self._length_ns
        low, high = (int(windows.min()), int(windows.max())) if windows.size else (0, 0)
        if high - low < windows.size:  # nearly always: then counting is cheaper than sorting
            counts = np.bincount(windows - low)
            found = {low + number: int(counts[number]) for number in np.flatnonzero(counts).tolist()}
        else:
            found = dict(zip(*(part.tolist() for part in np.unique(windows, return_counts=True)), strict=True))
        with self._lock:
            for number, records in found.items():
                self.parts[path][number * self._length_ns] += records

    def _look_for_flood(self, records: pa.Table) -> None:
        """Collect addresses that the topology does not list, before they are kept in memory as categories."""
        if self._intake.listed is None:
            return
        listed = self._intake.listed.to_arrow()
        words = [chunk.dictionary for name in flow_buffer.ADDRESSES for chunk in records[name].chunks]
        found = [_unlisted(one.cast(pa.string()), listed.cast(pa.string())) for one in words]
        with self._lock:
            self._unlisted = pa.concat_arrays([self._unlisted, *found]).unique()
            if len(self._unlisted) > self._intake.most_unlisted:
                raise OddError


def _unlisted(words: pa.Array, listed: pa.Array) -> pa.Array:
    return words.filter(pc.invert(pc.is_in(words, value_set=listed)))


def _elsewhere(starts: pq.Statistics | None, within: Window) -> bool:
    """Return whether all records of a row group start outside an interval, according to the file's statistics."""
    if starts is None or not starts.has_min_max or starts.null_count != 0:
        return False
    return bool(starts.min >= 0 and starts.max < within.start_ns) or bool(
        within.end_ns <= starts.min and starts.max < LAST_MOMENT_NS
    )


def _here(within: Window) -> pl.Expr:
    start = pl.col(START)
    odd = (start < 0) | (start >= LAST_MOMENT_NS)
    return start.is_between(within.start_ns, within.end_ns, closed="left") | odd


def _sound(flows: pl.DataFrame, span: Window | None) -> bool:
    """Return whether all records are valid.

    Parameters
    ----------
    flows : compact; addresses are checked separately, for all row groups together
    span : interval in which all records must start, if the file's name gives one
    """
    start, end = pl.col(START), pl.col("flow_end_ns")
    low, high = (span.start_ns, span.end_ns) if span else (FIRST_MOMENT_NS, LAST_MOMENT_NS)
    checks = flows.select(
        (start.min() >= max(low, FIRST_MOMENT_NS)) & (start.max() < min(high, LAST_MOMENT_NS)),
        in_order=(end >= start).all() & (end.max() < LAST_MOMENT_NS),
        moves=pl.col("bytes").min() > 0,
        ends=pl.col("src_addr").ne(pl.col("dst_addr")).all(),
    ).row(0)
    return flows.is_empty() or all(checks)


def _have_addresses(rows: Columns) -> bool:
    """Return whether all sources and destinations of flows are addresses."""
    codes = np.union1d(*(encoding.distinct_codes(rows.values(end)) for end in flow_buffer.ADDRESSES))
    words = pl.Series(codes).cat.to(pl.Categorical()).cast(pl.String)
    return bool(words.str.contains(ADDRESS).all())


def _placed(flows: pl.DataFrame, length_ns: int, within: Window) -> pl.DataFrame:
    """Keep the flows that are placed in an interval."""
    ends = flows.select(first=pl.col(START).min(), last=pl.col(START).max()).row(0)
    if flows.is_empty() or all(within.contains(ns - ns % length_ns) for ns in ends):
        return flows
    start = pl.col(START)
    return flows.filter((start - start % length_ns).is_between(within.start_ns, within.end_ns, closed="left"))


def _in_order(rows: Columns) -> pl.DataFrame | None:
    """Return rows in order; None if two rows are equal in all columns."""
    starts = rows.values(START)
    if (starts[1:] < starts[:-1]).any():
        rows.put(np.argsort(starts, kind="stable"), slice(rows.rows))
    moves = flow_order.moves(starts, rows.frame)
    if moves is None:
        return None
    rows.put(*moves)
    return rows.frame()


def _by_window(flows: pl.DataFrame, length_ns: int) -> dict[int, pl.DataFrame]:
    """Split flows, which are in order, by window."""
    starts, at, windows = flows[START].to_numpy(), 0, {}
    while at < starts.size:
        start_ns = int(starts[at] - starts[at] % length_ns)
        end = int(np.searchsorted(starts, start_ns + length_ns))
        named = pl.lit(start_ns, pl.Int64).alias("window_start_ns")
        windows[start_ns] = flows.slice(at, end - at).select(named, pl.all())
        at = end
    return windows
