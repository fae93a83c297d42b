"""Waiting: who may only have been late because a neighbour was."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.placement import NIC

ENDS = (("src_addr", "dst_addr"), ("dst_addr", "src_addr"))

SAME_TRANSFER = 0.98
"""Ratio of two neighbours' own times above which both ended with one transfer between them, give or take its start."""


def not_waiting(suspects: pl.DataFrame, evidence: Evidence) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Excuse who may only have waited for its neighbours: a transfer can begin late because of either end.

    Whose neighbours are all as late waited for them. Where they waited for it as well, nobody can tell.

    Returns
    -------
    those to blame, and those of whom nobody can tell
    """
    late = suspects.filter("ringed").select(*NIC, "own_ns")
    sent = evidence.flows.filter(pl.col("kind") != "pp")
    neighbour = ["job_id", "neighbour"]
    hops = (
        pl.concat(sent.select("job_id", addr=end, neighbour=other) for end, other in ENDS)
        .unique()
        .join(late, on=NIC)
        .join(late.select("job_id", neighbour="addr", theirs_ns="own_ns"), on=neighbour, how="left")
    )
    as_late = (pl.col("theirs_ns") >= pl.col("own_ns") * SAME_TRANSFER).fill_null(value=False)
    excused = hops.filter(as_late.all().over(NIC))
    waiting = excused.join(excused.select("job_id", neighbour="addr").unique(), on=neighbour, how="anti")
    mutual = excused.join(waiting.select(NIC).unique(), on=NIC, how="anti")
    blamed = suspects.join(excused.select(NIC).unique(), on=NIC, how="anti")
    return blamed, suspects.join(mutual.select(NIC).unique(), on=NIC, how="semi")
