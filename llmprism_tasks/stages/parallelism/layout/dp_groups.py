"""Groups: the NICs whose ranks reduce gradients with each other, and those that exchange tokens with experts.

Gradients are reduced among the replicas of one place in the model: those of `dp`, and of `cp`, which share parameters
too; experts (`ep`) live among them. Where a host holds several members of a group, rings pass through it unseen: in at
one NIC, out at another. In the order of ranks, members are apart by the tensor-parallel degree, so the rails of the
hops that are seen tell who belongs together.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.kernels import hidden_hops
from llmprism_tasks.stages.parallelism.kernels.hidden_hops import Links
from llmprism_tasks.stages.parallelism.layout import rails
from llmprism_tasks.stages.parallelism.pair_graph import ENDS

NIC = ["job_id", "addr"]

REDUCING = ("dp", "cp", "ep")
"""Kinds whose pairs link NICs of one gradient group: those of `cp` and `ep` are parts of it."""


@dataclass(frozen=True)
class Rings:
    """What the pairs that reduce gradients say of who belongs together.

    Attributes
    ----------
    nics : `job_id`, `addr`, `host`, `rank` of the members, and of the GPUs through which their rings pass unseen
    groups : `job_id`, `addr`, `group`: NICs that reduce gradients with each other
    unclear : `job_id` of the jobs where GPUs may or may not take part, or which of a host's belong together is not said
    """

    nics: pl.DataFrame
    groups: pl.DataFrame
    unclear: pl.DataFrame


def rings(
    pairs: pl.DataFrame, job_members: pl.DataFrame, topology: pl.DataFrame, peers: pl.DataFrame | None = None
) -> Rings:
    """Tell from the pairs that reduce gradients who belongs together.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`
    job_members : of all jobs at work, `job_id`, `addr`, `host`
    topology : `addr`, `host`, `gpu`; where `gpu` is NULL a NIC's place among its host's addresses stands for it
    peers : as `lock_step.peers` returns, of jobs whose groups have members apart by their peers
    """
    reducing = pairs.filter(pl.col("kind").is_in(REDUCING))
    silent = rails.silent_between(reducing, job_members, topology)
    nic = ["job_id", "addr", "host"]
    nics = rails.ranked(pl.concat([job_members.select(nic), silent.filter("fits").select(nic)]), topology)
    hops = rails.hops(reducing, nics)
    strides = rails.strides(hops, nics, peers)
    untold = strides.filter(pl.col("stride").is_null()).select("job_id")
    groups = _connected_groups(reducing, _link_hidden_hops(hops, nics, strides))
    return Rings(nics, groups, pl.concat([rails.unclear(silent, job_members), untold]))


def gradient_groups(pairs: pl.DataFrame, job_members: pl.DataFrame, topology: pl.DataFrame) -> pl.DataFrame:
    """Group the members that reduce gradients with each other: `job_id`, `addr`, `group`; NICs without such are absent.

    Parameters
    ----------
    pairs, topology : as for `rings`
    """
    return groups_of(pairs.filter(pl.col("kind").is_in(REDUCING)), rails.ranked(job_members, topology))


def expert_groups(pairs: pl.DataFrame, groups: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    """Group the NICs that exchange tokens with each other's experts: `job_id`, `addr`, `group`.

    Everybody sends to everybody, so nothing passes through a host unseen as a ring does. Where what goes to other GPUs
    of a host is relayed there, rails alone are linked, though the host holds several members of a gradient group: then
    they all take part.

    Parameters
    ----------
    groups : the gradient groups
    nics : `job_id`, `addr`, `host`, `rank`
    """
    exchanging = pairs.filter(pl.col("kind") == "ep")
    found = _connected_groups(exchanging, exchanging.select("job_id", *ENDS).clear())
    if found.is_empty():
        return found
    crossing = rails.hops(exchanging, nics).filter(pl.col("src_rank") != pl.col("dst_rank")).select("job_id").unique()
    placed = found.join(crossing, on="job_id", how="anti").join(nics.select(*NIC, "host"), on=NIC)
    mates = (
        placed.join(groups.rename({"group": "reducing"}), on=NIC)
        .group_by("job_id", "host", "reducing")
        .agg(first=pl.col("addr").min(), addr="addr")
        .explode("addr")
        .select("job_id", src_addr="first", dst_addr="addr")
    )
    return _connected_groups(exchanging, pl.concat([_chain_group_members(found), mates]))


def groups_of(pairs: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    """Return the groups that the hops of pairs make, seen and unseen: `job_id`, `addr`, `group`."""
    if pairs.is_empty():
        return pl.DataFrame(schema={"job_id": pl.String, "addr": pl.String, "group": pl.Int64})
    hops = rails.hops(pairs, nics)
    return _connected_groups(pairs, _link_hidden_hops(hops, nics, rails.strides(hops, nics)))


def _connected_groups(pairs: pl.DataFrame, unseen: pl.DataFrame) -> pl.DataFrame:
    return pair_graph.components(pl.concat([pairs.select("job_id", *ENDS), unseen])).rename({"component": "group"})


def nodes(nics: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Name the group of each NIC, or the NIC where it has none: `job_id`, `addr`, `node`."""
    node = pl.coalesce(pl.format("group {}", "group"), "addr")
    return nics.join(groups, on=NIC, how="left").select(*NIC, node=node)


def _link_hidden_hops(hops: pl.DataFrame, nics: pl.DataFrame, strides: pl.DataFrame) -> pl.DataFrame:
    """Link the NICs of a host between which a ring passes unseen: `job_id`, `src_addr`, `dst_addr`.

    They are apart by a multiple of the stride.
    """
    apart = strides.drop_nulls("stride")
    if apart.is_empty():
        return hops.select("job_id", *ENDS).clear()
    placed = nics.join(apart, on="job_id").sort("job_id", "host").with_columns(nic=pl.int_range(pl.len()))
    host = placed.select(pl.struct("job_id", "host").rle_id().cast(pl.Int64)).to_series().to_numpy()
    rank, stride = (placed[name].to_numpy() for name in ("rank", "stride"))
    ends = hops.select("job_id", *ENDS)
    for end, side in zip(ENDS, Links._fields, strict=True):
        ends = ends.join(
            placed.select("job_id", pl.col("addr").alias(end), pl.col("nic").alias(side)), on=["job_id", end]
        )
    seen = Links(*(ends[side].to_numpy() for side in Links._fields))
    left, right = hidden_hops.unseen(seen, host, host * int(stride.max()) + rank % stride, rank)
    return placed.select("job_id", src_addr="addr")[left].with_columns(dst_addr=placed["addr"][right])


def _chain_group_members(groups: pl.DataFrame) -> pl.DataFrame:
    """Link the NICs of each group, each to the next."""
    following = pl.col("addr").shift(-1).over("job_id", "group")
    return (
        groups.sort("job_id", "group", "addr")
        .with_columns(dst_addr=following)
        .drop_nulls("dst_addr")
        .select("job_id", src_addr="addr", dst_addr="dst_addr")
    )
