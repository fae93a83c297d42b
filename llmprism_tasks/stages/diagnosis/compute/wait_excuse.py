"""Wait excuse: drop slow NICs that may only have waited for a slow neighbour in their ring."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.own_work.own_work import EXCHANGING
from llmprism_tasks.stages.timeline.placement import NIC
from llmprism_tasks.stages.traffic import nic_pairs

PAIR_ENDS = (("src_addr", "dst_addr"), ("dst_addr", "src_addr"))

SAME_TRANSFER = 0.98
"""Ratio of two neighbours' own times from which both ended with one transfer between them; its start may differ."""


def excuse_waiting(suspects: pl.DataFrame, evidence: Evidence) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Excuse NICs that may only have waited for their neighbours: either end of a transfer can delay its start.

    A NIC waited if all its neighbours are as late as it is, or if it is no later than all of its ring (`common`). Where
    NICs excuse each other, the slow one cannot be told.

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
    excused = hops.filter(as_late.all().over(NIC) | pl.col("common"))
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
