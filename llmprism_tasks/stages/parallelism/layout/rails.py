"""Rails: which GPUs of its hosts a job's rings pass through, seen or not.

A ring enters a host at one GPU and leaves it at another; in between it takes NVLink, and the NICs there stay silent
unless another channel uses them. The members of a group are apart by the tensor-parallel degree, in the order of ranks.
"""

from __future__ import annotations

import math

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.stages.parallelism.pair_graph import AGREEING_NICS, ENDS

LEAST_CROSSING = 0.1
"""Ratio of a job's hops between rails by which a distance of rails must be seen: one wrong pair must not decide."""


def ranked(job_members: pl.DataFrame, topology: pl.DataFrame) -> pl.DataFrame:
    """Return members with their place among the GPUs of their host: `job_id`, `addr`, `host`, `rank`."""
    return job_members.select("job_id", "addr", "host").join(_gpu_ranks(topology).select("addr", "rank"), on="addr")


def hops(pairs: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs between hosts, with `…_host` and `…_rank` of both ends as `src_` and `dst_`.

    Parameters
    ----------
    nics : as `ranked` returns
    """
    between = pairs.select("job_id", *ENDS)
    for end, short in (("src_addr", "src"), ("dst_addr", "dst")):
        between = between.join(
            nics.rename({"addr": end, "host": f"{short}_host", "rank": f"{short}_rank"}), on=["job_id", end]
        )
    return between.filter(pl.col("src_host") != pl.col("dst_host"))


def silent_between(pairs: pl.DataFrame, job_members: pl.DataFrame, topology: pl.DataFrame) -> pl.DataFrame:
    """Return the GPUs of no job through which a job's rings may pass unseen: `job_id`, `addr`, `host`, `fits`.

    These are between the job's own in one host, and no other job's. Jobs get whole hosts or even parts of them: where
    what is between would make up another part, or is between those of another job, too, they do not fit. Rings on one
    rail each tell nothing of other rails.

    Parameters
    ----------
    pairs : those of the groups whose hops are seen: `job_id`, `src_addr`, `dst_addr`
    job_members : of all jobs at work, `job_id`, `addr`, `host`
    topology : `addr`, `host`, `gpu`
    """
    nics = ranked(job_members, topology)
    crossing = _crossing_hops(hops(pairs, nics)).select("job_id").unique()
    if crossing.is_empty():
        return job_members.select("job_id", "addr", "host", fits=pl.lit(value=True)).clear()
    spans = (
        nics.join(crossing, on="job_id", how="semi")
        .group_by("job_id", "host")
        .agg(lowest=pl.col("rank").min(), highest=pl.col("rank").max(), seen=pl.len())
    )
    idle = (
        _gpu_ranks(topology)
        .with_columns(gpus=pl.len().over("host"))
        .join(job_members.select("addr"), on="addr", how="anti")
        .join(spans, on="host")
        .filter(pl.col("rank").is_between("lowest", "highest"))
    )
    even = pl.col("gpus") % (pl.len().over("job_id", "host") + pl.col("seen")) == 0
    ours = (pl.col("job_id").n_unique().over("addr") == 1).all().over("job_id", "host")
    return idle.select("job_id", "addr", "host", fits=even & ours)


def unclear(silent: pl.DataFrame, job_members: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id` of the jobs where GPUs lie between theirs of which nobody can say whether they take part.

    Parameters
    ----------
    silent : as `silent_between` returns
    """
    doubtful = silent.filter(~pl.col("fits"))
    if doubtful.is_empty():
        return doubtful.select("job_id")
    hosts = job_members.group_by("job_id").agg(hosts=pl.col("host").n_unique())
    return (
        doubtful.group_by("job_id")
        .agg(doubtful=pl.col("host").n_unique())
        .join(hosts, on="job_id")
        .filter(pl.col("doubtful") > (1 - AGREEING_NICS) * pl.col("hosts"))
        .select("job_id")
    )


def strides(between: pl.DataFrame, nics: pl.DataFrame, peers: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return how far the members of a group are apart in a host: `job_id`, `stride`, NULL where the hops do not say.

    Members are apart by their peers, if these are known and divide the job's GPUs in each host. Else all distances
    between the rails of a hop are multiples of the stride, and so are the job's GPUs in each host. Of all such numbers
    the greatest is taken by which every place of a host has hops. If hops stay on their rails, the job is absent,
    unless its rings pass by some rails: the NICs there belong to rings of the others.

    Parameters
    ----------
    between : as `hops` returns
    nics : as `ranked` returns, silent ones among them
    peers : as `lock_step.peers` returns
    """
    told = (
        between.select("job_id", stride=pl.lit(None, pl.Int32)).clear()
        if peers is None
        else _strides_of_peers(nics, peers)
    )
    untold = between.join(told, on="job_id", how="anti")
    used = pl.concat(
        [untold.select("job_id", host=f"{end}_host", rank=f"{end}_rank") for end in ("src", "dst")]
    ).unique()
    crossing = _crossing_hops(untold)
    passed_by = _jobs_passed_by(used, nics).join(crossing, on="job_id", how="anti")
    usual = (
        crossing.group_by("job_id", "distance")
        .len()
        .filter(pl.col("len") >= LEAST_CROSSING * pl.col("len").sum().over("job_id"))
        .select("job_id", "distance")
    )
    none = passed_by.select("job_id", distance=pl.lit(0, crossing.schema["distance"]))
    distances = pl.concat([usual, none]).group_by("job_id").agg("distance")
    if distances.is_empty():
        return told
    rails = _rails_in_use(used)
    widths = nics.group_by("job_id", "host").len().group_by("job_id").agg(widths="len")
    # One round per job: there are tens of them, and their divisors are few.
    table = distances.join(rails, on="job_id", how="left").join(widths, on="job_id")
    found = [
        _stride(math.gcd(*row["distance"], *row["widths"]), row["rails"] or []) for row in table.iter_rows(named=True)
    ]
    by_hops = table.select("job_id", stride=pl.Series(found, dtype=pl.Int32))
    # Where rings stay on their rails and pass by few of them, such as one of five, the hops of these may have been
    # lost: such jobs are absent, as if rings passed by none.
    lost = passed_by.join(by_hops.filter(pl.col("stride").is_null()), on="job_id", how="semi")
    return pl.concat([told, by_hops.join(lost, on="job_id", how="anti")])


def _rails_in_use(used: pl.DataFrame) -> pl.DataFrame:
    """Return the rails that have hops in most hosts of a job: `job_id`, `rails`.

    Parameters
    ----------
    used : as for `_jobs_passed_by`
    """
    return (
        used.with_columns(hosts=pl.col("host").n_unique().over("job_id"))
        .group_by("job_id", "rank", "hosts")
        .agg(in_hosts=pl.len())
        .filter(pl.col("in_hosts") >= MAJORITY * pl.col("hosts"))
        .group_by("job_id")
        .agg(rails="rank")
    )


def _jobs_passed_by(used: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs with a rail that their rings pass by in most of their hosts: `job_id`.

    Parameters
    ----------
    used : `job_id`, `host`, `rank` of the NICs that have hops
    """
    where = ["job_id", "host", "rank"]
    rails = nics.join(used.select("job_id").unique(), on="job_id", how="semi").group_by("job_id", "rank").len("nics")
    silent = nics.join(used, on=where, how="anti").group_by("job_id", "rank").len("silent")
    return (
        rails.join(silent, on=["job_id", "rank"])
        .filter(pl.col("silent") > (1 - MAJORITY) * pl.col("nics"))
        .select("job_id")
        .unique()
    )


def _strides_of_peers(nics: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `stride` of the jobs whose hosts all hold a multiple of their peers."""
    return (
        nics.group_by("job_id", "host")
        .len()
        .join(peers, on="job_id")
        .group_by("job_id")
        .agg(stride=pl.col("peers").first().cast(pl.Int32), fits=(pl.col("len") % pl.col("peers") == 0).all())
        .filter("fits")
        .select("job_id", "stride")
    )


def _stride(greatest: int, rails: list[int]) -> int | None:
    """Return the greatest divisor whose places are all in use, alike; None where silence may be loss."""
    places = {rail % greatest for rail in rails}
    if len(places) == greatest:
        return greatest
    # Rings pass by the places that are silent. Where more than half are in use, the pairs of these may have been lost.
    if not 0 < len(places) <= MAJORITY * greatest:
        return None
    for stride in range(greatest - 1, 0, -1):
        each = [sum(place % stride == rest for place in places) for rest in range(stride)]
        if greatest % stride == 0 and each[0] > 0 and len(set(each)) == 1:
            return stride
    return None


def _crossing_hops(between: pl.DataFrame) -> pl.DataFrame:
    """Return the hops from one rail to another, with `distance`: of jobs where they touch most hosts, as rings do."""
    apart = (pl.col("src_rank") - pl.col("dst_rank")).abs()
    measured = between.with_columns(distance=apart)
    crossing = measured.filter(pl.col("distance") > 0)
    if crossing.is_empty():
        return crossing
    touched = (
        pl.concat([measured.select("job_id", "distance", host=f"{end}_host") for end in ("src", "dst")])
        .group_by("job_id", "host")
        .agg(crossed=(pl.col("distance") > 0).any())
        .group_by("job_id")
        .agg(pl.col("crossed").mean())
        .filter(pl.col("crossed") >= MAJORITY)
    )
    return crossing.join(touched, on="job_id", how="semi")


def _gpu_ranks(topology: pl.DataFrame) -> pl.DataFrame:
    """Return `addr`, `host`, `rank`: the GPU's index, or the NIC's place among its host's addresses."""
    rank = pl.col("gpu").fill_null(pl.col("addr").rank("ordinal").over("host").cast(pl.Int32) - 1)
    return topology.select("addr", "host", rank=rank)
