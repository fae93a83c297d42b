"""Own rings: whether the rails of a job's hosts have one ring or several, by when what they send begins and ends.

A ring for each tensor-parallel place in the hosts, and one ring through all GPUs with a channel at each NIC
(NCCL_CROSS_NIC=0, NCCL user guide), are the same graph. In one ring all members are alike: those of one host, those on
one rail, and those that share neither begin and end as far apart. Of several rings, those that share neither are the
furthest apart: peers of a host meet in every layer, and the members of a ring wait for each other.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import sigma
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.layout import rails
from llmprism_tasks.stages.parallelism.layout.lock_step import LEAST_STEPS, LOCK_STEP_MS

MOMENTS = ("first_ns", "last_ns")
"""What is compared: a ring may hold its members back before it begins, or only until it ends."""

RAILS = ("rank", "other_rank")

UNLIKE = 1.5
"""Factor by which those that share neither host nor ring vary more, at least, however many steps there are."""

CHANCE = 5.0
"""By how much a ratio of deviations may be above one by chance, times the root of the steps: over ten steps a deviation
is off by a third. Of 100 drawn jobs of one ring in two or three hosts of two GPUs, five seem to have two over four
steps, one at most from ten on."""


def peers_by_rings(
    peers: pl.DataFrame, sent: pl.DataFrame, pairs: pl.DataFrame, job_members: pl.DataFrame, topology: pl.DataFrame
) -> pl.DataFrame:
    """Return `peers` with as many in a host as it has rings, of jobs that seem to have fewer: `job_id`, `peers`.

    NULL where rings are not alike, for nobody knows who belongs to which. Jobs with context or experts are left as they
    are, and those whose pipelines go from rail to rail, for their rails may be stages.

    Parameters
    ----------
    peers : as `lock_step.peers` returns
    sent : what pairs send in each step: `pair`, `step`, `first_ns`, `last_ns` (the first and the last start)
    pairs : `pair`, `job_id`, `src_addr`, `dst_addr`, `kind`
    job_members, topology : as for `dp_groups.rings`
    """
    nics = rails.ranked(job_members, topology)
    widest = nics.group_by("job_id").agg(rails=pl.col("rank").n_unique())
    across = rails.hops(pairs.filter(pl.col("kind") == "pp"), nics).filter(pl.col("src_rank") != pl.col("dst_rank"))
    more = pairs.filter(pl.col("kind").is_in(["cp", "ep"]))
    mixed = pl.concat([more.select("job_id"), across.select("job_id")]).unique()
    asked = (
        peers.join(widest, on="job_id").filter(pl.col("peers") < pl.col("rails")).join(mixed, on="job_id", how="anti")
    )
    rings = _rings_of_hosts(sent, pairs.filter(pl.col("kind") == "dp").join(asked, on="job_id", how="semi"), nics)
    other = (
        asked.join(rings, on="job_id")
        .filter(pl.col("seen") == pl.col("rails"), (pl.col("rings") > pl.col("peers")).fill_null(value=True))
        .select("job_id", peers="rings")
    )
    return peers.update(other, on="job_id", include_nulls=True)


def _rings_of_hosts(sent: pl.DataFrame, reducing: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `rings` (in each host; NULL where they have not as many rails each), `seen` (rails)."""
    apart = _rail_deviations(sent, reducing, nics)
    alike = apart.filter(pl.col("alike")).select("job_id", src_addr="rank", dst_addr="other_rank")
    each = pl.concat([apart.select("job_id", src_addr=end, dst_addr=end) for end in RAILS]).unique()
    rings = pair_graph.components(pl.concat([alike, each])).group_by("job_id", "component").len("of_ring")
    even = pl.col("of_ring").n_unique() == 1
    return rings.group_by("job_id").agg(rings=pl.when(even).then(pl.len()).cast(pl.Int64), seen=pl.col("of_ring").sum())


def _rail_deviations(sent: pl.DataFrame, reducing: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    """Return for each two rails of a job whether they are alike, as those of one ring are: `job_id`, RAILS, `alike`.

    They are unless NICs of two hosts vary more if they are on both rails than if they are on one, or than two of one
    host do. Of beginnings, those on one rail count whose hosts are two hops apart: the ends of a hop begin alike in any
    case, for what is sent first leaves when its receiver is there, too.
    """
    moments = (
        sent.join(reducing.select("pair", "job_id", addr="src_addr"), on="pair")
        .group_by("job_id", "step", "addr")
        .agg(pl.col("first_ns").min(), pl.col("last_ns").max())
        .join(nics, on=["job_id", "addr"])
    )
    along = rails.hops(reducing, nics).filter(pl.col("src_rank") == pl.col("dst_rank"))
    neighbours = along.select("job_id", host="src_host", other_host="dst_host").unique()
    back = neighbours.rename({"host": "other_host", "other_host": "host"})
    two_hops = (
        neighbours.join(
            neighbours.rename({"host": "other_host", "other_host": "next_host"}), on=["job_id", "other_host"]
        )
        .select("job_id", "host", other_host="next_host")
        .filter(pl.col("host") != pl.col("other_host"))
        .unique()
        .join(pl.concat([neighbours, back.select(neighbours.columns)]), on=neighbours.columns, how="anti")
    )
    others = moments.rename({name: f"other_{name}" for name in ("addr", "host", "rank", *MOMENTS)})
    within = _deviations(
        moments.join(others, left_on=["job_id", "step", "host"], right_on=["job_id", "step", "other_host"])
    )
    between, farther = (
        _deviations(moments.join(apart, on=["job_id", "host"]).join(others, on=["job_id", "step", "other_host"]))
        for apart in (neighbours, two_hops)
    )
    first, last = (
        of.filter(pl.col("rank") == pl.col("other_rank")).group_by("job_id").agg(pl.col(name).median())
        for of, name in zip((farther, between), MOMENTS, strict=True)
    )
    same = last.join(first, on="job_id", how="left")
    strangers = between.filter(pl.col("rank") < pl.col("other_rank"))
    compared = strangers.join(within, on=["job_id", *RAILS], suffix="_within").join(same, on="job_id", suffix="_same")
    more = pl.max_horizontal(pl.lit(UNLIKE), 1 + CHANCE / pl.col("steps").sqrt())
    unlike = (
        pl.max_horizontal(more * pl.min_horizontal(f"{name}_within", f"{name}_same"), pl.lit(LOCK_STEP_MS * 1e6))
        < pl.col(name)
        for name in MOMENTS
    )
    return compared.select("job_id", *RAILS, alike=~pl.any_horizontal(unlike))


def _deviations(both: pl.DataFrame) -> pl.DataFrame:
    """Return how much the moments of NICs on two rails vary against each other: `job_id`, RAILS, MOMENTS (ns), in the
    median over hosts, and how many `steps` they share."""
    low, high = (of(*RAILS) for of in (pl.min_horizontal, pl.max_horizontal))
    return (
        both.group_by("job_id", "addr", "other_addr", *RAILS)
        .agg(pl.len().alias("steps"), *(sigma(pl.col(name) - pl.col(f"other_{name}")).alias(name) for name in MOMENTS))
        .filter(pl.col("steps") >= LEAST_STEPS)
        .group_by("job_id", rank=low, other_rank=high)
        .agg(pl.col("steps").median(), pl.col(MOMENTS).median())
    )
