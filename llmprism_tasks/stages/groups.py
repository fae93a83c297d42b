"""Groups: the NICs whose ranks reduce gradients with each other, and those that exchange tokens with experts.

Gradients are reduced among the replicas of one place in the model: those of `dp`, and of `cp`, which share parameters
too; experts (`ep`) live among them. Where a host holds several members of a group, rings pass through it unseen: in at
one NIC, out at another. In the order of ranks, members are apart by the tensor-parallel degree, so the rails of the
hops that are seen tell who belongs together.
"""

from __future__ import annotations

import math

import polars as pl

from llmprism_tasks.stages import layout
from llmprism_tasks.stages.layout import ENDS

NIC = ["job_id", "addr"]

REDUCING = ("dp", "cp", "ep")
"""Kinds whose pairs link NICs of one gradient group: those of `cp` and `ep` are parts of it."""

LEAST_CROSSING = 0.1
"""Ratio of a job's hops between rails by which a distance of rails must be seen: one wrong pair must not decide."""


def gradient_groups(pairs: pl.DataFrame, job_members: pl.DataFrame, topology: pl.DataFrame) -> pl.DataFrame:
    """Group the NICs that reduce gradients with each other: `job_id`, `addr`, `group`; NICs without such are absent.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`
    topology : `addr`, `host`, `gpu`; where `gpu` is NULL a NIC's place among its host's addresses stands for it
    """
    return groups_of(pairs.filter(pl.col("kind").is_in(REDUCING)), job_members, topology)


def expert_groups(
    pairs: pl.DataFrame, groups: pl.DataFrame, job_members: pl.DataFrame, topology: pl.DataFrame
) -> pl.DataFrame:
    """Group the NICs that exchange tokens with each other's experts: `job_id`, `addr`, `group`.

    Where what goes to other GPUs of a host is relayed there, rails alone are linked, though the host holds several
    members of a gradient group: then they all take part.

    Parameters
    ----------
    groups : the gradient groups, as `gradient_groups` returns
    """
    exchanging = pairs.filter(pl.col("kind") == "ep")
    found = groups_of(exchanging, job_members, topology)
    if found.is_empty():
        return found
    nics = _ranked(job_members, topology)
    crossing = _hops(exchanging, nics).filter(pl.col("src_rank") != pl.col("dst_rank")).select("job_id").unique()
    placed = found.join(crossing, on="job_id", how="anti").join(job_members.select("job_id", "addr", "host"), on=NIC)
    mates = (
        placed.join(groups.rename({"group": "reducing"}), on=NIC)
        .group_by("job_id", "host", "reducing")
        .agg(first=pl.col("addr").min(), addr="addr")
        .explode("addr")
        .select("job_id", src_addr="first", dst_addr="addr")
    )
    return layout.components(pl.concat([exchanging.select("job_id", *ENDS), _chains(found), mates])).rename(
        {"component": "group"}
    )


def groups_of(hops: pl.DataFrame, job_members: pl.DataFrame, topology: pl.DataFrame) -> pl.DataFrame:
    """Return the groups that hops make, seen and unseen: `job_id`, `addr`, `group`."""
    nics = _ranked(job_members, topology)
    placed = _hops(hops, nics)
    unseen = _unseen(placed, nics)
    return layout.components(pl.concat([hops.select("job_id", *ENDS), unseen])).rename({"component": "group"})


def nodes(nics: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Name the group of each NIC, or the NIC where it has none: `job_id`, `addr`, `node`."""
    node = pl.coalesce(pl.format("group {}", "group"), "addr")
    return nics.join(groups, on=NIC, how="left").select(*NIC, node=node)


def _ranked(job_members: pl.DataFrame, topology: pl.DataFrame) -> pl.DataFrame:
    """Return members with their place among the GPUs of their host: `job_id`, `addr`, `host`, `rank`."""
    rank = pl.col("gpu").fill_null(pl.col("addr").rank("ordinal").over("host").cast(pl.Int32) - 1)
    return job_members.select("job_id", "addr", "host").join(
        topology.with_columns(rank=rank).select("addr", "rank"), on="addr"
    )


def _hops(pairs: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs between hosts, with `…_host` and `…_rank` of both ends as `src_` and `dst_`."""
    hops = pairs.select("job_id", *ENDS)
    for end, short in (("src_addr", "src"), ("dst_addr", "dst")):
        hops = hops.join(
            nics.rename({"addr": end, "host": f"{short}_host", "rank": f"{short}_rank"}), on=["job_id", end]
        )
    return hops.filter(pl.col("src_host") != pl.col("dst_host"))


def _unseen(hops: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    """Link the NICs of a host between which a ring passes unseen: `job_id`, `src_addr`, `dst_addr`.

    They are apart by a multiple of the tensor-parallel degree, as the rails of crossing hops are. A host may hold
    several pp_stages: so NICs are linked only where rings are seen to end, to begin or not at all, and where what is
    linked already lies on the same hosts.
    """
    seen = layout.components(hops.select("job_id", *ENDS))
    spread = (
        seen.join(nics.select("job_id", "addr", "host"), on=NIC)
        .group_by("job_id", "component")
        .agg(around=pl.col("host").unique().sort().str.join(" "))
    )
    signed = zip(ENDS, (1, -1), strict=True)
    ending = (
        pl.concat([hops.select("job_id", addr=end, balance=pl.lit(sign)) for end, sign in signed])
        .group_by(NIC)
        .agg(ends=pl.col("balance").sum() != 0)
    )
    placed = (
        nics.join(_strides(hops), on="job_id")
        .join(seen, on=NIC, how="left")
        .join(spread, on=["job_id", "component"], how="left")
        .join(ending, on=NIC, how="left")
        .with_columns(
            place=pl.col("rank") % pl.col("stride"),
            around=pl.when(pl.col("ends").fill_null(value=True)).then(pl.lit("")).otherwise("around"),
        )
    )
    return _chained(placed, "host", "place", "around")


def _chained(nics: pl.DataFrame, *within: str) -> pl.DataFrame:
    """Link the NICs of one job that agree on some columns, each to the next."""
    following = pl.col("addr").shift(-1).over("job_id", *within)
    return (
        nics.sort("job_id", *within, "addr")
        .with_columns(dst_addr=following)
        .drop_nulls("dst_addr")
        .select("job_id", src_addr="addr", dst_addr="dst_addr")
    )


def _chains(groups: pl.DataFrame) -> pl.DataFrame:
    return _chained(groups, "group")


def _strides(hops: pl.DataFrame) -> pl.DataFrame:
    """Return the greatest common divisor of the distances between rails that hops cross: `job_id`, `stride`."""
    apart = (pl.col("src_rank") - pl.col("dst_rank")).abs()
    distances = (
        hops.with_columns(distance=apart)
        .filter(pl.col("distance") > 0)
        .group_by("job_id", "distance")
        .len()
        .filter(pl.col("len") >= LEAST_CROSSING * pl.col("len").sum().over("job_id"))
        .group_by("job_id")
        .agg("distance")
    )
    strides = [math.gcd(*some) for some in distances["distance"].to_list()]
    return distances.select("job_id", stride=pl.Series(strides, dtype=pl.Int32))
