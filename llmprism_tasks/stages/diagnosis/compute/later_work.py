"""Later work: whether a NIC that is late at the beginning of a step also computes slowly in the rest of the step.

A NIC that waits for input before its first pass, or is stalled there, works at its usual pace afterwards. A slow GPU is
slow in everything it computes. A longer micro-batch is longer in its backward pass, too.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, relative_sigma
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.compute.first_backward import first_backward_times, with_first_backward
from llmprism_tasks.stages.diagnosis.compute.own_baseline import against_past, quick_steps
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.own_work.own_work import PEER_COLUMNS, usual
from llmprism_tasks.stages.timeline.placement import NIC, STEP

OPTIMIZER_SHARE = 0.1
"""Share of the first compute gap below which all other gaps may belong to the optimizer. A longer sample does not
lengthen the optimizer, and a slow GPU hardly does. With four micro-batches, the last backward pass is a sixth."""


def later_work(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Add to the NICs' own work in the window's steps how long each NIC computed later in the step.

    Returns
    -------
    the rows of `evidence.work` that have peers, in their order, with

    - `first_ns`: in a pipeline the first pass; elsewhere the longest compute gap, which holds all work before the first
      gradient
    - `first_excess`: the excess of `first_ns` over the peers', as a ratio
    - `behind_ns`: how much longer `first_ns` is than usual, at least 0
    - `later_ns`: in a pipeline the reply to the first gradient; elsewhere all other compute gaps; NULL where none was
      seen
    - `later_excess`: the excess of `later_ns`; NULL outside pipelines, where every member waits for the slowest between
      exchanges and the gaps of all members are alike
    """
    work = evidence.once(with_first_backward, settings).drop_nulls("excess")
    stages = evidence.members.select("job_id", "addr", "pp_stage").drop_nulls("pp_stage")
    past = _usual_past_work(evidence, stages, settings)
    # A backward pass is longer than a forward pass: a message that leaves sooner is no reply to the gradient.
    answer = pl.when(usual("answer_ns") >= usual("own_ns")).then(pl.col("answer_ns").cast(pl.Float64))
    silent = pl.when(pl.col("later_ns") >= OPTIMIZER_SHARE * (pl.col("own_ns") - pl.col("later_ns"))).then("later_ns")
    piped_here = pl.col("last_stage").is_not_null()
    # The message of a first stage may wait for a slow receiver, so the lower of the two middle values counts.
    least_later = pl.col("later_ns").quantile(0.5, "lower").over(PEER_COLUMNS)
    return (
        work.join(past, on=STEP, how="left", maintain_order="left")
        .with_columns(
            first_ns=pl.col("own_ns") - pl.col("later_ns").fill_null(0.0),
            later_ns=pl.when(piped_here).then(answer).otherwise(silent),
        )
        .with_columns(
            usual_ns=pl.coalesce("usual_ns", usual("first_ns")),
            usual_later_ns=pl.coalesce("usual_later_ns", least_later),
        )
        .with_columns(
            first_excess=pl.col("first_ns") / pl.col("usual_ns") - 1,
            behind_ns=(pl.col("first_ns") - pl.col("usual_ns")).clip(lower_bound=0),
            later_excess=pl.when(piped_here).then(pl.col("later_ns") / pl.col("usual_later_ns") - 1),
        )
        .drop("answer_ns", "usual_ns", "usual_later_ns")
    )


def _usual_past_work(evidence: Evidence, stages: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the usual work of pipeline NICs that are compared with their own past.

    Columns: `STEP`, `usual_ns` (first pass) and `usual_later_ns` (reply to the first gradient). Of two replicas, one
    may be slow itself, and the reply of the other may wait for a slow receiver.
    """
    work = evidence.once(against_past, settings).filter(pl.col("last_stage").is_not_null())
    quick = evidence.once(quick_steps, settings).join(work, on="job_id", how="semi")
    timed = quick.with_columns(first_backward_times(evidence.flows, quick, stages)).drop_nulls("answer_ns")
    before = timed.group_by(NIC).agg(usual_later_ns=pl.col("answer_ns").median())
    return work.select(*STEP, usual_ns=pl.col("own_ns") / (1 + pl.col("excess"))).join(before, on=NIC, how="left")


def at_first(nics: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return which NICs are late only at the beginning of their steps.

    Columns: `job_id`, `addr`, `at_first` (NULL where it cannot be decided), `behind` (the delay, as a ratio of the
    step).
    """
    return (
        evidence.once(later_work, settings)
        .join(nics, on=NIC, how="semi")
        .group_by(NIC)
        .agg(at_first=late_at_first(settings), behind=(pl.col("behind_ns") / length_ns()).median())
    )


def length_ns() -> pl.Expr:
    """Return the length of a step, ns."""
    return (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)


def late_at_first(settings: DiagnosisSettings) -> pl.Expr:
    """Return whether a NIC is late only at the beginning of its steps; one value per group of rows.

    In a pipeline, the replicas of a stage show how long later work should be. Elsewhere the steps themselves do: if the
    beginning varies and later work does not, the cause is not slow computing. NULL where it cannot be decided.
    """
    by_peers = (
        pl.col("later_excess").median()
        < MAJORITY * pl.col("first_excess").filter(pl.col("later_excess").is_not_null()).median()
    )
    begins, later = relative_sigma(pl.col("first_ns")), relative_sigma(pl.col("later_ns"))
    by_steps = pl.when(begins >= settings.least_effect).then(later < MAJORITY * begins)
    seen = pl.col("later_ns").count()
    return (
        pl.when(pl.col("later_excess").count() >= settings.least_steps)
        .then(by_peers)
        .when(pl.col("last_stage").is_null().all() & (seen >= MAJORITY * pl.len()) & (seen >= settings.least_steps))
        .then(by_steps)
    )
