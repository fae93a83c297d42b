"""Jobs and members with what their pairs tell: layout, figures, and how sure all of it is."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import Settings
from llmprism_tasks.stages import degrees, figures, lock_step, rails
from llmprism_tasks.stages.division import Division
from llmprism_tasks.stages.figures import PAIR
from llmprism_tasks.stages.groups import NIC, REDUCING, gradient_groups
from llmprism_tasks.stages.pp_stages import pp_stages

UNSURE = 0.5
"""What is left of the confidence in a training job whose layout is not known."""

HIDDEN = 0.9
"""What is left of it where context parallelism may stay inside hosts: few jobs have sequences that long, but their
traffic is that of as many replicas."""


def laid_out(
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    topology: pl.DataFrame,
    kinds: pl.DataFrame,
    present: pl.DataFrame,
    division: Division | None,
    settings: Settings,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return `jobs` and `job_members` with all columns that the layout gives them.

    Parameters
    ----------
    kinds : `job_id`, `src_addr`, `dst_addr`, `kind`, `confidence`; with a division also `bytes_per_step`
    present : the window's bulk flows with `job_id`
    division : the flows in steps; without it there are no figures and no stages
    """
    peers = None if division is None else lock_step.peers(division.in_steps, kinds, job_members)
    laid = degrees.degrees(kinds, job_members, topology, peers)
    everyone = rails.with_silent(kinds.filter(pl.col("kind").is_in(REDUCING)), job_members, topology)
    groups = gradient_groups(kinds, everyone, topology)
    members = _labelled(job_members, groups)
    told = [laid, figures.explained(present, kinds), _sureness(kinds, present)]
    if division is not None:
        told += [
            *_figures(division, kinds, job_members, settings),
            figures.gradients(kinds, groups, everyone),
        ]
        stages = pp_stages(division.in_steps, division.job_steps, kinds, laid, groups, job_members)
        members = members.drop("pp_stage", strict=False).join(stages, on=NIC, how="left")
    known = jobs.with_columns(pl.coalesce("recognition_confidence", "confidence").alias("recognition_confidence"))
    columns = {name for frame in told for name in frame.columns} - {"job_id"}
    known = known.drop(columns, strict=False)
    for frame in told:
        known = known.join(frame, on="job_id", how="left")
    return known.with_columns(confidence=_confidence(known.columns)), members


def _figures(
    division: Division, kinds: pl.DataFrame, job_members: pl.DataFrame, settings: Settings
) -> list[pl.DataFrame]:
    """Return what is measured of each job, in tables by `job_id`."""
    return [
        figures.durations(division.job_steps),
        figures.messages(division.in_steps, kinds, settings.parallelism),
        figures.sharded(division.in_steps, kinds, division.periods, settings.parallelism),
        figures.stepping(division.endpoints, job_members),
        figures.evenness(division.in_steps, kinds),
    ]


def _labelled(job_members: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Number the gradient groups of each job by their first members: `dp_group`."""
    first = pl.col("addr").min().over("job_id", "group")
    labels = groups.with_columns(first=first).select(
        *NIC, dp_group=(pl.col("first").rank("dense").over("job_id") - 1).cast(pl.Int32)
    )
    return job_members.drop("dp_group", strict=False).join(labels, on=NIC, how="left")


def _sureness(kinds: pl.DataFrame, present: pl.DataFrame) -> pl.DataFrame:
    """Return `job_id`, `sureness`: the confidence of its pairs' kinds, each weighing as much as it sent."""
    sent = present.group_by(PAIR).agg(pl.col("bytes").sum())
    weighed = kinds.filter(pl.col("kind") != "other").join(sent, on=PAIR)
    return weighed.group_by("job_id").agg(
        sureness=(pl.col("confidence") * pl.col("bytes")).sum() / pl.col("bytes").sum()
    )


def _confidence(columns: list[str]) -> pl.Expr:
    """Return how sure a job's row is: recognition's confidence, and for a training job times that of its layout."""
    evenness = pl.col("evenness").fill_null(1.0) if "evenness" in columns else pl.lit(1.0)
    hidden = pl.when(pl.col("cp").is_null()).then(HIDDEN).otherwise(1.0)
    laid = pl.col("agreement") * pl.col("sureness").fill_null(1.0) * evenness * hidden
    sure = pl.when(pl.col("dp").is_not_null()).then(laid).otherwise(UNSURE)
    return (
        pl.when(pl.col("kind") == "training")
        .then(pl.col("recognition_confidence") * sure)
        .otherwise("recognition_confidence")
    )
