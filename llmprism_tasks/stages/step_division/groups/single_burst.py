"""The first burst: a synchronisation seen once, which ends a step though there is no rhythm yet.

Of steps of 90 s a window sees one end, or two, and a step can only be told by the window in which it ends. What is sent
once may be many things. Rings of equal bytes among the NICs are a collective over all data that they hold, which ends a
step; a copy of weights has a source, a shuffle has other bytes for everyone.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import grouped_sort, intervals
from llmprism_tasks.numerics.graphs import RING_PEERS
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.periodicity import PAIR, WHOLE_PAIR
from llmprism_tasks.stages.traffic import nic_pairs


def first_bursts(
    flows: pl.DataFrame, rhythms: pl.DataFrame, settings: RhythmSettings, *, until_ns: int
) -> pl.DataFrame:
    """Find the pairs whose only burst is a ring's, and over.

    It is over when it has been quiet for `few_quiet_ratio` times as long as it was inside the burst, and the ring is a
    step's when about all of its NICs send and receive the same bytes, to and from two peers at most.

    Parameters
    ----------
    flows : bulk flows, as `nic_pairs.in_order` returns
    rhythms : the rows of `streams.stream_rhythms` of groups without a period, with `group`
    until_ns : up to when flows could have been seen

    Returns
    -------
    `group`, `pair`, `src_addr`, `dst_addr`, `threshold_ns` (a longer gap ends the burst), `group_period_ns` (at
    least: from the group's first flow to the end of the burst, or from there until now)
    """
    pairs = rhythms.filter(pl.col("size_class") == WHOLE_PAIR).select("pair", *PAIR, "group", "first_ns", "bytes")
    ends = (
        _rows_by_end(pairs)
        .group_by("group")
        .agg(endpoints=pl.col("addr").n_unique(), first_ns=pl.col("first_ns").min())
    )
    ring = _ring_pairs(_single_burst_pairs(flows, pairs, settings, until_ns), settings)
    enough = (
        _rows_by_end(ring)
        .group_by("group")
        .agg(supporters=pl.col("addr").n_unique(), end_ns=pl.col("end_ns").max())
        .join(ends, on="group")
        .filter(pl.col("supporters") >= settings.least_support * pl.col("endpoints"))
        .select(
            "group",
            group_period_ns=pl.max_horizontal(pl.col("end_ns") - pl.col("first_ns"), until_ns - pl.col("end_ns")),
        )
    )
    threshold = (until_ns - pl.col("end_ns")).cast(pl.Float64)
    return ring.join(enough, on="group").select(
        "group", "pair", *PAIR, pl.col("group_period_ns").cast(pl.Float64), threshold_ns=threshold
    )


def _single_burst_pairs(
    flows: pl.DataFrame, pairs: pl.DataFrame, settings: RhythmSettings, until_ns: int
) -> pl.DataFrame:
    """Keep the pairs that have been quiet for far longer than ever between two flows: one burst, which is over."""
    offsets = nic_pairs.starts_of_pairs(flows)
    at = np.searchsorted(flows["pair"].to_numpy()[offsets[:-1]], pairs["pair"].to_numpy())
    rows, within = grouped_sort.spread(offsets, at)
    ends = flows["flow_end_ns"].to_numpy()[rows]
    gaps = intervals.longest_gaps(flows["flow_start_ns"].to_numpy()[rows], ends, within)
    quiet = np.maximum(gaps, settings.shortest_quiet_ms * 1e6)
    seen = pairs.with_columns(end_ns=np.maximum.reduceat(ends, within[:-1]), quiet=quiet)
    return seen.filter(until_ns - pl.col("end_ns") >= settings.few_quiet_ratio * pl.col("quiet"))


def _ring_pairs(pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Keep the pairs whose both ends receive as much as they send, from few peers and to as few."""
    sides = {
        "sent": pairs.group_by("group", addr="src_addr").agg(sent=pl.col("bytes").sum(), receivers=pl.len()),
        "received": pairs.group_by("group", addr="dst_addr").agg(received=pl.col("bytes").sum(), senders=pl.len()),
    }
    alike = (pl.col("sent") / pl.col("received")).log().abs() <= settings.byte_tolerance
    nics = (
        sides["sent"]
        .join(sides["received"], on=["group", "addr"])
        .filter(alike, pl.max_horizontal("receivers", "senders") <= RING_PEERS)
        .select("group", "addr")
    )
    for end in PAIR:
        pairs = pairs.join(nics.rename({"addr": end}), on=["group", end], how="semi")
    return pairs


def _rows_by_end(pairs: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([pairs.with_columns(addr=pl.col(end)) for end in PAIR])
