"""Lock-step: which GPUs of a host are tensor-parallel peers, where no gradients say which are replicas.

Tensor-parallel peers meet in every layer, so what they send leaves together, step after step. Replicas meet once a
step: until then each takes its own time, and what they send leaves at moments that have nothing in common.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import sigma
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.layout.dp_groups import NIC
from llmprism_tasks.stages.parallelism.pair_graph import AGREEMENT, ENDS

TOGETHER_MS = 2.0
"""By how much the time between the last messages of peers may vary: clocks of switches differ by a millisecond, and
jitter of a hundredth adds up to more over the passes of most steps."""

LEAST_STEPS = 4
"""Steps below which a deviation is chance."""


def peers(sent: pl.DataFrame, pairs: pl.DataFrame, job_members: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `peers`: how many GPUs of a host send in lock-step. Jobs whose hosts disagree are absent.

    Parameters
    ----------
    sent : what pairs send in each step: `pair`, `step`, `last_ns` (the last start)
    pairs : `pair`, `job_id`, `src_addr`, `kind`; those of pipelines are compared
    job_members : `job_id`, `addr`, `host`
    """
    piped = pairs.filter(pl.col("kind") == "pp").select("pair", "job_id", addr="src_addr")
    if piped.is_empty():
        return piped.select("job_id", peers=pl.lit(0, pl.Int64))
    last = (
        sent.join(piped, on="pair")
        .group_by("job_id", "step", "addr")
        .agg(pl.col("last_ns").max())
        .join(job_members.select(*NIC, "host"), on=NIC)
    )
    together = (
        last.join(last, on=["job_id", "step", "host"], suffix="_other")
        .group_by("job_id", src_addr="addr", dst_addr="addr_other")
        .agg(steps=pl.len(), varies_ns=sigma(pl.col("last_ns") - pl.col("last_ns_other")))
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
