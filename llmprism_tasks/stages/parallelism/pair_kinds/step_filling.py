"""What goes on throughout the step: the parameters of sharded layers, blocks of context, or tokens for experts."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.graphs import RING_PEERS
from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.pair_graph import AGREEING_NICS, ENDS


def settle_filling_pairs(pairs: pl.DataFrame, same_size: float, same_bytes: float) -> pl.DataFrame:
    """Say what `filling` pairs are, whose traffic of recurring sizes goes on through the step.

    Where no other pair of the job synchronises gradients in one burst, or those that do reduce tensors of the same
    shape (in the same precision or the double), they are the parameters of fully sharded data parallelism (`dp`),
    unless a pair carries just as much as one of them and one of the others together. Else they are rings of context
    parallelism (`cp`), or experts with balanced loads (`ep`): where gradients are reduced among some of a group's
    replicas apart, or where all NICs of a group send to all others. Blocks go from each NIC to the next one of a ring.
    Gradients that are reduced while the backward pass goes on fill the step, too: see `_gradients_round_blocks`.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`, and in bytes `common_size`, `burst_size`, `bytes_per_step`, and
        `message` of those that fill the step by joined messages alone: these have no `common_size`
    same_size : ratio by which sizes of one tensor may differ
    same_bytes : ratio by which the bytes that one ring's hops carry in a step may differ
    """
    fills = pl.col("kind") == "filling"
    filled = pairs.filter(fills)
    if filled.is_empty():
        return pairs
    gradients = _gradients_round_blocks(pairs, same_size)
    alone = gradients.with_columns(alone=True)
    pairs = pairs.join(alone, on=["job_id", *ENDS], how="left", maintain_order="left")
    pairs = pairs.with_columns(kind=pl.when(fills, "alone").then(pl.lit("dp")).otherwise("kind")).drop("alone")
    filled = pairs.filter(fills)
    experts = pl.concat([_jobs_reducing_experts_apart(pairs, filled, same_size), _jobs_sending_to_all(pairs, filled)])
    sharded = _sharded_jobs(pairs, filled, same_size)
    sums = pl.concat([_jobs_with_sums(pairs, filled, same_size), gradients["job_id"].unique()])
    sharded = sharded.filter(~sharded.is_in(sums.implode()))
    bursts = _jobs_with_other_bursts(pairs, filled, same_size, same_bytes)
    kind = (
        pl.when(~pl.col("job_id").is_in(bursts.implode()) | pl.col("job_id").is_in(sharded.implode()))
        .then(pl.lit("dp"))
        .when(pl.col("job_id").is_in(experts.implode()))
        .then(pl.lit("ep"))
        .otherwise(pl.lit("cp"))
    )
    return pairs.with_columns(kind=pl.when(fills).then(kind).otherwise("kind"))


def _gradients_round_blocks(pairs: pl.DataFrame, same_size: float) -> pl.DataFrame:
    """Return the pairs that carry gradients alone, in jobs whose ring of gradients goes round several rings of context.

    Most hops of the large ring are hops of the small ones, too. So a job's pairs carry three amounts in a step: blocks,
    gradients, and both together. The pairs that carry blocks, alone or with gradients, fall into more groups than those
    that carry gradients.

    Returns
    -------
    `job_id` and the ends
    """
    rings = pairs.filter(pl.col("kind").is_in(["dp", "filling"])).sort("job_id", "bytes_per_step")
    apart = pl.col("bytes_per_step") > (1 + same_size) * pl.col("bytes_per_step").shift()
    amount = apart.fill_null(value=True).cast(pl.Int64).cum_sum().over("job_id")
    found = [rings.clear()]
    for _, hops in rings.with_columns(amount=amount).group_by("job_id", maintain_order=True):
        carried = hops.group_by("amount").agg(pl.col("bytes_per_step").median(), hops=pl.len())
        three = carried.sort("hops", descending=True).head(3).sort("bytes_per_step")
        if three.height < 3 or three["hops"].sum() < AGREEING_NICS * hops.height:
            continue
        small, large, both = three["bytes_per_step"]
        if abs(both / (small + large) - 1) > same_size:
            continue
        small_hops, large_hops, shared = (hops.filter(pl.col("amount") == number) for number in three["amount"])
        with_small, with_large = (
            pair_graph.components(pl.concat([some, shared]).select("job_id", *ENDS))["component"].n_unique()
            for some in (small_hops, large_hops)
        )
        if with_small != with_large:
            found.append(large_hops.drop("amount") if with_small > with_large else small_hops.drop("amount"))
    return pl.concat(found).select("job_id", *ENDS)


def _jobs_with_other_bursts(
    pairs: pl.DataFrame, filled: pl.DataFrame, same_size: float, same_bytes: float
) -> pl.Series:
    """Return the jobs of which other pairs than those that fill the step synchronise in one burst.

    What carries as much as one that fills the step, and ends in the same burst, is another hop of its ring: sharded
    parameters that are gathered together with gradients go on through about half of the step. Where the records of a
    hop are joined in other ways each time, no burst of it is known, and that it carries as much is enough. So it is
    where it goes on from a hop that fills the step to another one, and none that does so leads on or in there. The
    gradients that share a pair with blocks of context are less than half of its bytes.
    """
    hop = ["job_id", "burst_size", "bytes_per_step"]
    synchronised = pairs.filter(pl.col("kind") == "dp").sort("bytes_per_step").select(*ENDS, *hop)
    likest = (
        filled.select(hop).drop_nulls("bytes_per_step").rename({"burst_size": "reduced", "bytes_per_step": "carried"})
    )
    same_burst = pl.col("burst_size").is_null() | _is_alike("burst_size", "reduced", same_size)
    missing = synchronised
    for end, other in (ENDS, ENDS[::-1]):
        missing = missing.join(filled, on=["job_id", end], how="anti")
        missing = missing.join(filled, left_on=["job_id", end], right_on=["job_id", other], how="semi")
    closing = pl.struct("job_id", *ENDS).is_in(missing.select(pl.struct("job_id", *ENDS)).to_series().implode())
    same_ring = _is_alike("bytes_per_step", "carried", same_bytes) & (same_burst | closing)
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


def _jobs_sending_to_all(pairs: pl.DataFrame, filled: pl.DataFrame) -> pl.Series:
    """Return the jobs in most of whose groups of filling pairs each NIC sends to all NICs of other hosts: `job_id`.

    Gradients may share a pair with tokens. It carries more than tokens alone then. In a group of three a ring both ways
    is such an exchange, too.
    """
    groups = pair_graph.components(filled.select("job_id", *ENDS))
    least = filled.group_by("job_id").agg(least=pl.col("bytes_per_step").min())
    sending = pairs.filter(pl.col("kind").is_in(["dp", "filling"])).join(least, on="job_id")
    sending = sending.filter(pl.col("bytes_per_step") >= pl.col("least"))
    for end in ENDS:
        sending = sending.join(groups.rename({"addr": end, "component": f"{end}_group"}), on=["job_id", end])
    within = sending.filter(pl.col("src_addr_group") == pl.col("dst_addr_group"))
    met = within.group_by("job_id", component="src_addr_group").agg(met=pl.len())
    nics = pl.len().cast(pl.Int64)
    complete = groups.group_by("job_id", "component").agg(nics=nics).join(met, on=["job_id", "component"], how="left")
    all_met = (pl.col("nics") > RING_PEERS + 1) & (pl.col("met") >= pl.col("nics") * (pl.col("nics") - 1))
    return (
        complete.group_by("job_id")
        .agg(share=all_met.fill_null(value=False).mean())
        .filter(pl.col("share") >= MAJORITY)["job_id"]
    )


def _sharded_jobs(pairs: pl.DataFrame, filled: pl.DataFrame, same_size: float) -> pl.Series:
    """Return the jobs whose `filling` pairs carry what others of their pairs synchronise in one burst.

    About all of them: where the collector merges records, some blocks of context together have a bucket's size by
    chance. Where nothing but joined messages is known of any, sharded parameters are those of which what is reduced has
    whole numbers: the parts that go from rank to rank are the same.
    """
    tensors = pairs.filter(pl.col("kind") == "dp").select("job_id", reduced="burst_size").unique()
    shape = _is_alike("reduced", "common_size", same_size) | _is_alike("reduced", 2 * pl.col("common_size"), same_size)
    sized = filled.drop_nulls("common_size")
    alike = _share_of_same_tensors(sized, tensors, shape)
    times = pl.col("reduced") / pl.col("message")
    whole = (times.round() >= 1) & ((times - times.round()).abs() <= same_size)
    parts = filled.join(sized, on="job_id", how="anti").join(tensors, on="job_id")
    made = parts.group_by("job_id").agg(same=whole.fill_null(value=False).mean())
    return pl.concat([alike, made]).filter(pl.col("same") >= AGREEING_NICS)["job_id"]


def _jobs_with_sums(pairs: pl.DataFrame, filled: pl.DataFrame, same_size: float) -> pl.Series:
    """Return the jobs of which a pair carries in a step what one that fills it and one that does not do together.

    A ring of gradients goes over most hops of the rings of context that it joins, and over some more. All hops of one
    ring carry the same.
    """
    each = pl.col("bytes_per_step")
    some = filled.select("job_id", filling=each).unique()
    others = pairs.filter(pl.col("kind") == "dp").select("job_id", gradients=each).unique()
    sums = some.join(others, on="job_id").with_columns(sum=pl.col("filling") + pl.col("gradients")).sort("sum")
    return (
        others.sort("gradients")
        .join_asof(
            sums.select("job_id", "sum"),
            left_on="gradients",
            right_on="sum",
            by="job_id",
            strategy="nearest",
            check_sortedness=False,
        )
        .filter(_is_alike("gradients", "sum", same_size).fill_null(value=False))["job_id"]
        .unique()
    )


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
