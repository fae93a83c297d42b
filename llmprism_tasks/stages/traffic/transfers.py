"""Transfers: the records of streams as arrays, laid end to end: of pairs, of their sizes, of two ends that answer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from llmprism_tasks.numerics import grouped_sort
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.kernels import fragments, size_clusters
from llmprism_tasks.stages.traffic.opposite import opposite


class Transfers(NamedTuple):
    """Stream `i` has the transfers `offsets[i]` to `offsets[i + 1]`, in order of time.

    Attributes
    ----------
    rows : of the flows that these are, shape (transfers,)
    starts, ends, sizes : ns and bytes of them
    offsets : shape (streams + 1,)
    pair : each stream's, shape (streams,); one that two ends share has that of the end that comes first
    """

    rows: Integers
    starts: Integers
    ends: Integers
    sizes: Integers
    offsets: Integers
    pair: Integers

    def of(self, chosen: Integers) -> Transfers:
        """Return some of the streams, by their places."""
        if np.array_equal(chosen, np.arange(self.pair.size)):
            return self
        at, offsets = grouped_sort.spread(self.offsets, chosen)
        rows, starts, ends, sizes = (one[at] for one in (self.rows, self.starts, self.ends, self.sizes))
        return Transfers(rows, starts, ends, sizes, offsets, self.pair[chosen])

    def sums(self) -> Integers:
        """Return the bytes of each stream."""
        return np.add.reduceat(self.sizes, self.offsets[:-1])


def of_pairs(flows: pl.DataFrame) -> Transfers:
    """Return the transfers of each pair as a whole.

    Parameters
    ----------
    flows : as `nic_pairs.in_order` returns
    """
    offsets = nic_pairs.starts_of_pairs(flows)
    pair = flows["pair"].to_numpy()[offsets[:-1]].astype(np.int64)
    return Transfers(np.arange(flows.height), *_starts_ends_bytes(flows), offsets, pair)


class Sizes(NamedTuple):
    """The records of pairs that have one size, as streams of which the transfers are only fetched where asked for.

    Attributes
    ----------
    rows : of the flows, stream by stream, each in order of time
    offsets : shape (streams + 1,): stream `i` has the rows `offsets[i]` to `offsets[i + 1]`
    sums : bytes of each stream
    pair, size_class : of each stream
    starts, ends, sizes : of all flows, with what was sent early
    """

    rows: Integers
    offsets: Integers
    sums: Integers
    pair: Integers
    size_class: Integers
    starts: Integers
    ends: Integers
    sizes: Integers

    def rows_of(self, chosen: Integers) -> tuple[Integers, Integers]:
        """Return the rows of some streams, by their places, and the offsets of these."""
        at, offsets = grouped_sort.spread(self.offsets, chosen)
        return self.rows[at], offsets

    def of(self, chosen: Integers) -> Transfers:
        """Return the transfers of some of the streams, by their places."""
        rows, offsets = self.rows_of(chosen)
        starts, ends, sizes = (one[rows] for one in (self.starts, self.ends, self.sizes))
        return Transfers(rows, starts, ends, sizes, offsets, self.pair[chosen])


def of_sizes(flows: pl.DataFrame, tolerance: float) -> Sizes:
    """Return the transfers of each pair that have one size; what was sent early counts with the rest."""
    starts, ends, sizes = _starts_ends_bytes(flows)
    offsets = nic_pairs.starts_of_pairs(flows)
    pair = flows["pair"].to_numpy()[offsets[:-1]].astype(np.int64)
    # Layers of shards have many sizes, some of which are the sum of others: only what comes next is surely the rest.
    rest = fragments.early_fragments(sizes, offsets, tolerance, 1)
    rows = np.flatnonzero(rest == np.arange(sizes.size))
    if rows.size < sizes.size:
        sizes = fragments.joined_sizes(sizes, rest)
        found = size_clusters.collected(sizes[rows], np.searchsorted(rows, offsets), tolerance)
        found = found._replace(places=rows[found.places])
    else:
        found = size_clusters.collected(sizes, offsets, tolerance)
    first = np.cumsum(found.several) - found.several
    size_class = np.arange(found.sums.size) - np.repeat(first, found.several)
    of_each = (np.repeat(pair, found.several), size_class)
    return Sizes(found.places, found.offsets, found.sums, *of_each, starts, ends, sizes)


def of_links(flows: pl.DataFrame, chosen: Integers) -> tuple[Transfers, Integers]:
    """Return the transfers of pairs together with those of the pairs that answer them, and who sends each.

    Parameters
    ----------
    flows : as `nic_pairs.in_order` returns
    chosen : numbers of pairs

    Returns
    -------
    a stream for each two ends, and for each transfer 1 if that end sends it whose name comes first, else 0
    """
    offsets = nic_pairs.starts_of_pairs(flows)
    ends = nic_pairs.pairs_of(flows, nic_pairs.PAIR).with_columns(at=pl.int_range(pl.len()))
    links = (
        ends.filter(pl.col("pair").is_in(pl.Series(chosen).implode()))
        .join(opposite(ends, "at"), on=nic_pairs.PAIR, how="left")
        .with_columns(first=pl.col("src_addr") <= pl.col("dst_addr"))
        .with_columns(back=pl.when(pl.col("back_at") != pl.col("at")).then("back_at").fill_null(-1))
        .select(one=pl.when("first").then("at").otherwise("back"), other=pl.when("first").then("back").otherwise("at"))
        .unique()
        .sort("one", "other")
    )
    starts, lasts, sizes = _starts_ends_bytes(flows)
    one, other = links["one"].to_numpy(), links["other"].to_numpy()
    rows, sides, within = grouped_sort.merged(offsets, one, other, starts, lasts)
    pair = ends["pair"].to_numpy()[np.where(one < 0, other, one)].astype(np.int64)
    return Transfers(rows, starts[rows], lasts[rows], sizes[rows], within, pair), sides


def _starts_ends_bytes(flows: pl.DataFrame) -> tuple[Integers, Integers, Integers]:
    return tuple(flows[column].to_numpy() for column in nic_pairs.TIMES)  # type: ignore[return-value]
