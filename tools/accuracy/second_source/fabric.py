"""Messages on the wire, and what a collector writes of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from accuracy.second_source.network import Network, Slow, end_of

SECOND = 1_000_000_000
ROCE = 4791
UDP = 17
EARLY_BYTES = 1 << 20
"""What a rank that comes early pushes before its peer is there: NCCL's buffers of a channel, two slots of 512 KB."""

LATENCY_S = 20e-6

Record = tuple[float, float, str, str, int, float]
"""Start and end in seconds, sender, receiver, channel, bytes."""

Hop = tuple[str, str]


@dataclass
class Fabric:
    """Takes messages between NICs, and knows how fast one goes.

    Attributes
    ----------
    rate : bytes per second of a NIC
    spread : sigma of the logarithm of a message's pace
    host_of : NICs of one host, between which messages are not seen; empty: every NIC is on its own
    """

    rng: np.random.Generator
    rate: float
    network: Network
    spread: float = 0.03
    host_of: Mapping[str, str] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    rails: dict[tuple[tuple[str, ...], int], list[Hop]] = field(default_factory=dict)
    """Hops of a ring, by its ranks and a channel."""

    def seconds(self, size: float) -> float:
        """Return how long so many bytes take."""
        return float(size / self.rate * np.exp(self.rng.normal(0.0, self.spread))) + LATENCY_S

    def send(self, at: float, src: str, dst: str, size: float, *, channels: int = 1) -> float:
        """Send a tensor point to point, return when it has arrived."""
        took, last = self.seconds(size), at
        if self._inside(src, dst):
            return at + took
        for channel in range(channels):
            end = end_of(at, took, self.network.slowed(src, dst, channel))
            self.records.append((at, end, src, dst, channel, size / channels))
            last = max(last, end)
        return last

    def hops(self, order: tuple[str, ...], channel: int) -> list[Hop]:
        """Return the hops of a ring that the network sees.

        Inside a host a ring takes the links between GPUs; each channel leaves the host, and enters the next, at another
        GPU of the group (NCCL's rings on rails).
        """
        known = self.rails.get((order, channel))
        if known is None:
            hosts: dict[str, list[str]] = defaultdict(list)
            for nic in order:
                hosts[self.host_of.get(nic, nic)].append(nic)
            gates = [nics[channel % len(nics)] for nics in hosts.values()]
            known = list(zip(gates, [*gates[1:], gates[0]], strict=True)) if len(gates) > 1 else []
            self.rails[order, channel] = known
        return known

    def ring(self, ready: dict[str, float], size: float, *, passes: int, channels: int, free: float = 0.0) -> float:
        """Run a ring collective over the NICs in their order and return its end.

        All hops of a channel go at the pace of the slowest: who has nothing to pass on waits.

        Parameters
        ----------
        ready : when each rank calls it
        size : bytes of the whole tensor
        passes : 2 for an all-reduce, 1 for an all-gather or a reduce-scatter
        free : when the communicator has done what it was asked for before
        """
        order = tuple(ready)
        carried = passes * (len(order) - 1) / len(order) * size
        start = max(*ready.values(), free)
        took = self.seconds(carried)
        ends = [
            end_of(start, took, self._slow(self.hops(order, channel), channel)) if self.network.slow else start + took
            for channel in range(channels)
        ]
        if self.host_of:
            for channel, end in enumerate(ends):
                for src, dst in self.hops(order, channel):
                    self._hop(src, dst, channel, carried / channels, (max(ready[src], free), start, end))
        else:
            for place, src in enumerate(order):
                dst = order[(place + 1) % len(order)]
                for channel, end in enumerate(ends):
                    self._hop(src, dst, channel, carried / channels, (max(ready[src], free), start, end))
        return max(ends)

    def tree(self, ready: dict[str, float], size: float, *, channels: int, free: float = 0.0) -> float:
        """All-reduce over two binary trees, each for half of the data, and return the end.

        NCCL's double binary tree (Sanders et al. 2009): sums go up, results come down; who is inside one tree is a leaf
        of the other.
        """
        order = tuple(ready)
        start = max(*ready.values(), free)
        took, last = self.seconds(2.0 * size), start
        for channel in range(channels):
            for edges in double_tree(len(order)):
                both = [(order[one], order[other]) for one, other in edges]
                both += [(dst, src) for src, dst in both]
                end = end_of(start, took, self._slow(both, channel))
                for src, dst in both:
                    self._hop(src, dst, channel, size / 2 / channels, (max(ready[src], free), start, end))
                last = max(last, end)
        return last

    def exchange(
        self, ready: dict[str, float], sizes: np.ndarray, *, relayed: bool
    ) -> tuple[dict[str, float], set[Hop]]:
        """All-to-all: everybody sends to everybody; returns when each has all, and the pairs that the network saw.

        Parameters
        ----------
        sizes : bytes from each rank to each other
        relayed : messages leave a host at the GPU on the receiver's rail (NCCL's PXN)
        """
        order = tuple(ready)
        start = max(ready.values())
        done = dict.fromkeys(order, start)
        sent: dict[Hop, float] = defaultdict(float)
        gpu = {nic: nic.rsplit(".", 1)[1] for nic in order}
        beside = {(self.host_of.get(nic, nic), gpu[nic]): nic for nic in order}
        for (row, column), size in np.ndenumerate(sizes):
            src, dst = order[row], order[column]
            if row == column or self._inside(src, dst):
                continue
            if relayed:
                src = beside.get((self.host_of.get(src, src), gpu[dst]), src)
            sent[src, dst] += float(size)
        totals: dict[str, float] = defaultdict(float)
        for (src, _), size in sent.items():
            totals[src] += size
        for (src, dst), size in sent.items():
            # A NIC serves its peers in turn, so that all of them end near each other.
            took = self.seconds(totals[src]) * float(self.rng.uniform(0.85, 1.0))
            end = end_of(start, took, self.network.slowed(src, dst, 0))
            self.records.append((start, end, src, dst, 0, size))
            done[dst] = max(done[dst], end)
        last = max(done.values())
        return dict.fromkeys(order, last), set(sent)

    def bulk(self, start: float, end: float, src: str, dst: str, rate: float, *, active_s: float = 10.0) -> None:
        """Copy data at a steady rate; the collector cuts its record at the active timeout."""
        at = start
        while at < end:
            until = min(at + active_s, end)
            self.records.append((at, until, src, dst, 999, rate * (until - at)))
            at = until

    def chatter(self, start: float, end: float, nics: list[str], every_s: float) -> None:
        """Exchange small messages between NICs taken at random, each every so many seconds on average."""
        for src in nics:
            at = start + float(self.rng.exponential(every_s))
            while at < end:
                dst = nics[int(self.rng.integers(len(nics)))]
                if dst != src and not self._inside(src, dst):
                    size = float(self.rng.choice([300.0, 1200.0, 20_000.0], p=[0.6, 0.3, 0.1]))
                    self.records.append((at, at + LATENCY_S, src, dst, 998, size))
                at += float(self.rng.exponential(every_s))

    def _inside(self, src: str, dst: str) -> bool:
        return bool(self.host_of) and self.host_of.get(src, src) == self.host_of.get(dst, dst)

    def _slow(self, hops: Iterable[Hop], channel: int) -> list[Slow]:
        return [one for hop in hops for one in self.network.slowed(*hop, channel)]

    def _hop(self, src: str, dst: str, channel: int, size: float, times: tuple[float, float, float]) -> None:
        """Note one channel's hop of a collective: when its sender came, when all had come, and when it ended."""
        early, start, end = times
        if self._inside(src, dst):
            return
        each, first = size, early + self.rng.uniform(0, LATENCY_S)
        if start - early > 2 * LATENCY_S and each > 2 * EARLY_BYTES:
            pushed = end_of(first, EARLY_BYTES / self.rate + LATENCY_S, self.network.slowed(src, dst, channel))
            self.records.append((first, pushed, src, dst, channel, EARLY_BYTES))
            first, each = start, each - EARLY_BYTES
        if math.isfinite(end):
            self.records.append((min(first, end), end - self.rng.uniform(0, LATENCY_S), src, dst, channel, each))


def double_tree(ranks: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the edges, child and parent, of two binary trees over ranks 0 to n - 1.

    The second is the first turned around (an even number of ranks) or shifted by one (an odd number), so that nobody
    is inside both.
    """
    first = []
    for rank in range(1, ranks):
        bit = rank & -rank
        parent = (rank ^ bit) | (bit << 1)
        first.append((rank, parent if parent < ranks else rank ^ bit))
    if ranks % 2 == 0:
        second = [(ranks - 1 - child, ranks - 1 - parent) for child, parent in first]
    else:
        second = [((child + 1) % ranks, (parent + 1) % ranks) for child, parent in first]
    return first, second


@dataclass(frozen=True)
class Collector:
    """What sees the messages, and what it makes of them.

    Attributes
    ----------
    idle_s : silence after which a record ends
    lost, split, merged : probabilities that a record is not there, is cut in two somewhere, or goes on in the next one
        of its connection
    skew_s : standard deviation of the clocks of the switches
    mtu : bytes of a packet
    """

    idle_s: float = 0.005
    lost: float = 0.0
    split: float = 0.0
    merged: float = 0.0
    skew_s: float = 0.0
    mtu: int = 4096


def flow_records(
    records: list[Record], rng: np.random.Generator, start_ns: int, collector: Collector, network: Network
) -> pl.DataFrame:
    """Return flow records: neighbouring messages of one connection are one record, and some are damaged."""
    rows = pl.DataFrame(records, schema=["start", "end", "src_addr", "dst_addr", "channel", "size"], orient="row").sort(
        "src_addr", "dst_addr", "channel", "start"
    )
    key = ["src_addr", "dst_addr", "channel"]
    latest = pl.col("end").cum_max().shift(1).over(key)
    begins = ((pl.col("start") - latest) > collector.idle_s).fill_null(value=True)
    if collector.merged:
        together = pl.Series(rng.random(rows.height) < collector.merged)
        begins &= latest.is_null() | ~pl.lit(together)
    merged = (
        rows.with_columns(begins=begins)
        .with_columns(burst=pl.col("begins").cum_sum())
        .group_by("burst", maintain_order=True)
        .agg(*(pl.col(name).first() for name in key), pl.col("start").min(), pl.col("end").max(), pl.col("size").sum())
    )
    kept = merged.filter(pl.Series(rng.random(merged.height) >= collector.lost))
    if collector.split:
        kept = _split(kept, rng, collector.split)
    connections = kept.select(key).unique(maintain_order=True)
    paths = connections.with_columns(
        switch_path=pl.Series([list(network.path(*one)) for one in connections.rows()], dtype=pl.List(pl.String))
    )
    kept = kept.join(paths, on=key, maintain_order="left")
    if collector.skew_s:
        clocks = {leaf: float(rng.normal(0.0, collector.skew_s)) for leaf in sorted(set(network.leaf_of.values()))}
        off = pl.col("switch_path").list.first().replace_strict(clocks, return_dtype=pl.Float64)
        kept = kept.with_columns(pl.col("start") + off, pl.col("end") + off)
    return kept.select(
        flow_start_ns=start_ns + (pl.col("start") * SECOND).cast(pl.Int64),
        flow_end_ns=start_ns + (pl.col("end") * SECOND).cast(pl.Int64),
        src_addr="src_addr",
        dst_addr="dst_addr",
        src_port=(49152 + pl.col("channel") + pl.col("src_addr").hash(1).mod(64) * 16).cast(pl.Int32).mod(65536),
        dst_port=pl.lit(ROCE, pl.Int32),
        protocol=pl.lit(UDP, pl.Int32),
        bytes=pl.col("size").round().cast(pl.Int64),
        packets=(pl.col("size") / collector.mtu).ceil().cast(pl.Int64),
        switch_path="switch_path",
    ).sort("flow_start_ns")


def _split(rows: pl.DataFrame, rng: np.random.Generator, share: float) -> pl.DataFrame:
    """Cut some records of more than two packets in two, at a random place."""
    cut = pl.Series(rng.random(rows.height) < share) & (rows["size"] > 10_000)
    at = pl.Series("at", rng.uniform(0.1, 0.9, rows.height))
    marked = rows.with_columns(at, cut=cut)
    middle = pl.col("start") + pl.col("at") * (pl.col("end") - pl.col("start"))
    one = pl.when("cut").then(middle).otherwise("end")
    part = pl.when("cut").then(pl.col("at") * pl.col("size")).otherwise("size")
    heads = marked.with_columns(end=one, size=part)
    tails = marked.filter("cut").with_columns(start=middle, size=(1 - pl.col("at")) * pl.col("size"))
    return pl.concat([heads, tails]).drop("at", "cut").sort("src_addr", "dst_addr", "channel", "start")
