"""Announcements: control messages by which a member tells the others that it has come to an exchange, and waits.

A collective moves data when its last member has come. A member that comes before says so to those it exchanges data
with: it is ready to receive, or has something to send. So who announces itself early waits, and who is late announces
nothing before data flow. What two members send each other at once tells nothing: answers and acknowledgements come from
a host or a NIC whose GPU may still compute.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import TrafficSettings
from llmprism_tasks.stages.liveness.last_exchange import CLOCK_ERROR_NS
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.opposite import opposite

KINDS = ("cp", "dp", "ep")
"""Kinds of exchanges that begin when all their members have come."""

ANNOUNCEMENTS_PER_RECORD = 0.1
"""Messages of one size for each record of data from which a pair sends them for its exchanges: in captures there is one
for each burst of up to ten records. What is chatted has any size."""

MEASURED_COLUMNS = ["pair", "job_id", "kind", *nic_pairs.PAIR, *nic_pairs.TIMES]
"""Columns of flows of which own work is measured."""


def announced(every: pl.DataFrame, flows: pl.DataFrame, settings: TrafficSettings) -> pl.DataFrame:
    """Return the announcements of members, as flows of no bytes with the columns `MEASURED_COLUMNS`.

    Parameters
    ----------
    every : all flows inside jobs, as `nic_pairs.inside_jobs` returns
    flows : the bulk flows among them, with `kind`
    """
    data = flows.filter(pl.col("kind").is_in(KINDS))
    known = data.group_by("pair").agg(pl.col("kind").first(), records=pl.len(), since_ns=pl.col("flow_start_ns").min())
    small = every.filter(pl.col("bytes") <= settings.control_bytes).join(known, on="pair")
    often = (pl.len() >= ANNOUNCEMENTS_PER_RECORD * pl.col("records").first()).over("pair", "bytes")
    told = small.filter(often, pl.col("flow_start_ns") >= pl.col("since_ns")).sort("flow_start_ns")
    if told.is_empty():
        return told.select(MEASURED_COLUMNS)
    until_ns = pl.col("flow_end_ns").cum_max().over(nic_pairs.PAIR)
    answering = every.join(opposite(told.select(nic_pairs.PAIR).unique()), on=nic_pairs.PAIR, how="semi")
    back = answering.sort("flow_start_ns").with_columns(until_ns=until_ns)
    back = opposite(back, "flow_start_ns", "until_ns").sort("back_flow_start_ns")
    met = told.with_columns(at_ns=pl.col("flow_start_ns") + CLOCK_ERROR_NS).join_asof(
        back, left_on="at_ns", right_on="back_flow_start_ns", by=nic_pairs.PAIR, check_sortedness=False
    )
    answers = pl.col("back_until_ns") >= pl.col("flow_start_ns") - CLOCK_ERROR_NS
    return met.filter(~answers.fill_null(value=False)).with_columns(bytes=pl.lit(0, pl.Int64)).select(MEASURED_COLUMNS)
