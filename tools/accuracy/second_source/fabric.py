"""Messages on the wire, and what a collector writes of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

SECOND = 1_000_000_000
ROCE = 4791
UDP = 17
EARLY_BYTES = 1 << 20
"""What a rank that comes early pushes before its peer is there: NCCL's buffers of a channel, two slots of 512 KB."""

LATENCY_S = 20e-6

Record = tuple[float, float, str, str, int, float]
"""Start and end in seconds, sender, receiver, channel, bytes."""


@dataclass
class Fabric:
    """Takes messages between NICs, and knows how fast one goes.

    Attributes
    ----------
    rate : bytes per second of a NIC
    spread : sigma of the logarithm of a message's pace
    """

    rng: np.random.Generator
    rate: float
    spread: float = 0.03
    records: list[Record] = field(default_factory=list)

    def seconds(self, size: float) -> float:
        """Return how long so many bytes take."""
        return float(size / self.rate * np.exp(self.rng.normal(0.0, self.spread))) + LATENCY_S

    def send(self, at: float, src: str, dst: str, size: float, *, channels: int = 1) -> float:
        """Send a tensor point to point, return when it has arrived."""
        end = at + self.seconds(size)
        for channel in range(channels):
            self.records.append((at, end, src, dst, channel, size / channels))
        return end

    def ring(self, ready: dict[str, float], size: float, *, passes: int, channels: int, free: float = 0.0) -> float:
        """Run a ring collective over the NICs in their order and return its end.

        Parameters
        ----------
        ready : when each rank calls it
        size : bytes of the whole tensor
        passes : 2 for an all-reduce, 1 for an all-gather or a reduce-scatter
        free : when the communicator has done what it was asked for before
        """
        order = list(ready)
        carried = passes * (len(order) - 1) / len(order) * size
        start = max(*ready.values(), free)
        end = start + self.seconds(carried)
        for place, src in enumerate(order):
            dst = order[(place + 1) % len(order)]
            early = max(ready[src], free)
            for channel in range(channels):
                each, first = carried / channels, early + self.rng.uniform(0, LATENCY_S)
                if start - early > 2 * LATENCY_S and each > 2 * EARLY_BYTES:
                    self.records.append((first, first + LATENCY_S, src, dst, channel, EARLY_BYTES))
                    first, each = start, each - EARLY_BYTES
                self.records.append((min(first, end), end - self.rng.uniform(0, LATENCY_S), src, dst, channel, each))
        return end

    def bulk(self, start: float, end: float, src: str, dst: str, rate: float, *, active_s: float = 10.0) -> None:
        """Copy data at a steady rate; the collector cuts its record at the active timeout."""
        at = start
        while at < end:
            until = min(at + active_s, end)
            self.records.append((at, until, src, dst, 999, rate * (until - at)))
            at = until


def flow_records(
    fabric: Fabric, start_ns: int, *, idle_s: float, lost: float, leaf_of: dict[str, str], mtu: int = 4096
) -> pl.DataFrame:
    """Return flow records: neighbouring messages of one connection are one record, and some records are lost.

    Parameters
    ----------
    idle_s : silence after which a record ends
    lost : probability that a record is not there
    """
    rows = pl.DataFrame(
        fabric.records, schema=["start", "end", "src_addr", "dst_addr", "channel", "size"], orient="row"
    ).sort("src_addr", "dst_addr", "channel", "start")
    key = ["src_addr", "dst_addr", "channel"]
    latest = pl.col("end").cum_max().shift(1).over(key)
    merged = (
        rows.with_columns(begins=((pl.col("start") - latest) > idle_s).fill_null(value=True))
        .with_columns(burst=pl.col("begins").cum_sum())
        .group_by("burst", maintain_order=True)
        .agg(*(pl.col(name).first() for name in key), pl.col("start").min(), pl.col("end").max(), pl.col("size").sum())
    )
    kept = merged.filter(pl.Series(fabric.rng.random(merged.height) >= lost))
    leaf = {name: pl.col(f"{name}_addr").replace_strict(leaf_of) for name in ("src", "dst")}
    return (
        kept.with_columns(**leaf)
        .select(
            flow_start_ns=start_ns + (pl.col("start") * SECOND).cast(pl.Int64),
            flow_end_ns=start_ns + (pl.col("end") * SECOND).cast(pl.Int64),
            src_addr="src_addr",
            dst_addr="dst_addr",
            src_port=(49152 + pl.col("channel") + pl.col("src_addr").hash(1).mod(64) * 16).cast(pl.Int32).mod(65536),
            dst_port=pl.lit(ROCE, pl.Int32),
            protocol=pl.lit(UDP, pl.Int32),
            bytes=pl.col("size").round().cast(pl.Int64),
            packets=(pl.col("size") / mtu).ceil().cast(pl.Int64),
            switch_path=pl.when(pl.col("src") == pl.col("dst"))
            .then(pl.concat_list("src"))
            .otherwise(pl.concat_list("src", pl.lit("spine0"), "dst")),
        )
        .sort("flow_start_ns")
    )
