"""Undisturbed steps: those by which the pairs of a job are judged where most others have become far longer.

While somebody is slow, all others are done early and wait. Their pipelines then fill a small part of the step, and what
they push early goes alone: signs of another kind of pair. What a pair is to its job has not changed.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages.division import Division

QUARTER = 0.25
"""Ratio of a job's steps that show how long one takes undisturbed; fewer may be quick by chance."""

FAR_LONGER = 1.5
"""Ratio of its quick steps above which a job's typical step is disturbed: jitter and uneven samples are far below."""


def undisturbed(division: Division) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the steps that others outnumber because somebody was slow in these: `job_id`, `step`; and the periods of
    all jobs, `job_id`, `period_ns`, which for jobs with such steps are those of them."""
    length = (pl.col("end_ns") - pl.col("end_ns").shift().over("job_id")).cast(pl.Float64)
    steps = division.job_steps.sort("job_id", "step").with_columns(length=length).drop_nulls("length")
    longest = FAR_LONGER * pl.col("length").quantile(QUARTER, "lower").over("job_id")
    kept = steps.filter(pl.col("length").median().over("job_id") > longest, pl.col("length") <= longest)
    own = kept.group_by("job_id").agg(own_ns=pl.col("length").median())
    periods = division.periods.join(own, on="job_id", how="left")
    return kept.select("job_id", "step"), periods.select("job_id", period_ns=pl.coalesce("own_ns", "period_ns"))
