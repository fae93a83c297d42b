"""Held up: whether the peers of a slow NIC wait while it computes, as the members of a collective do.

Each member of a collective adds its part before any of them can have the whole. So whatever the algorithm, without one
member the others move half of their bytes at most: those by which they collect the parts, but not those by which they
distribute the whole. Members that move most of their bytes between two transfers of a NIC do not wait for it, and they
are not its peers: the end of a pipeline whose pairs were taken for gradients seems to compute for as long as the other
stages exchange micro-batches.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.traffic import nic_pairs


def held_up(nics: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Keep the NICs whose peers wait for them, and those that were not compared with peers by their compute gaps.

    The replicas of a pipeline work side by side until the end of a step, and do not wait for each other before.

    Parameters
    ----------
    nics : slow NICs: `job_id`, `addr`, `component` (of its peers), `start_ns`, `end_ns` (when it was slow), `ringed`
        (whether compute gaps were measured), `by_past` (whether it was compared with its own past alone)
    """
    group = ["job_id", "component"]
    compared = nics.filter("ringed", ~pl.col("by_past")).select("addr", *group, "start_ns", "end_ns")
    peers = evidence.work.join(compared, on=group, how="semi").group_by(group).agg(members=pl.col("addr").unique())
    passed_over = [
        (job_id, addr)
        for addr, job_id, _, start_ns, end_ns, members in compared.join(peers, on=group).iter_rows()
        if _moved_without(addr, members, _sent(evidence, job_id, start_ns, end_ns)) > MAJORITY
    ]
    unawaited = pl.DataFrame(passed_over, schema={"job_id": pl.String, "addr": pl.String}, orient="row")
    return nics.join(unawaited, on=["job_id", "addr"], how="anti", maintain_order="left")


def _sent(evidence: Evidence, job_id: str, start_ns: int, end_ns: int) -> pl.DataFrame:
    """Return what a job sent in an interval."""
    return evidence.flows.filter(pl.col("job_id") == job_id, pl.col("flow_start_ns").is_between(start_ns, end_ns))


def _moved_without(addr: str, members: list[str], flows: pl.DataFrame) -> float:
    """Return the share of what the other members of a group send that begins and ends while a NIC moves nothing.

    Parameters
    ----------
    flows : of one job, with codes for addresses
    """
    own = flows.filter(pl.any_horizontal(pl.col(nic_pairs.PAIR) == addr)).sort("flow_start_ns")
    coded = pl.Series(members, dtype=flows.schema["src_addr"])
    theirs = flows.filter(pl.col("src_addr").is_in(coded.implode()), pl.col("src_addr") != addr)
    starts, until = own["flow_start_ns"].to_numpy(), own["flow_end_ns"].cum_max().to_numpy()
    begins, ends, sizes = (theirs[column].to_numpy() for column in nic_pairs.TIMES)
    before = np.searchsorted(starts, ends, side="right") - 1
    latest = np.maximum(before, 0)
    alone = (before >= 0) & (starts[latest] <= begins) & (until[latest] <= begins)
    return float(sizes[alone].sum() / max(sizes.sum(), 1))
