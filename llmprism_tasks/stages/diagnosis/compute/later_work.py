"""Later work: what a NIC computes after it was late at a step's beginning: as quickly as ever, or longer, too.

Who waits for its input before its first pass, or stands still there, works at its usual pace afterwards. A slow GPU is
slow in all that it computes, and a micro-batch that is longer is so backward as well.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import relative_sigma
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.compute.first_backward import answered, answers
from llmprism_tasks.stages.diagnosis.compute.own_baseline import against_past, quick_steps
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.own_work.own_work import SAME, usual
from llmprism_tasks.stages.timeline.placement import NIC, STEP

MOST = 0.5
"""Ratio of what was late at the beginning by which later work must be longer, if the same made it long."""

LEAST_LATER = 0.1
"""Ratio of the first silence below which all others may be the optimizer's, which no sample and hardly a slow GPU makes
longer. Of four micro-batches, the last pass backward is a sixth."""


def later_work(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Add to the NICs' own work in the window's steps what each computed later in the step.

    Returns
    -------
    the rows of `evidence.work` that have peers, in their order, with `first_ns` (in a pipeline the first pass,
    elsewhere the longest silence, which holds all that comes before the first gradient), `first_excess` over the
    peers', `behind_ns` (by how much they were quicker, 0 at least), `later_ns`, NULL where none was seen (in a pipeline
    the answer to the first gradient, elsewhere all other silences), and `later_excess` (NULL outside pipelines: there
    all members wait for the slowest from one exchange to the next, so that silences are alike)
    """
    work = evidence.once(answered, settings).drop_nulls("excess")
    stages = evidence.members.select("job_id", "addr", "pp_stage").drop_nulls("pp_stage")
    past = _past(evidence, stages, settings)
    # A pass backward is longer than one forward: what leaves sooner is no answer to the gradient.
    answer = pl.when(usual("answer_ns") >= usual("own_ns")).then(pl.col("answer_ns").cast(pl.Float64))
    silent = pl.when(pl.col("later_ns") >= LEAST_LATER * (pl.col("own_ns") - pl.col("later_ns"))).then("later_ns")
    piped_here = pl.col("last_stage").is_not_null()
    # What a first stage sends may wait for a slow one that takes it, so of the middle ones the quicker counts.
    least_later = pl.col("later_ns").quantile(0.5, "lower").over(SAME)
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


def _past(evidence: Evidence, stages: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return what was usual in the pipelines whose NICs are compared with their own past: `STEP`, `usual_ns` of their
    first pass and `usual_later_ns` of their answer.

    Of two replicas, one may be slow itself, and the other one's answer wait for a slow one that takes it.
    """
    work = evidence.once(against_past, settings).filter(pl.col("last_stage").is_not_null())
    quick = evidence.once(quick_steps, settings).join(work, on="job_id", how="semi")
    timed = quick.with_columns(answers(evidence.flows, quick, stages)).drop_nulls("answer_ns")
    before = timed.group_by(NIC).agg(usual_later_ns=pl.col("answer_ns").median())
    return work.select(*STEP, usual_ns=pl.col("own_ns") / (1 + pl.col("excess"))).join(before, on=NIC, how="left")


def at_first(nics: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return which of some NICs are late at the beginning of their steps alone: `job_id`, `addr`, `at_first` (NULL
    where nobody can tell), `behind` (their peers, as a ratio of the step)."""
    return (
        evidence.once(later_work, settings)
        .join(nics, on=NIC, how="semi")
        .group_by(NIC)
        .agg(at_first=late_at_first(settings), behind=(pl.col("behind_ns") / length_ns()).median())
    )


def length_ns() -> pl.Expr:
    """Return how long a step is, ns."""
    return (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)


def late_at_first(settings: DiagnosisSettings) -> pl.Expr:
    """Say whether a NIC is late at the beginning alone: one value for all rows, or each group of them.

    Replicas of a pipeline's stage show how long later work should be. Elsewhere steps do: where the beginning varies
    and later work does not, nothing that slows computing did it.

    Returns
    -------
    NULL where nobody can tell
    """
    by_peers = (
        pl.col("later_excess").median()
        < MOST * pl.col("first_excess").filter(pl.col("later_excess").is_not_null()).median()
    )
    begins, later = relative_sigma(pl.col("first_ns")), relative_sigma(pl.col("later_ns"))
    by_steps = pl.when(begins >= settings.least_effect).then(later < MOST * begins)
    seen = pl.col("later_ns").count()
    return (
        pl.when(pl.col("later_excess").count() >= settings.least_steps)
        .then(by_peers)
        .when(pl.col("last_stage").is_null().all() & (seen >= MOST * pl.len()) & (seen >= settings.least_steps))
        .then(by_steps)
    )
