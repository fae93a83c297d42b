"""Undisturbed steps: those by which the pairs of a job are judged where many others have become longer.

While somebody is slow, all others are done early and wait. Their pipelines then fill a small part of the step, and what
they push early goes alone: signs of another kind of pair. What a pair is to its job has not changed.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages.step_division.division import Division

QUICK_STEPS = 0.25
"""Ratio of a job's steps that show how long one takes undisturbed, or that some are disturbed; fewer may by chance."""

DISTURBED_RATIO = 1.2
"""Ratio of its quick steps above which a job's step is disturbed: steps vary by a tenth by themselves."""

ENOUGH_STEPS = 8
"""Steps by which a job is judged at least, if not by all."""


def undisturbed(division: Division) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the steps that tell of jobs of which many are disturbed, and all periods: theirs, for such jobs.

    Returns
    -------
    `job_id`, `step`, which may be empty; and `job_id`, `period_ns` of all jobs
    """
    return _undisturbed(division.job_steps, division.periods)


def _undisturbed(job_steps: pl.DataFrame, periods: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    length = (pl.col("end_ns") - pl.col("end_ns").shift().over("job_id")).cast(pl.Float64)
    steps = job_steps.sort("job_id", "step").with_columns(length=length).drop_nulls("length")
    longest = DISTURBED_RATIO * pl.col("length").quantile(QUICK_STEPS, "lower").over("job_id")
    quick = pl.col("length") <= longest
    disturbed = pl.col("length").quantile(1 - QUICK_STEPS, "higher").over("job_id") > longest
    kept = steps.filter(disturbed & quick & (quick.sum().over("job_id") >= ENOUGH_STEPS))
    own = kept.group_by("job_id").agg(own_ns=pl.col("length").median())
    periods = periods.join(own, on="job_id", how="left")
    return kept.select("job_id", "step"), periods.select("job_id", period_ns=pl.coalesce("own_ns", "period_ns"))


def in_these(rows: pl.DataFrame, steps: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep of some jobs the rows that are in some steps, and all of others.

    Parameters
    ----------
    rows : with `pair` and `step`
    steps : `job_id`, `step`, of some jobs
    pairs : `pair`, `job_id`
    """
    if steps.is_empty():
        return rows
    of_jobs = pairs.select("pair", "job_id").join(steps, on="job_id").select("pair", "step", told=pl.lit(value=True))
    others = ~pl.col("pair").is_in(of_jobs["pair"].unique().implode())
    marked = rows.join(of_jobs, on=["pair", "step"], how="left", maintain_order="left")
    return marked.filter(others | pl.col("told").fill_null(value=False)).drop("told")
