"""Wait excuse: drop slow NICs that may only have waited for a slow neighbour in their ring."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.own_work.own_work import EXCHANGING
from llmprism_tasks.stages.timeline.placement import NIC, STEP
from llmprism_tasks.stages.traffic import nic_pairs

PAIR_ENDS = (("src_addr", "dst_addr"), ("dst_addr", "src_addr"))

SAME_TRANSFER = 0.98
"""Ratio of two neighbours' own times from which both ended with one transfer between them; its start may differ."""

SUCCESSIVE_STARTS = 0.5
"""Share of a NIC's delay by which the transfers of its neighbours must begin one after the other, if the neighbours
waited for that NIC. Where all NICs are late alike, the NIC that is slower by a percent is always the last."""


def excuse_waiting(
    suspects: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Excuse NICs that may only have waited for their neighbours: either end of a transfer can delay its start.

    A NIC waited if all its neighbours are as late as it is, or if it is no later than all of its ring (`common`). It is
    not excused if it begins with all its neighbours at one moment while each neighbour's own transfers begin one after
    the other: then the neighbours waited for it. Where NICs excuse each other, the slow one cannot be told.

    Parameters
    ----------
    suspects : rows as `slow_nics` returns

    Returns
    -------
    the suspects to blame, and the suspects among which the slow one cannot be told
    """
    late = suspects.filter("ringed").select(*NIC, "own_ns", "common")
    sent = nic_pairs.pairs_of(nic_pairs.in_order(evidence.flows), ["job_id", "kind", *nic_pairs.PAIR])
    sent = sent.filter(pl.col("kind") != "pp")
    neighbour = ["job_id", "neighbour"]
    hops = (
        pl.concat(sent.select("job_id", addr=end, neighbour=other) for end, other in PAIR_ENDS)
        .unique()
        .join(late, on=NIC)
        .join(late.select("job_id", neighbour="addr", theirs_ns="own_ns"), on=neighbour, how="left")
    )
    as_late = (pl.col("theirs_ns") >= pl.col("own_ns") * SAME_TRANSFER).fill_null(value=False)
    waits = hops.filter(as_late.all().over(NIC) | pl.col("common"))
    excused = waits.join(_awaited_nics(suspects, waits, evidence, settings), on=NIC, how="anti")
    waiting = excused.join(excused.select("job_id", neighbour="addr").unique(), on=neighbour, how="anti")
    mutual = excused.join(waiting.select(NIC).unique(), on=NIC, how="anti")
    blamed = suspects.join(excused.select(NIC).unique(), on=NIC, how="anti")
    return blamed, suspects.join(mutual.select(NIC).unique(), on=NIC, how="semi")


def layer_exchanging_jobs(evidence: Evidence) -> pl.Series:
    """Return the jobs that exchange tokens or context blocks in every layer (expert or context parallelism)."""
    pairs = nic_pairs.pairs_of(nic_pairs.in_order(evidence.flows), ["job_id", "kind"])
    return pairs.filter(pl.col("kind").is_in(EXCHANGING))["job_id"].unique()


def in_lock_step(evidence: Evidence) -> pl.Expr:
    """Return whether a NIC's job exchanges data in every layer, so that every rank seems as slow as the slow one.

    The expression reads `job_id` and `ringed` (whether compute gaps between collectives were measured).
    """
    return pl.col("ringed") & pl.col("job_id").is_in(layer_exchanging_jobs(evidence).implode())


def _awaited_nics(
    suspects: pl.DataFrame, hops: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings
) -> pl.DataFrame:
    """Return the NICs that neighbours waited for.

    The hops of such a NIC begin together, step after step. The hops of each of its neighbours begin one after the
    other, apart by most of the NIC's delay.
    """
    names = hops.select("job_id", "neighbour").rename({"neighbour": "addr"})
    mine = pl.concat([hops.select(NIC), names]).unique()
    runs = suspects.join(mine, on=NIC, how="semi").select(*NIC, since_ns="start_ns", until_ns="end_ns")
    steps = evidence.steps.join(runs, on=NIC).filter(
        pl.col("start_ns") >= pl.col("since_ns"), pl.col("end_ns") <= pl.col("until_ns")
    )
    sent = nic_pairs.named(evidence.of_jobs(mine["job_id"]).filter(pl.col("kind") != "pp"))
    ends = (
        sent.select("job_id", "flow_start_ns", "flow_end_ns", addr=end, neighbour=other) for end, other in PAIR_ENDS
    )
    begins = _assign_steps(pl.concat(ends), steps).group_by(*STEP, "neighbour").agg(pl.col("flow_start_ns").min())
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
        .agg(waited=(pl.col("between_ns") >= SUCCESSIVE_STARTS * pl.col("late_ns")).all())
    )
    return spread.filter("at_once").join(waited.filter("waited"), on=NIC).select(NIC)


def _assign_steps(messages: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add the step of the NIC in which each message starts; drop messages that start in no step."""
    spans = steps.select(*STEP, "start_ns", "end_ns").sort("start_ns")
    placed = messages.sort("flow_start_ns").join_asof(
        spans, left_on="flow_start_ns", right_on="start_ns", by=["job_id", "addr"], check_sortedness=False
    )
    return placed.filter(pl.col("flow_start_ns") < pl.col("end_ns"))
