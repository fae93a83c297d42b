"""Pipeline imbalance: one stage takes longer than the others in all replicas, and the other stages wait for it.

The job may have had the imbalance from its start, so stages of one job are compared with each other, pass by pass.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, sigma_about_zero
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.compute.first_backward import with_first_backward
from llmprism_tasks.stages.diagnosis.compute.slow_compute import slow_nics
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.own_work.first_forward import FORWARD_AND_BACKWARD
from llmprism_tasks.stages.timeline.placement import NIC

STAGE = ["job_id", "pp_stage"]

RECOMPUTATION_RATIO = 4 / 3
"""Ratio by which a pass is longer where the forward pass is recomputed before the backward (Chen and others, 2016)."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the stages whose pass takes longer than that of most stages, in all replicas and nearly all steps.

    Most steps of the job must show it: those in which no pass may hold waiting are no fair sample if they are few.
    No stage works for longer than its step. If its passes would, they hold waiting, or several steps were taken for
    one, and nothing is said of it.

    `score` is the excess divided by the smallest excess that counts. `severity` is the ratio by which the job's steps
    are longer because of the stage. `confidence` is the share of the steps that show it.
    """
    stages = _compare_stages(evidence, settings)
    every = evidence.once(with_first_backward, settings).drop_nulls("last_stage")
    every = every.group_by("job_id").agg(seen=pl.col("step_index").n_unique())
    found = (
        stages.group_by(STAGE)
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("excess", "loss", "pass_ns", "usual_ns", "uneven", "busy").median(),
            longer=(pl.col("excess") > pl.col("uneven")).sum(),
            steps=pl.len(),
        )
        .join(every, on="job_id")
        .filter(
            pl.col("longer") > MAJORITY * pl.col("seen"),
            pl.col("longer") >= settings.least_steps,
            pl.col("longer") >= settings.persistence * pl.col("steps"),
            pl.col("loss") >= settings.least_effect,
            pl.col("busy") <= 1 + pl.col("uneven"),
        )
        .filter(pl.col("loss") == pl.col("loss").max().over("job_id"))
    )
    blamed = evidence.once(slow_nics, settings).select("job_id").unique()
    stages_of = dict(stages.group_by("job_id").agg(pl.col("pp_stage").unique().sort()).iter_rows())
    rows = found.join(blamed, on="job_id", how="anti").sort(STAGE).iter_rows(named=True)
    return pl.DataFrame([_row(row, stages_of[row["job_id"]]) for row in rows], schema=FINDING_SCHEMA)


def _compare_stages(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Compare the stages in each step in which all stages were measured; one row per job, step and stage.

    The quickest replica represents a stage: one slow replica is no imbalance. A message of the first stage may wait for
    a slow replica of the next, so the first stage must also take longer than the slowest replica of the others. Jobs
    are left out if the steps of a stage are cut within the first micro-batch, as when parameters are gathered
    meanwhile, or amid the passes, so that a gradient comes first: with fewer micro-batches than stages, the longest
    silence of a pair lies between its forward and its backward passes.
    """
    passes = _stage_passes(evidence, settings)
    first, step = pl.col("pp_stage") == 0, ["job_id", "step_index"]
    others = pl.col("pass_ns").filter(~first)
    # A message of the first stage may wait for the slowest other stage: only time beyond that is its own work.
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


def _stage_passes(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return how long the stages work on a micro-batch; one row per job, step and stage.

    Columns: `pass_ns` (quickest replica), `slowest_ns` (replica with the longest median), `uneven` (excess that is
    still ordinary), `share`, `busy` (ratio of the step that all passes take), `start_ns`, `end_ns`.

    Where replies to gradients do not show the backward pass of every stage, backward passes are estimated from forward
    passes. The first stage is then left out, because its forward pass includes the optimizer and loading of samples.
    Where its reply is measured, it must be longer by the noise of the other stages' passes as well.
    """
    stages = evidence.members.select("job_id", "addr", "pp_stage").drop_nulls("pp_stage")
    stages = stages.with_columns(last=pl.col("pp_stage") == pl.col("pp_stage").max().over("job_id"))
    work = evidence.once(with_first_backward, settings).drop_nulls("last_stage").join(stages, on=["job_id", "addr"])
    first, last = pl.col("pp_stage") == 0, pl.col("last")
    amid = (pl.col("gradient_ns") < pl.col("begins_ns")).fill_null(value=False)
    whole = (first | (pl.col("entered") & ~amid)).mean().over(STAGE).min().over("job_id") >= settings.persistence
    # Without replicas nothing synchronises at a step's end, so that a step may begin among its first micro-batches.
    replicated = pl.col("component").is_not_null().any().over("job_id")
    timed = work.filter(whole, replicated, ~_may_wait(work))
    seen = (pl.col("answer_ns").is_not_null() | first | last).mean().over(STAGE).min().over(
        "job_id"
    ) >= settings.persistence
    forward, backward = pl.col("own_ns"), pl.col("answer_ns")
    measured = pl.when(last).then(forward).when(first).then(backward).otherwise(forward + backward)
    reckoned = pl.when("last_stage").then(forward).when(~first).then(FORWARD_AND_BACKWARD * forward)
    longer = pl.when("seen").then(settings.uneven_last).otherwise((1 + settings.uneven_last) * RECOMPUTATION_RATIO - 1)
    off = (pl.col("pass_ns") / pl.col("pass_ns").median().over(STAGE) - 1).abs()
    deviation = sigma_about_zero(pl.col("off").filter(~first)).over("job_id")
    counted = forward * pl.when("last_stage").then(1).otherwise(FORWARD_AND_BACKWARD)
    # A message of the first stage may wait for the longest of the micro-batches at the other stages.
    waits = pl.when(first).then(settings.sigmas * deviation).otherwise(0.0)
    return (
        timed.with_columns(seen=seen)
        .with_columns(pass_ns=pl.when("seen").then(measured).otherwise(reckoned))
        .drop_nulls("pass_ns")
        .with_columns(
            off=off, busy=pl.col("share") * pl.col("pass_ns") / counted, slowest_ns=pl.col("pass_ns").median().over(NIC)
        )
        .with_columns(uneven=pl.when(last).then(longer).otherwise(settings.uneven_stage) + waits)
        .group_by("job_id", "step_index", "pp_stage")
        .agg(
            pl.col("pass_ns", "busy").min(),
            pl.col("slowest_ns").max(),
            pl.col("share").median(),
            pl.col("uneven").first(),
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
        )
    )


def _may_wait(work: pl.DataFrame) -> pl.Series:
    """Return which passes may contain waiting for the next stage, which still synchronised when their input came.

    A slow gradient ring, or a slow NIC in it, would then look like work of the stage before.
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
        "explanation": f"Stage {found['pp_stage']} takes {1 + found['excess']:.2f} times as long for a micro-batch as "
        f"{'any other' if found['pp_stage'] == 0 else 'most'} of the {len(stages)} measured stages "
        f"({found['pass_ns'] / 1e6:.0f} ms against {found['usual_ns'] / 1e6:.0f} ms), in all replicas "
        f"and in {found['longer']} of {found['steps']} steps. The other stages wait for it, and steps take "
        f"{1 + severity:.2f} times as long as with evenly distributed layers.",
        "confidence": found["longer"] / found["steps"],
        "peers": [str(stage) for stage in stages if stage != found["pp_stage"]],
    }
