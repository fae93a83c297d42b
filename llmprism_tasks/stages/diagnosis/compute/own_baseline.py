"""Own baseline: compare a NIC's work with the quick steps of its own job, where its peers may be slow as well.

Of four replicas two may be slow; of two stages with two replicas, one replica of each. Then neither the median of the
peers nor the spread among them shows the usual work. The job's earlier, quicker steps do.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import LEAST_VOTERS, MAJORITY, sigma_about_zero
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import HEALTHY_STEP_QUANTILE, Evidence
from llmprism_tasks.stages.diagnosis.own_work.own_work import PEER_COLUMNS, own_work
from llmprism_tasks.stages.diagnosis.step_times import slow_run
from llmprism_tasks.stages.timeline.placement import NIC

FEW_REPLICAS = 4
"""Replicas of which two are half. With more replicas the peers show what is usual; if half of those are late, the cause
is in the network."""

COMPARABLE_STEPS = [*NIC, "last_stage"]
"""Columns that are equal in comparable steps. In the last stage the measured work includes the backward pass."""


def against_past(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Compare NICs with their own past, in jobs whose steps became longer as the work of half of their NICs did.

    Returns
    -------
    rows of `evidence.work` with `excess` over the NIC's own past, `noise` (robust deviation of the job's quick steps,
    as a ratio) and `common` (whether even the least late replica is about as late). In pipelines, what all replicas of
    a stage have in common belongs to the stage and is taken off `excess`.
    """
    longer = evidence.once(slow_run.find, settings).select("job_id", since_ns="start_ns")
    if longer.is_empty():
        return evidence.work.clear().with_columns(noise=pl.lit(0.0), common=pl.lit(value=False))
    stages = pl.col("addr").filter(pl.col("last_stage").is_not_null()).n_unique()
    few = evidence.work.group_by("job_id").agg(pl.col("members").max(), stages=stages)
    # Stages without replicas show what their samples are, which only `lone_against_past` takes off.
    lone = (pl.col("members") == 1) & (pl.col("stages") >= LEAST_VOTERS)
    few = few.filter(pl.col("members") <= FEW_REPLICAS, ~lone)
    work = evidence.work.join(longer, on="job_id").join(few, on="job_id", how="semi")
    ratio = pl.col("pace") / pl.col("usual")
    slow = pl.col("start_ns") >= pl.col("since_ns")
    late = pl.col("ratio").filter(slow).median() >= 1 + settings.least_effect
    least = pl.when(pl.col("members") > 1).then(pl.col("ratio").min().over(PEER_COLUMNS)).otherwise(1.0)
    of_stage = pl.when(pl.col("last_stage").is_not_null()).then("least").otherwise(1.0)
    more = (pl.col("ratio") / pl.col("least")).filter(slow).median().over(NIC)
    compared = work.join(_usual_pace(evidence, settings), on=COMPARABLE_STEPS, nulls_equal=True).with_columns(
        ratio=ratio
    )
    many = compared.group_by(NIC).agg(late=late).group_by("job_id").agg(pl.col("late").mean())
    return (
        # With less, the NICs that work as before outvote the slow ones.
        compared.join(many.filter(pl.col("late") >= MAJORITY), on="job_id", how="semi")
        .with_columns(least=least)
        .with_columns(excess=pl.col("ratio") / of_stage - 1, common=more < 1 + settings.least_effect)
        .drop("since_ns", "usual", "ratio", "least")
    )


def lone_against_past(work: pl.DataFrame) -> pl.DataFrame:
    """Compare NICs that have no peers with their own past.

    The stages of a pipeline pass the same micro-batches. By what a step's first passes are longer in most stages, its
    samples are longer, and that is no NIC's own. Of two stages nobody can tell.

    Parameters
    ----------
    work : as `Evidence.work`

    Returns
    -------
    the same rows, with `excess` over the NIC's own past where there are no peers (NULL for a NIC all of whose steps are
    of the window), `by_past`: whether there are none, and `samples`: how many times as long as usual the step's samples
    make a pass, 1 where nobody can tell
    """
    lone = pl.col("excess").is_null()
    step = ["job_id", "step_index", "piped"]
    shared = pl.col("piped") & (pl.len().over(step) >= LEAST_VOTERS)
    # Stages differ for ever, as by the loss that the last one computes, too. That is taken off first.
    of_stage = (pl.col("pace") / pl.col("pace").median().over(step)).alias("of_stage")
    usual = pl.col("of_stage").quantile(HEALTHY_STEP_QUANTILE).over(NIC)
    typical = pl.col("like_others").quantile(0.5, "lower").over(step)
    alone = pl.col("pace") / pl.col("samples")
    past = alone / alone.quantile(HEALTHY_STEP_QUANTILE).over(NIC) - 1
    return (
        work.with_columns(piped=lone & pl.col("last_stage").is_not_null())
        .with_columns(of_stage)
        .with_columns(like_others=pl.col("pace") / usual)
        .with_columns(typical=pl.when(shared).then(typical))
        .with_columns(samples=(pl.col("typical") / pl.col("typical").median().over("job_id")).fill_null(1.0))
        .with_columns(
            excess=pl.coalesce("excess", pl.when(~pl.col("current").all().over(NIC)).then(past)), by_past=lone
        )
        .drop("like_others", "of_stage", "piped", "typical")
    )


def quick_steps(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the steps about as short as the job's lower quartile, for jobs that have become slower."""
    length = pl.col("end_ns") - pl.col("start_ns")
    longer = evidence.steps.join(evidence.once(slow_run.find, settings), on="job_id", how="semi")
    return longer.filter(length <= (1 + settings.least_effect) * length.quantile(HEALTHY_STEP_QUANTILE).over(NIC))


def _usual_pace(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the pace of NICs in quick steps: `COMPARABLE_STEPS`, `usual`, and `noise`, the robust deviation in their
    job."""
    steps = evidence.once(quick_steps, settings)
    work = own_work(evidence.heard(evidence.of_jobs(steps["job_id"])), steps, evidence.groups, hosts=evidence.members)
    seen = work.filter(pl.len().over(COMPARABLE_STEPS) >= settings.least_steps).with_columns(
        usual=pl.col("pace").median().over(COMPARABLE_STEPS)
    )
    off = sigma_about_zero(pl.col("pace") / pl.col("usual") - 1).over("job_id")
    return seen.with_columns(noise=off).select(*COMPARABLE_STEPS, "usual", "noise").unique()
