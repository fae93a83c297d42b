"""What is dispatched comes back: tokens whose sizes never repeat, though they are as many bytes in every step.

A router may send as many tokens in all of two directions, whatever it sends in each: then a pair carries equal bytes in
every step, as gradients do. But what an expert's NIC gets in a dispatch it returns in the combine, to the byte. So each
size goes one way and then the other in the same step, and hardly ever in another step. Gradients have sizes that repeat
in every step; of those that a collector splits or joins, the parts mostly come one way alone, or both ways at once. A
ring of two returns its halves as well: where a collector cuts these at other places in each step, some of them look
like tokens, and the pair is less sure to be of gradients.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.parallelism.kernels import recurring_sizes
from llmprism_tasks.stages.traffic import nic_pairs


def returned(flows: pl.DataFrame, pairs: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Say in how many steps most of what a pair sends comes back in sizes of that step alone: `pair`, `returned`.

    Parameters
    ----------
    flows : bulk flows with `pair` and `step`, in the order of `nic_pairs.numbered`
    pairs : `pair`, `back` (the pair the other way round), of those that are asked
    """
    asked = pairs.drop_nulls("back").select("pair", "back")
    sent = nic_pairs.step_by_step(
        nic_pairs.flows_of_pairs(flows, asked).select("pair", "back", "step", "flow_start_ns", "flow_end_ns", "bytes")
    )
    bytes_, step = (sent[name].to_numpy() for name in ("bytes", "step"))
    fresh = recurring_sizes.sizes(bytes_, step, nic_pairs.starts_of_pairs(sent), settings.rhythm.same_size).fresh
    sent = sent.with_columns(fresh=fresh, size=pl.col("bytes").log())
    back = sent.filter("fresh").select("step", "size", back="pair", since_ns="flow_start_ns", until_ns="flow_end_ns")
    there = (
        sent.filter("fresh")
        .sort("size")
        .join_asof(
            back.sort("size"),
            on="size",
            by=["back", "step"],
            strategy="nearest",
            tolerance=settings.parallelism.expert_variation,
            check_sortedness=False,
        )
    )
    apart = (pl.col("since_ns") > pl.col("flow_end_ns")) | (pl.col("until_ns") < pl.col("flow_start_ns"))
    came_back = there.group_by("pair", "step").agg(back_bytes=pl.col("bytes").filter(apart).sum())
    of_steps = sent.group_by("pair", "step").agg(pl.col("bytes").sum()).join(came_back, on=["pair", "step"], how="left")
    most = (pl.col("back_bytes") >= MAJORITY * pl.col("bytes")).fill_null(value=False)
    return of_steps.group_by("pair").agg(returned=most.mean())
