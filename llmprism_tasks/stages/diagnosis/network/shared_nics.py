"""Shared NICs: hops that are slow because others move data through the NICs at their ends."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.network.losses import Losses
from llmprism_tasks.stages.traffic import nic_pairs


def is_shared(slow: pl.DataFrame, losses: Losses, evidence: Evidence, settings: DiagnosisSettings) -> bool:
    """Return whether most slow hops are slow because a NIC at their ends moves more for others than in healthy steps.

    A NIC at a third of its usual pace lacks two thirds of its rate. It is shared if others, such as a copy of files,
    move half of that or more while it is slow, beyond what they move in healthy steps. A copy between two members takes
    the way of their training, and shows as more bytes than their healthy steps have.

    Parameters
    ----------
    slow : slow hops of one job, as `hop_comparison.compared` returns
    """
    job_id = str(slow["job_id"][0])
    ends = pl.concat([slow.select("ratio", "usual", addr=end) for end in nic_pairs.PAIR])
    ends = ends.group_by("addr").agg(pl.col("ratio", "usual").median())
    steps = losses.course(job_id, slow, settings).with_columns(late=pl.col("slow") & pl.col("felt"))
    training = nic_pairs.named(evidence.flows.filter(pl.col("job_id") == job_id))
    own = pl.concat([training.select("flow_start_ns", "bytes", addr=end) for end in nic_pairs.PAIR])
    beside = evidence.beside.filter(pl.col("job_id") == job_id)
    length = pl.col("end_ns") - pl.col("start_ns")
    late_ns = steps.filter("late").select(length.mean()).item() or 1.0
    # Others move so much in a time, and training so much in a step.
    times = steps.group_by("late").agg(beside=length.sum(), own=pl.len() * pl.lit(late_ns))
    for name, moved in (("beside", beside), ("own", own)):
        rate = pl.col("bytes") / pl.col(name) * pl.when("late").then(1).otherwise(-1)
        rates = (
            _bytes_by_nic(moved, steps).join(times, on="late").group_by("addr").agg(rate.sum().alias(f"{name}_more"))
        )
        ends = ends.join(rates, on="addr", how="left")
    more = pl.sum_horizontal("beside_more", "own_more")  # of what is NULL, nothing
    # Of the rate that it lacks, others take most: it is not slow by itself.
    shared = ends.filter(more * pl.col("usual") >= MAJORITY * (1 - 1 / pl.col("ratio")))["addr"].implode()
    return bool(slow.select(pl.any_horizontal(pl.col(nic_pairs.PAIR).is_in(shared)).mean() >= MAJORITY).item())


def _bytes_by_nic(flows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the bytes that each NIC moved in late steps, and in others: `addr`, `late`, `bytes`.

    Parameters
    ----------
    flows : `addr`, `flow_start_ns`, `bytes`
    steps : `start_ns`, `end_ns`, `late`, in order
    """
    starts = flows["flow_start_ns"].to_numpy()
    at = np.searchsorted(steps["start_ns"].to_numpy(), starts, side="right") - 1
    inside = (at >= 0) & (starts < steps["end_ns"].to_numpy()[at])
    placed = flows.with_columns(steps["late"].gather(np.maximum(at, 0))).filter(pl.Series(inside))
    return placed.group_by("addr", "late").agg(pl.col("bytes").sum())
