"""Waiting: who may only have been late because a neighbour was."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.own_work.own_work import EXCHANGING
from llmprism_tasks.stages.timeline.placement import NIC, STEP
from llmprism_tasks.stages.traffic import nic_pairs

ENDS = (("src_addr", "dst_addr"), ("dst_addr", "src_addr"))

SAME_TRANSFER = 0.98
"""Ratio of two neighbours' own times above which both ended with one transfer between them, give or take its start."""

APART = 0.5
"""Ratio of what somebody is late by, from which on its neighbours' transfers begin one after the other for its sake:
where all are late alike, one that is slower by a percent for ever is the last, too."""


def not_waiting(
    suspects: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Excuse who may only have waited for its neighbours: a transfer can begin late because of either end.

    Whose neighbours are all as late waited for them, and who is no later than all of its ring for what they have in
    common, unless it begins with all its neighbours at one moment and they do not: then they waited for it. Where they
    waited for it as well, nobody can tell.

    Returns
    -------
    those to blame, and those of whom nobody can tell
    """
    late = suspects.filter("ringed").select(*NIC, "own_ns", "common")
    sent = nic_pairs.pairs_of(nic_pairs.in_order(evidence.flows), ["job_id", "kind", *nic_pairs.PAIR])
    sent = sent.filter(pl.col("kind") != "pp")
    neighbour = ["job_id", "neighbour"]
    hops = (
        pl.concat(sent.select("job_id", addr=end, neighbour=other) for end, other in ENDS)
        .unique()
        .join(late, on=NIC)
        .join(late.select("job_id", neighbour="addr", theirs_ns="own_ns"), on=neighbour, how="left")
    )
    as_late = (pl.col("theirs_ns") >= pl.col("own_ns") * SAME_TRANSFER).fill_null(value=False)
    waits = hops.filter(as_late.all().over(NIC) | pl.col("common"))
    excused = waits.join(_in_between(suspects, waits, evidence, settings), on=NIC, how="anti")
    waiting = excused.join(excused.select("job_id", neighbour="addr").unique(), on=neighbour, how="anti")
    mutual = excused.join(waiting.select(NIC).unique(), on=NIC, how="anti")
    blamed = suspects.join(excused.select(NIC).unique(), on=NIC, how="anti")
    return blamed, suspects.join(mutual.select(NIC).unique(), on=NIC, how="semi")


def exchanging(evidence: Evidence) -> pl.Series:
    """Return the jobs that exchange tokens or blocks of context in every layer."""
    pairs = nic_pairs.pairs_of(nic_pairs.in_order(evidence.flows), ["job_id", "kind"])
    return pairs.filter(pl.col("kind").is_in(EXCHANGING))["job_id"].unique()


def in_lock_step(evidence: Evidence) -> pl.Expr:
    """Say of NICs (`job_id`, `ringed`: whether silences between collectives were measured) whether their job exchanges
    in every layer: there all wait for the slow one within the step, and seem slow."""
    return pl.col("ringed") & pl.col("job_id").is_in(exchanging(evidence).implode())


def _in_between(
    suspects: pl.DataFrame, hops: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings
) -> pl.DataFrame:
    """Return whose hops begin together, step after step, and those of its neighbours one after the other, by most of
    what it is late: that end was late.
    """
    names = hops.select("job_id", "neighbour").rename({"neighbour": "addr"})
    mine = pl.concat([hops.select(NIC), names]).unique()
    runs = suspects.join(mine, on=NIC, how="semi").select(*NIC, since_ns="start_ns", until_ns="end_ns")
    steps = evidence.steps.join(runs, on=NIC).filter(
        pl.col("start_ns") >= pl.col("since_ns"), pl.col("end_ns") <= pl.col("until_ns")
    )
    sent = nic_pairs.named(evidence.of_jobs(mine["job_id"]).filter(pl.col("kind") != "pp"))
    ends = (sent.select("job_id", "flow_start_ns", "flow_end_ns", addr=end, neighbour=other) for end, other in ENDS)
    begins = _in_steps(pl.concat(ends), steps).group_by(*STEP, "neighbour").agg(pl.col("flow_start_ns").min())
    apart_ns = pl.col("flow_start_ns").max() - pl.col("flow_start_ns").min()
    spread = (
        begins.group_by(STEP)
        .agg(apart_ns=apart_ns, several=pl.len() > 1)
        .group_by(NIC)
        .agg(
            between_ns=pl.col("apart_ns").median(),
            at_once=((pl.col("apart_ns") < settings.least_work_ms * 1e6) & pl.col("several")).mean()
            >= settings.persistence,
        )
    )
    late = suspects.select(*NIC, late_ns=pl.col("excess") / (1 + pl.col("excess")) * pl.col("own_ns"))
    theirs = spread.select("job_id", "between_ns", neighbour="addr")
    waited = (
        hops.join(late, on=NIC)
        .join(theirs, on=["job_id", "neighbour"])
        .group_by(NIC)
        .agg(waited=(pl.col("between_ns") >= APART * pl.col("late_ns")).all())
    )
    return spread.filter("at_once").join(waited.filter("waited"), on=NIC).select(NIC)


def _in_steps(messages: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add the step of the NIC in which a message starts; leave out those that start in none."""
    spans = steps.select(*STEP, "start_ns", "end_ns").sort("start_ns")
    placed = messages.sort("flow_start_ns").join_asof(
        spans, left_on="flow_start_ns", right_on="start_ns", by=["job_id", "addr"], check_sortedness=False
    )
    return placed.filter(pl.col("flow_start_ns") < pl.col("end_ns"))
