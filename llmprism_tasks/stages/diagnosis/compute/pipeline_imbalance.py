"""Pipeline imbalance: a stage that takes longer than the others in all replicas, so that all others wait for it.

It may have been so ever since, so stages of one job are compared with each other, pass by pass.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from llmprism_tasks.numerics.robust import sigma_about_zero
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.compute.first_backward import answered
from llmprism_tasks.stages.diagnosis.compute.slow_compute import slow_nics
from llmprism_tasks.stages.diagnosis.evidence import ROW, Evidence
from llmprism_tasks.stages.diagnosis.own_work.first_forward import FORWARD_AND_BACKWARD
from llmprism_tasks.stages.timeline.placement import NIC

STAGE = ["job_id", "pp_stage"]

RECOMPUTED = 4 / 3
"""Ratio by which a pass is longer where the forward is computed again before the backward (Chen and others, 2016)."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the stages whose pass takes longer than that of most stages of the job, in all replicas and most steps.

    `score` is the excess over the least that counts; `severity` the ratio by which steps are longer for it;
    `confidence` how many of the steps show it.
    """
    stages = _compared(evidence, settings)
    found = (
        stages.group_by(STAGE)
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("excess", "loss", "pass_ns", "usual_ns", "uneven").median(),
            longer=(pl.col("excess") > pl.col("uneven")).sum(),
            steps=pl.len(),
        )
        .filter(
            pl.col("longer") >= settings.least_steps,
            pl.col("longer") >= settings.persistence * pl.col("steps"),
            pl.col("loss") >= settings.least_effect,
        )
        .filter(pl.col("loss") == pl.col("loss").max().over("job_id"))
    )
    blamed = evidence.once(slow_nics, settings).select("job_id").unique()
    stages_of = dict(stages.group_by("job_id").agg(pl.col("pp_stage").unique().sort()).iter_rows())
    rows = found.join(blamed, on="job_id", how="anti").sort(STAGE).iter_rows(named=True)
    return pl.DataFrame([_row(row, stages_of[row["job_id"]]) for row in rows], schema=ROW)


def _compared(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Compare the stages of each step, where all were seen: a row per job, step and stage.

    The quickest replica stands for a stage: one slow replica is no imbalance. What the first stage sends may wait for
    one, so it must take longer than the slowest as well. Left out are jobs of which a stage's steps are cut within the
    first micro-batch, where parameters are gathered meanwhile.
    """
    passes = _passes(evidence, settings)
    first, step = pl.col("pp_stage") == 0, ["job_id", "step_index"]
    others = pl.col("pass_ns").filter(~first)
    # What the first stage sends may wait for the slowest of the others: only what takes longer than that is its own.
    usual = pl.when(first).then(others.max().over(step)).otherwise(others.quantile(0.5, "lower").over(step))
    slowest = pl.col("slowest_ns").filter(~first).max().over(step)
    waits = (1 + settings.uneven_stage) * slowest / pl.col("usual_ns") - 1
    return (
        passes.filter(pl.len().over(step) > 1, pl.len().over(step) == pl.col("pp_stage").n_unique().over("job_id"))
        .with_columns(usual_ns=usual)
        .with_columns(
            excess=pl.col("pass_ns") / pl.col("usual_ns") - 1,
            uneven=pl.when(first).then(pl.max_horizontal("uneven", waits)).otherwise("uneven"),
        )
        .with_columns(loss=pl.col("excess") / (1 + pl.col("excess")) * pl.col("share"))
    )


def _passes(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return how long the stages work on a micro-batch: a row per job, step and stage, with `pass_ns`, `slowest_ns` (of
    the replica that mostly takes longest), `uneven` (the excess that is ordinary), `share`, `start_ns` and `end_ns`.

    Where answers to gradients do not show all stages' passes backward, they are reckoned from those forward, and the
    first stage, whose pass forward begins with the optimizer and the next samples, is left out. Its answer must be
    longer by the noise of the others' passes as well.
    """
    stages = evidence.members.select("job_id", "addr", "pp_stage").drop_nulls("pp_stage")
    stages = stages.with_columns(last=pl.col("pp_stage") == pl.col("pp_stage").max().over("job_id"))
    work = evidence.once(answered, settings).drop_nulls("last_stage").join(stages, on=["job_id", "addr"])
    first, last = pl.col("pp_stage") == 0, pl.col("last")
    whole = (first | pl.col("entered")).mean().over(STAGE).min().over("job_id") >= settings.persistence
    timed = work.filter(whole, ~_may_wait(work))
    seen = (pl.col("answer_ns").is_not_null() | first | last).mean().over(STAGE).min().over(
        "job_id"
    ) >= settings.persistence
    forward, backward = pl.col("own_ns"), pl.col("answer_ns")
    measured = pl.when(last).then(forward).when(first).then(backward).otherwise(forward + backward)
    reckoned = pl.when("last_stage").then(forward).when(~first).then(FORWARD_AND_BACKWARD * forward)
    longer = pl.when("seen").then(settings.uneven_last).otherwise((1 + settings.uneven_last) * RECOMPUTED - 1)
    off = (pl.col("pass_ns") / pl.col("pass_ns").median().over(STAGE) - 1).abs()
    deviation = sigma_about_zero(pl.col("off").filter(~first)).over("job_id")
    # What the first stage sends may wait for the longest of the micro-batches that others work on.
    waits = pl.when(first).then(settings.sigmas * deviation).otherwise(0.0)
    return (
        timed.with_columns(seen=seen)
        .with_columns(pass_ns=pl.when("seen").then(measured).otherwise(reckoned))
        .drop_nulls("pass_ns")
        .with_columns(off=off, slowest_ns=pl.col("pass_ns").median().over(NIC))
        .with_columns(uneven=pl.when(last).then(longer).otherwise(settings.uneven_stage) + waits)
        .group_by("job_id", "step_index", "pp_stage")
        .agg(
            pl.col("pass_ns").min(),
            pl.col("slowest_ns").max(),
            pl.col("share").median(),
            pl.col("uneven").first(),
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
        )
    )


def _may_wait(work: pl.DataFrame) -> pl.Series:
    """Tell which passes may have waited for the next stage: some of it still synchronised when their input came.

    A ring that is slow, or a slow NIC in it, then seems to be work of the stage before.
    """
    ready = work.group_by("job_id", "step_index", pp_stage=pl.col("pp_stage") - 1).agg(
        ready_ns=pl.col("start_ns").max()
    )
    known = work.join(ready, on=["job_id", "step_index", "pp_stage"], how="left", maintain_order="left")
    return known.select((pl.col("ready_ns") > pl.col("begins_ns")).fill_null(value=False)).to_series()


def _row(found: dict[str, Any], stages: list[int]) -> dict[str, Any]:
    severity = found["loss"] / (1 - found["loss"])
    return {
        "job_id": found["job_id"],
        "kind": "pipeline_imbalance",
        "subject_type": "pp_stage",
        "subject": str(found["pp_stage"]),
        "start_ns": found["start_ns"],
        "end_ns": found["end_ns"],
        "score": found["excess"] / found["uneven"],
        "severity": severity,
        "explanation": f"Stage {found['pp_stage']} works {1 + found['excess']:.2f} times as long on a micro-batch as "
        f"{'any other' if found['pp_stage'] == 0 else 'most'} of the {len(stages)} stages that were timed "
        f"({found['pass_ns'] / 1e6:.0f} ms against {found['usual_ns'] / 1e6:.0f} ms), in all replicas "
        f"and {found['longer']} of {found['steps']} steps; the others wait for it, and steps take "
        f"{1 + severity:.2f} times as long as if layers were spread evenly.",
        "confidence": found["longer"] / found["steps"],
        "peers": [str(stage) for stage in stages if stage != found["pp_stage"]],
    }
