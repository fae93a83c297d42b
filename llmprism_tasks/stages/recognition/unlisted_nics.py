"""Unlisted: who takes part in a training job, though the topology does not know it as a GPU's NIC.

Whoever trains gives as much as it takes, all the time: rings hand on what they get, pipelines are answered. Storage,
and whatever else is no GPU, gives at one time and takes at another, if it does both.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.step_division.periodicity import PAIR
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.index import TrafficIndex

BIN_NS = 10 * NANOSECONDS_PER_SECOND
"""Within so long most jobs both send and receive; samples are read at one time, checkpoints are written at another."""
EVEN_TRAFFIC = 0.5
"""Ratio of what is given and taken, the smaller over the larger: 1 in rings and pipelines, about 0 for storage."""


def with_unlisted(
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    traffic: TrafficIndex,
    topology: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> pl.DataFrame:
    """Add to jobs the addresses that are not in the topology and train with its members: `unlisted`, NULL for none.

    Parameters
    ----------
    jobs, job_members : the window's
    traffic : the window's flows and those of its look-back
    """
    training = job_members.join(jobs.filter(pl.col("kind") == "training"), on="job_id", how="semi")
    sent = _unlisted_traffic(traffic, topology, window, settings)
    ends = pl.concat(
        sent.select("part", "bytes", addr=own, peer=other, gives=pl.lit(gives))
        for own, other, gives in (("src_addr", "dst_addr", True), ("dst_addr", "src_addr", False))
    ).filter(~pl.col("addr").is_in(topology["addr"].implode()))
    given, taken = (pl.col("bytes").filter(way).sum() for way in (pl.col("gives"), ~pl.col("gives")))
    parts = ends.group_by("addr", "part").agg(given=given, taken=taken)
    less, more = pl.min_horizontal("given", "taken"), pl.max_horizontal("given", "taken")
    # A checkpoint may be as large as what is read within the same part, but not in most of them.
    in_all, in_most = less.sum() >= EVEN_TRAFFIC * more.sum(), 2 * (less >= EVEN_TRAFFIC * more).sum() > pl.len()
    even = parts.group_by("addr").agg(even=in_all & in_most).filter("even")
    near = (
        ends.join(even, on="addr")
        .join(training.select("job_id", peer="addr"), on="peer")
        .group_by("job_id", "addr")
        .agg(pl.col("bytes").sum())
    )
    listed = near.filter(pl.col("bytes") >= settings.recognition.least_bytes).group_by("job_id")
    unlisted = listed.agg(unlisted=pl.col("addr").sort())
    return jobs.drop("unlisted", strict=False).join(unlisted, on="job_id", how="left", maintain_order="left")


def _unlisted_traffic(
    traffic: TrafficIndex, topology: pl.DataFrame, window: Window, settings: Settings
) -> pl.DataFrame:
    """Return what was sent in the window from or to addresses that are not in the topology: `src_addr`, `dst_addr`,
    `part` (of the window), `bytes`."""
    outside = traffic.pairs.filter(~pl.all_horizontal(pl.col(*PAIR).is_in(topology["addr"].implode())))
    of_window = (pl.col("window_start_ns") == window.start_ns) & (pl.col("bytes") > settings.traffic.control_bytes)
    part = (pl.col("flow_start_ns") - window.start_ns) // BIN_NS
    mine = nic_pairs.flows_of_pairs(traffic.flows, outside.select("pair")).filter(of_window)
    return nic_pairs.named(mine.group_by(*PAIR, part=part).agg(pl.col("bytes").sum()))
