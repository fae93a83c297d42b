"""Lock-step: which GPUs of a host are tensor-parallel peers, which no traffic between them shows.

Tensor-parallel peers meet in every layer, so what they send leaves together, step after step. Replicas meet once a
step: until then each takes its own time, and what they send leaves at moments that vary against each other. An exchange
of tokens is a meeting of all who take part, in every layer of experts: there, peers are those who are closer than it
makes them.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, sigma
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.pair_graph import AGREEING_NICS, ENDS

LOCK_STEP_MS = 2.0
"""Milliseconds by which the time between the messages of peers may vary: clocks of switches differ by a millisecond,
and jitter of a hundredth adds up to more over the passes of most steps."""

LIKE_OTHER_HOSTS = 2.0
"""Factor by which the moments of two hosts that exchange tokens may vary more than those of one host, and be no further
apart: a deviation over ten steps is off by a third. Peers that meet in every layer still differ by a layer's jitter, a
third of what replicas do."""

LEAST_STEPS = 4
"""Steps below which a deviation is chance. Each step of a pipeline has two moments, so there half as many suffice."""


def peers(sent: pl.DataFrame, piped: pl.DataFrame, pairs: pl.DataFrame, job_members: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `peers`: how many GPUs of a host send in lock-step. Jobs whose hosts disagree are absent.

    There are at least as many as tensor-parallel peers: where nothing varies, replicas seem to be in step as well. GPUs
    that seem to be alone have no say unless most are.
    `peers` is NULL where an exchange of tokens keeps GPUs of two hosts as close in step as those of one.

    Parameters
    ----------
    sent : what pairs send in each step: `pair`, `step`, `first_ns`, `last_ns` (the first and the last start)
    piped : flows of pipelines: `pair`, `flow_start_ns`
    pairs : `pair`, `job_id`, `src_addr`, `kind`; the first and the last message of a pipeline in a step are compared
        with the nearest one of the other NIC, wherever its steps were cut, and the first of all else with the nearest
        first one
    job_members : `job_id`, `addr`, `host`
    """
    kinds = pairs.filter(pl.col("kind") != "other").select(
        "pair", "job_id", addr="src_addr", piped=pl.col("kind") == "pp"
    )
    if kinds.is_empty():
        return kinds.select("job_id", peers=pl.lit(0, pl.Int64))
    steps = (
        sent.join(kinds, on="pair")
        .group_by("job_id", "piped", "step", "addr")
        .agg(pl.col("first_ns").min(), pl.col("last_ns").max())
    )
    last = steps.filter("piped").drop("first_ns").rename({"last_ns": "at_ns"})
    first = steps.drop("last_ns").rename({"first_ns": "at_ns"})
    hosts = job_members.select("job_id", "addr", "host")
    moments = pl.concat([first, last]).drop("step").join(hosts, on=["job_id", "addr"])
    every = piped.join(kinds.filter("piped"), on="pair").rename({"flow_start_ns": "at_ns"})
    others = pl.concat([first.filter(~pl.col("piped")).drop("step"), every], how="diagonal")
    others = others.join(hosts, on=["job_id", "addr"]).select(moments.columns)
    within = _moment_deviations(moments, others, "host")
    together = within.filter(pl.col("varies_ns") <= LOCK_STEP_MS * 1e6)
    sizes = pair_graph.components(together.select("job_id", *ENDS)).with_columns(
        peers=pl.len().over("job_id", "component").cast(pl.Int64)
    )
    # Nobody is in lock-step by chance, but a NIC whose steps were cut wrongly seems to be alone.
    alone = (pl.col("peers") == 1).mean().over("job_id") > MAJORITY
    agreed = (
        sizes.filter(alone | (pl.col("peers") > 1))
        .group_by("job_id", "peers")
        .agg(nics=pl.len())
        .with_columns(of=pl.col("nics").sum().over("job_id"))
        .filter(pl.col("nics") >= AGREEING_NICS * pl.col("of"))
        .select("job_id", "peers")
    )
    met = _peers_by_exchanges(within, moments, pairs)
    return pl.concat([agreed.join(met, on="job_id", how="anti"), met])


def _moment_deviations(moments: pl.DataFrame, others: pl.DataFrame, place: str) -> pl.DataFrame:
    """Return by how much the moments of two NICs of one place vary: `job_id`, `src_addr`, `dst_addr`, `varies_ns`.

    Of what a pipeline sends and what is not piped, that which varies more: a collective that begins when its last
    member is there begins on all of them together, whoever they are.
    """
    key, names = ["job_id", "piped", place], {"addr": "addr_other", "at_ns": "at_ns_other"}
    both = moments.join(others.rename(names).select(*key, "addr_other").unique(), on=key).sort("at_ns")
    nearest = both.join_asof(
        others.rename(names).sort("at_ns_other"),
        left_on="at_ns",
        right_on="at_ns_other",
        by=[*key, "addr_other"],
        strategy="nearest",
        coalesce=False,
        check_sortedness=False,
    )
    return (
        nearest.group_by("job_id", "piped", src_addr="addr", dst_addr="addr_other")
        .agg(moments=pl.len(), varies_ns=sigma(pl.col("at_ns") - pl.col("at_ns_other")))
        .filter(pl.col("moments") >= LEAST_STEPS)
        .group_by("job_id", *ENDS)
        .agg(pl.col("varies_ns").max())
    )


def _peers_by_exchanges(within: pl.DataFrame, moments: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `peers` of the jobs whose GPUs are no closer in a host than those that exchange tokens are.

    These are no peers if they are apart; if they are in lock-step, it is that of the exchange, and `peers` is NULL. Of
    each GPU the closest one counts: a host may hold several groups of peers.
    """
    exchanged = pairs.filter(pl.col("kind") == "ep").select("job_id", addr="src_addr", place="dst_addr")
    exchanging = _moment_deviations(
        moments.join(exchanged, on=["job_id", "addr"]), moments.with_columns(place="addr"), "place"
    )
    others = within.filter(pl.col("src_addr") != pl.col("dst_addr"))
    usual = others.group_by("job_id").agg(pl.col("varies_ns").median())
    return (
        _closest(others)
        .join(_closest(exchanging), on="job_id", suffix="_exchanging")
        .filter(pl.col("closest_ns_exchanging") <= LIKE_OTHER_HOSTS * pl.col("closest_ns"))
        .join(usual, on="job_id")
        .select("job_id", peers=pl.when(pl.col("varies_ns") > LOCK_STEP_MS * 1e6).then(pl.lit(1, pl.Int64)))
    )


def _closest(deviations: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `closest_ns`: by how much the moments of most NICs and of the closest other one vary."""
    of_each = deviations.group_by("job_id", "src_addr").agg(pl.col("varies_ns").min())
    return of_each.group_by("job_id").agg(closest_ns=pl.col("varies_ns").median())
