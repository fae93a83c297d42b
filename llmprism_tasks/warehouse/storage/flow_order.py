"""Flow order: the order in which a window's flows are stored, by start and then by all other columns.

Collectors write files sorted by start, or nearly so. Sorting the minute of a large platform by all columns would take
longer than reading it, and would not fit into memory. So where starts ascend, only flows with equal starts are sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import polars as pl
import pyarrow as pa

ENDS = ("src_addr", "dst_addr", "src_port", "dst_port")
FLOW_ORDER = ("window_start_ns", "flow_start_ns", *ENDS, "bytes", "flow_end_ns", "protocol", "packets", "switch_path")

MOST_TIED = 1_000_000
"""Rows sorted at a time, or somewhat more: collectors with millisecond clocks have many equal starts."""

Starts = np.ndarray[tuple[int], np.dtype[np.int64]]

ORDER_BY = "ORDER BY " + ", ".join(f"{name} NULLS FIRST" for name in FLOW_ORDER)
"""The same order in SQL."""


def in_order(flows: pl.DataFrame) -> pl.DataFrame:
    """Sort rows of `flows`, compact or not."""
    path = (
        pl.col("switch_path") if flows["switch_path"].dtype == pl.Categorical else pl.col("switch_path").list.join("|")
    )
    return flows.sort(*(name for name in FLOW_ORDER[:-1] if name in flows.columns), path, nulls_last=False)


def ties_in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sort flows whose starts ascend already.

    Parameters
    ----------
    batches : rows of `flows` of one window; starts ascend within each batch and from batch to batch
    """
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        rows = pa.Table.from_batches(held)
        starts = rows["flow_start_ns"].to_numpy()
        last = int(np.searchsorted(starts, starts[-1:]).max(initial=0))  # the next batch may have more of this start
        yield from _ties_sorted(rows.slice(0, last), starts[:last])
        held = rows.slice(last).to_batches()
    if held:
        rows = pa.Table.from_batches(held)
        yield from _ties_sorted(rows, rows["flow_start_ns"].to_numpy())


def moves(starts: Starts, flows: Callable[[Starts], pl.DataFrame]) -> tuple[Starts, Starts] | None:
    """Return how to bring rows of `flows`, whose starts ascend, into order; None if two rows are equal.

    Parameters
    ----------
    starts : `flow_start_ns` of the rows, ascending
    flows : function that returns some of the rows, compact

    Returns
    -------
    the rows that move, and the places they move to; the order is that of `in_order`, with windows one after another
    """
    places = _tied(starts)
    order, at = places.copy(), 0
    while at < places.size:
        last = starts[places[min(at + MOST_TIED, places.size) - 1]]
        end = int(np.searchsorted(places, np.searchsorted(starts, last, side="right")))
        tied = flows(places[at:end])
        if tied.is_duplicated().any():
            return None
        order[at:end] = in_order(tied.with_columns(place=places[at:end]))["place"].to_numpy()
        at = end
    moved = order != places
    return order[moved], places[moved]


def _ties_sorted(rows: pa.Table, starts: Starts) -> Iterator[pa.RecordBatch]:
    places = _tied(starts)
    if places.size:
        tied = pl.DataFrame(pl.from_arrow(rows.take(places))).with_columns(place=places)
        order = np.arange(starts.size)
        order[places] = in_order(tied)["place"].to_numpy()
        rows = rows.take(order)
    yield from rows.to_batches()


def _tied(starts: Starts) -> Starts:
    """Return the places of ascending starts that occur more than once."""
    tied = np.zeros(starts.shape, np.bool_)
    np.equal(starts[1:], starts[:-1], out=tied[1:])
    tied[:-1] |= tied[1:]
    return np.flatnonzero(tied)
