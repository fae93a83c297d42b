"""Lock-step: which GPUs of a host are tensor-parallel peers, which no traffic between them shows.

Tensor-parallel peers meet in every layer, so what they send leaves together, step after step. Replicas meet once a
step: until then each takes its own time, and what they send leaves at moments that vary against each other as they do
against those of other hosts.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import sigma
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.pair_graph import AGREEMENT, ENDS

TOGETHER_MS = 2.0
"""Milliseconds by which the time between the messages of peers may vary: clocks of switches differ by a millisecond,
and jitter of a hundredth adds up to more over the passes of most steps."""

LEAST_STEPS = 4
"""Steps below which a deviation is chance."""


def peers(sent: pl.DataFrame, pairs: pl.DataFrame, job_members: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `peers`: how many GPUs of a host send in lock-step. Jobs whose hosts disagree are absent.

    There are at least as many as tensor-parallel peers: where nothing varies, replicas seem to be in step as well.

    Parameters
    ----------
    sent : what pairs send in each step: `pair`, `step`, `first_ns`, `last_ns` (the first and the last start)
    pairs : `pair`, `job_id`, `src_addr`, `kind`; the last message of a pipeline is compared, and the first of all else
    job_members : `job_id`, `addr`, `host`
    """
    kinds = pairs.filter(pl.col("kind") != "other").select(
        "pair", "job_id", addr="src_addr", piped=pl.col("kind") == "pp"
    )
    if kinds.is_empty():
        return kinds.select("job_id", peers=pl.lit(0, pl.Int64))
    moment = pl.when("piped").then(pl.col("last_ns").max()).otherwise(pl.col("first_ns").min())
    moments = (
        sent.join(kinds, on="pair")
        .group_by("job_id", "piped", "step", "addr")
        .agg(at_ns=moment.first())
        .join(job_members.select("job_id", "addr", "host"), on=["job_id", "addr"])
    )
    together = (
        moments.join(moments, on=["job_id", "piped", "step", "host"], suffix="_other")
        .group_by("job_id", "piped", src_addr="addr", dst_addr="addr_other")
        .agg(steps=pl.len(), varies_ns=sigma(pl.col("at_ns") - pl.col("at_ns_other")))
        .filter(pl.col("steps") >= LEAST_STEPS, pl.col("varies_ns") <= TOGETHER_MS * 1e6)
    )
    sizes = pair_graph.components(together.select("job_id", *ENDS)).with_columns(
        peers=pl.len().over("job_id", "component").cast(pl.Int64)
    )
    return (
        sizes.group_by("job_id", "peers")
        .agg(nics=pl.len())
        .with_columns(of=pl.col("nics").sum().over("job_id"))
        .filter(pl.col("nics") >= AGREEMENT * pl.col("of"))
        .select("job_id", "peers")
    )
