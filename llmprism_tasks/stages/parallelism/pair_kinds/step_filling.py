"""What goes on throughout the step: the parameters of sharded layers, blocks of context, or tokens for experts."""

from __future__ import annotations

import math

import polars as pl

from llmprism_tasks.numerics.graphs import RING_PEERS
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.pair_graph import AGREEING_NICS, ENDS

NEARLY_AS_FULL = 0.25
"""Ratio of its steps that a pair fills for it to be like those that fill most of them: where the collector merges
records, some pairs of one ring fall short."""

HALF_OF_RING = 0.5
"""Ratio of a ring's pairs that send a tensor if all its ranks reduce it: those of one direction, where gathers go round
the other way."""

MOST_PAIRS = 0.9
"""Ratio of a job's pairs that must be alike where a ring's closing hop, one in eight or more, would differ."""

FORWARD_SHARE = 0.2
"""Ratio of a step that passes before what is sent in the backward pass alone begins: the forward pass takes a quarter
of it at least, where the backward pass repeats it. Experts and blocks of context are called from its first layers on.
"""


def settle_filling_pairs(pairs: pl.DataFrame, same_size: float, same_bytes: float) -> pl.DataFrame:
    """Say what `filling` pairs are, whose traffic of recurring sizes goes on through the step.

    Where no other pair of the job synchronises gradients in one burst, or those that do reduce tensors of the same
    shape (in the same precision or the double), they are the parameters of fully sharded data parallelism (`dp`); so
    are they where about all of them end in the burst that the others have: buckets that are reduced during the backward
    pass of a single micro-batch fill most of a step. Gradients, too, are what begins with the backward pass, while the
    sender gathers parameters throughout (the sums of sharded gradients over copies of the model). Else they are rings
    of context parallelism (`cp`), or, where a NIC has more such peers than a ring, or gradients are reduced among some
    of a group's replicas apart, experts with balanced loads (`ep`).

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`, `common_size`, `burst_size`, `filling_size`, `bytes_per_step`
        (bytes), `filling` (ratio of steps), `begins` (ratio of a step that passes before, since the sender has begun to
        send what goes on throughout; NULL if nothing does)
    same_size : ratio by which sizes of one tensor may differ
    same_bytes : ratio by which the bytes that one ring's hops carry in a step may differ
    """
    fills = pl.col("kind") == "filling"
    filled = pairs.filter(fills)
    if filled.is_empty():
        return pairs
    experts = pl.concat(
        [_jobs_with_many_peers(pairs, filled, same_size), _jobs_reducing_experts_apart(pairs, filled, same_size)]
    )
    sharded = _sharded_jobs(pairs, filled, same_size)
    bursts = _jobs_with_other_bursts(pairs, filled, same_size, same_bytes)
    late = (pl.col("begins") >= FORWARD_SHARE).fill_null(value=False)
    kind = (
        pl.when(~pl.col("job_id").is_in(bursts.implode()) | pl.col("job_id").is_in(sharded.implode()) | late)
        .then(pl.lit("dp"))
        .when(pl.col("job_id").is_in(experts.implode()))
        .then(pl.lit("ep"))
        .otherwise(pl.lit("cp"))
    )
    return pairs.with_columns(kind=pl.when(fills).then(kind).otherwise("kind"))


def _jobs_with_other_bursts(
    pairs: pl.DataFrame, filled: pl.DataFrame, same_size: float, same_bytes: float
) -> pl.Series:
    """Return the jobs of which other pairs than those that fill the step synchronise in one burst.

    What carries as much as one that fills the step, and ends in the same burst, is another hop of its ring: sharded
    parameters that are gathered together with gradients go on through about half of the step. The gradients that share
    a pair with blocks of context are less than half of its bytes.
    """
    hop = ["job_id", "burst_size", "bytes_per_step"]
    synchronised = pairs.filter(pl.col("kind") == "dp").select(hop).sort("bytes_per_step")
    likest = filled.select(hop).drop_nulls().rename({"burst_size": "reduced", "bytes_per_step": "carried"})
    same_ring = _is_alike("bytes_per_step", "carried", same_bytes) & _is_alike("burst_size", "reduced", same_size)
    return (
        synchronised.join_asof(
            likest.sort("carried"),
            left_on="bytes_per_step",
            right_on="carried",
            by="job_id",
            strategy="nearest",
            check_sortedness=False,
        )
        .filter(~same_ring.fill_null(value=False))["job_id"]
        .unique()
    )


def _jobs_with_many_peers(pairs: pl.DataFrame, filled: pl.DataFrame, same_size: float) -> pl.Series:
    """Return the jobs most of whose NICs exchange one size throughout the step with more peers than a ring has.

    Pairs that carry gradients as well count among them.
    """
    size = filled.select("job_id", exchanged="common_size").unique()
    exchanging = (
        pairs.join(size, on="job_id")
        .filter(_is_alike("filling_size", "exchanged", same_size))
        .select("job_id", *ENDS)
        .unique()
        .group_by("job_id", "src_addr")
        .len("peers")
    )
    return (
        exchanging.group_by("job_id")
        .agg(crowded=(pl.col("peers") > RING_PEERS).mean())
        .filter(pl.col("crowded") >= AGREEING_NICS)["job_id"]
    )


def _jobs_reducing_experts_apart(pairs: pl.DataFrame, filled: pl.DataFrame, same_size: float) -> pl.Series:
    """Return the jobs that reduce the gradients of experts apart from those of the layers that all replicas share.

    The common layers' rings go through the NICs that exchange tokens as well; each expert's replicas, one in each such
    group, have another ring, and other tensors. All ranks of a context-parallel group reduce the same tensors.
    """
    groups = pair_graph.components(filled.select("job_id", *ENDS))
    reducing = pairs.drop_nulls("burst_size").filter(pl.col("kind").is_in(["dp", "filling"]))
    for end in ENDS:
        reducing = reducing.join(groups.rename({"addr": end, "component": f"{end}_group"}), on=["job_id", end])
    within = pl.col("src_addr_group") == pl.col("dst_addr_group")
    common = reducing.filter(within).select("job_id", common="burst_size").unique().sort("common")
    apart = (
        reducing.filter(~within)
        .sort("burst_size")
        .join_asof(
            common,
            left_on="burst_size",
            right_on="common",
            by="job_id",
            strategy="nearest",
            check_sortedness=False,
        )
        .filter(~_is_alike("burst_size", "common", same_size))
    )
    sender, receiver = (apart.select("job_id", addr=end).unique() for end in ENDS)
    round_it = sender.join(receiver, on=["job_id", "addr"]).group_by("job_id").len("reducing")
    return (
        groups.group_by("job_id")
        .len("exchanging")
        .join(round_it, on="job_id")
        .filter(pl.col("reducing") >= AGREEING_NICS * pl.col("exchanging"))["job_id"]
    )


def _sharded_jobs(pairs: pl.DataFrame, filled: pl.DataFrame, same_size: float) -> pl.Series:
    """Return the jobs whose `filling` pairs carry what others of their pairs synchronise in one burst.

    About all of them: where the collector merges records, some blocks of context together have a bucket's size by
    chance.
    """
    synchronised = pairs.filter(pl.col("kind") == "dp")
    nearly = synchronised.filter(pl.col("filling") >= NEARLY_AS_FULL)
    whole = _keep_ring_wide_bursts(synchronised, same_size)
    tensors = pl.concat(
        [whole.select("job_id", reduced="burst_size"), nearly.select("job_id", reduced="common_size")]
    ).unique()
    shape = _is_alike("reduced", "common_size", same_size) | _is_alike("reduced", 2 * pl.col("common_size"), same_size)
    same_shape = _share_of_same_tensors(filled, tensors, shape).filter(pl.col("same") >= AGREEING_NICS)
    bursts = nearly.select("job_id", reduced="burst_size").unique()
    same_burst = _share_of_same_tensors(filled, bursts, _is_alike("reduced", "burst_size", same_size)).filter(
        pl.col("same") >= MOST_PAIRS
    )
    return pl.concat([same_shape["job_id"], same_burst["job_id"]]).unique()


def _keep_ring_wide_bursts(synchronised: pl.DataFrame, same_size: float) -> pl.DataFrame:
    """Keep the pairs whose `burst_size` half of those have that reduce with them: all ranks reduce the same tensors.

    What one pair alone has is a piece that the collector split off, of any size.
    """
    rings = pair_graph.components(synchronised.select("job_id", *ENDS)).rename({"addr": ENDS[0]})
    ring = ["job_id", "component"]
    slot = (pl.col("burst_size").log() / math.log1p(same_size)).floor()
    placed = synchronised.join(rings, on=["job_id", ENDS[0]]).with_columns(slot=slot)
    return placed.filter(pl.len().over(*ring, "slot") >= HALF_OF_RING * pl.len().over(ring))


def _share_of_same_tensors(filled: pl.DataFrame, tensors: pl.DataFrame, same: pl.Expr) -> pl.DataFrame:
    """Return the ratio of each job's pairs that carry the same as any of its `tensors`: `job_id`, `same`."""
    return (
        filled.join(tensors, on="job_id")
        .group_by("job_id", *ENDS)
        .agg(same=same.fill_null(value=False).any())
        .group_by("job_id")
        .agg(pl.col("same").mean())
    )


def _is_alike(left: str, right: str | pl.Expr, tolerance: float) -> pl.Expr:
    other = pl.col(right) if isinstance(right, str) else right
    return (pl.col(left) / other - 1).abs() <= tolerance
