"""Sound files: Parquet without a record to refuse, read and checked column by column instead of record by record.

Most files are like that. What `check_records.sql` asks of each record is asked here of whole columns, in a tenth of the
time. Where one record is odd, or a column is of a type that needs a second look, `staging.py` does all of it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from llmprism_tasks.frames import empty, schema
from llmprism_tasks.sources.flows import FlowFile
from llmprism_tasks.tables import FLOW_COLUMNS
from llmprism_tasks.warehouse import flow_order
from llmprism_tasks.warehouse.staging import Counts
from llmprism_tasks.windows import Window

MOST_ROWS = 4_000_000  # they take a gibibyte; more are staged in DuckDB, which can spill
FIRST_MOMENT_NS, LAST_MOMENT_NS = 946_684_800_000_000_000, 7_258_118_400_000_000_000  # as the macro `moment` has them
ADDRESS = (  # as the macro `is_address` has it
    r"^(?:[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}"
    r"|[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*(?:%[0-9A-Za-z_]+)?)$"
)

TYPES = schema(FLOW_COLUMNS)
REQUIRED = [column.name for column in FLOW_COLUMNS if not column.optional]
ADDRESSES = ("src_addr", "dst_addr")


@dataclass(frozen=True)
class Sound:
    """Records of files in which none is odd; has what `staging.Staging` has.

    Attributes
    ----------
    by_window : the start of each window that has records to its rows of `flows`, in order
    strangers : the files' columns that flows do not have
    """

    files: Sequence[FlowFile]
    by_window: Mapping[int, pl.DataFrame]
    strangers: set[str]

    def placed(self) -> set[int]:
        """Return the starts of all windows that have records."""
        return set(self.by_window)

    def counts(self, window: Window) -> Counts:
        """Return what became of a window's records."""
        rows = self.frame(window).height
        return Counts(read=rows, landed=rows, quarantined=0, duplicate=0)

    def frame(self, window: Window) -> pl.DataFrame:
        """Return a window's rows of `flows`, in order."""
        return self.by_window.get(window.start_ns, empty("flows"))

    def flows(self, window: Window) -> Callable[[], Any]:
        """Return a function that returns a window's rows of `flows`, in order."""
        return lambda: self.frame(window)

    def quarantine(self, _window: Window) -> pl.DataFrame:
        """Return a window's rows of `flows_quarantine`: none."""
        return empty("flows_quarantine")


def read(files: Sequence[FlowFile], *, length_ns: int, lateness_ns: int, within: Window) -> Sound | None:
    """Read files if they are sound.

    Parameters
    ----------
    within : keep only records placed in this interval

    Returns
    -------
    None when a record is odd or there is any doubt: the files are to be staged then, which also says what is wrong
    """
    if not files or any(file.format != "parquet" for file in files):
        return None
    try:
        scans = [_scan(file, within) for file in files]
        if sum(rows.item() for rows in pl.collect_all([scan.select(pl.len()) for scan in scans])) > MOST_ROWS:
            return None
        frames = [_checked(scan, file, lateness_ns) for scan, file in zip(scans, files, strict=True)]
    except (pl.exceptions.PolarsError, OSError):
        return None
    known = [frame for frame in frames if frame is not None]
    ordered = flow_order.by_start(_placed(pl.concat(known), length_ns, within)) if len(known) == len(files) else None
    if ordered is None:
        return None
    strangers = {name for scan in scans for name in scan.collect_schema() if name not in TYPES}
    return Sound(files, _by_window(ordered), strangers)


def _scan(file: FlowFile, within: Window) -> pl.LazyFrame:
    """Open a file; of one whose name promises nothing, leave out what starts elsewhere, but nothing odd."""
    scan, start = pl.scan_parquet(file.path, glob=False, hive_partitioning=False), pl.col("flow_start_ns")
    if file.span is not None or (within.start_ns <= 0 and within.end_ns >= LAST_MOMENT_NS):
        return scan
    inside = start.is_between(within.start_ns, within.end_ns, closed="left")
    return scan.filter(inside | start.is_null() | (start < 0) | (start >= LAST_MOMENT_NS))


def _checked(scan: pl.LazyFrame, file: FlowFile, lateness_ns: int) -> pl.DataFrame | None:
    """Return a file's records with the contract's columns and types; None if one of them is odd."""
    types = scan.collect_schema()
    if not (set(REQUIRED) <= set(types) and all(_fits(types[name], TYPES[name]) for name in TYPES if name in types)):
        return None
    raw = scan.select(name for name in TYPES if name in types).collect()
    flows = raw.select(
        pl.col(name).cast(kind, strict=False) if name in types else pl.lit(None, kind).alias(name)
        for name, kind in TYPES.items()
    )
    if any(flows[name].null_count() for name in REQUIRED) or raw.null_count().row(0) != flows[
        raw.columns
    ].null_count().row(0):
        return None
    span = Window(file.span.start_ns - lateness_ns, file.span.length_ns + 2 * lateness_ns) if file.span else None
    return flows if _sound(flows, span) else None


def _fits(found: pl.DataType, wanted: pl.DataType) -> bool:
    """Tell whether values of a type are those of another, if they are not too large for it."""
    return found == wanted or (found.is_integer() and wanted.is_integer())


def _sound(flows: pl.DataFrame, span: Window | None) -> bool:
    """Tell whether no record has a reason to be refused.

    Parameters
    ----------
    span : in which all must start, if the file's name promises anything
    """
    start, end = pl.col("flow_start_ns"), pl.col("flow_end_ns")
    low, high = (span.start_ns, span.end_ns) if span else (FIRST_MOMENT_NS, LAST_MOMENT_NS)
    told = flows.select(
        (start.min() >= max(low, FIRST_MOMENT_NS)) & (start.max() < min(high, LAST_MOMENT_NS)),
        in_order=(end >= start).all() & (end.max() < LAST_MOMENT_NS),
        moves=pl.col("bytes").min() > 0,
        ends=pl.col("src_addr").ne(pl.col("dst_addr")).all(),
    ).row(0)
    addresses = pl.concat([flows[end].unique().alias("addr") for end in ADDRESSES])
    return flows.is_empty() or (all(told) and addresses.str.contains(ADDRESS).all())


def _placed(flows: pl.DataFrame, length_ns: int, within: Window) -> pl.DataFrame:
    start = pl.col("flow_start_ns")
    placed = flows.select((start - start % length_ns).alias("window_start_ns"), pl.all())
    inside = placed["window_start_ns"].is_between(within.start_ns, within.end_ns, closed="left")
    return placed if inside.all() else placed.filter(inside)


def _by_window(flows: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """Cut flows, which are in order, into windows."""
    starts, first = np.unique(flows["window_start_ns"].to_numpy(), return_index=True)
    lengths = np.diff(np.append(first, flows.height))
    return {int(ns): flows.slice(at, rows) for ns, at, rows in zip(starts, first, lengths, strict=True)}
