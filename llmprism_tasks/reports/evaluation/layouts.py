"""Layouts compared with the truth: the degree of each kind of parallelism, and the order of pipeline stages."""

from __future__ import annotations

import operator

import polars as pl

from llmprism_tasks.reports.evaluation.jobs import FOUND_JOB, WINDOW_JOB, Tables
from llmprism_tasks.reports.evaluation.pairs import settled

DEGREES = ("tp", "pp", "dp", "cp", "ep", "sharded")
STAGES = "pp_stage"

RANKS = ("tp", "pp", "dp", "cp")
"""Degrees whose product is the number of ranks; experts are distributed over the ranks of `dp` and `cp`."""

Verdicts = pl.DataFrame


def degree_verdicts(found: Tables, truth: Tables, jobs: pl.DataFrame) -> Verdicts:
    """Judge each degree of each job, in windows in which the job is settled.

    Parameters
    ----------
    found : `jobs`; degrees without a column are left out
    truth : `layouts`; degrees that it lacks are left out. If a job has several layouts, or its members change, the
        layout counts whose ranks are as many as the members, at its time if that is recorded
    jobs : as `job_scores` returns

    Returns
    -------
    `window_start_ns`, `job`, `degree`, `found`, `true` (numbers; `sharded` is 0 or 1), `settled`, `verdict`: `right`,
    `wrong`, or `unknown` when the found one is NULL
    """
    layouts = truth["layouts"]
    degrees = [one for one in DEGREES if one in found["jobs"].columns and one in layouts.columns]
    ranks = pl.reduce(operator.mul, [pl.lit(1), *(pl.col(one) for one in RANKS if one in layouts.columns)])
    times = [name for name in ("start_ns", "end_ns") if name in layouts.columns]
    true = layouts.select(
        "job", *times, *(pl.col(degree).cast(pl.Int64) for degree in degrees), members=ranks.cast(pl.Int64)
    )
    named = found["jobs"].select(*FOUND_JOB, *(pl.col(degree).cast(pl.Int64) for degree in degrees))
    asked = jobs.select(*WINDOW_JOB, "job_id", pl.col("members").cast(pl.Int64), settled=settled())
    keys = [*WINDOW_JOB, "settled"]
    right = _of_their_time(asked.join(true, on=["job", "members"]), found["windows"]).unpivot(
        degrees, index=keys, variable_name="degree"
    )
    called = asked.join(named, on=FOUND_JOB, how="left").unpivot(degrees, index=keys, variable_name="degree")
    verdict = (
        pl.when(pl.col("found").is_null())
        .then(pl.lit("unknown"))
        .when(pl.col("found") == pl.col("true"))
        .then(pl.lit("right"))
        .otherwise(pl.lit("wrong"))
    )
    return (
        right.rename({"value": "true"})
        .drop_nulls("true")
        .join(called.rename({"value": "found"}), on=[*keys, "degree"])
        .select(*WINDOW_JOB, "degree", pl.col("found", "true").cast(pl.Int64), "settled", verdict=verdict)
        .sort(*WINDOW_JOB, "degree")
    )


def _of_their_time(layouts: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Keep the layouts that a job has in the window, if their times are recorded; one of two equal ones."""
    if "start_ns" in layouts.columns:
        spans = layouts.join(windows.select("window_start_ns", "window_end_ns"), on="window_start_ns")
        layouts = spans.filter(
            pl.col("start_ns") < pl.col("window_end_ns"), pl.col("end_ns") > pl.col("window_start_ns")
        ).sort(*WINDOW_JOB, "start_ns")
    return layouts.unique(WINDOW_JOB, keep="last", maintain_order=True)


def stage_verdicts(found: Tables, truth: Tables, jobs: pl.DataFrame) -> Verdicts:
    """Judge the order of pipeline stages of jobs with several stages, in windows in which the job is settled.

    Parameters
    ----------
    found : `job_members`; nothing is judged if it lacks `pp_stage`
    truth : `truth_ranks` (`job`, `addr`, `pp_index`); other jobs are left out
    jobs : as `job_scores` returns

    Returns
    -------
    as `degree_verdicts`, with `degree` = `pp_stage`, `true` the number of members with a stage and `found` the number
    of those with the right stage. `right` if all are right; `unknown` if no member has a stage
    """
    ranks, members = truth["truth_ranks"], found["job_members"]
    empty = STAGES not in members.columns
    stages = members.select(*FOUND_JOB, "addr", stage=pl.lit(None, pl.Int64) if empty else pl.col(STAGES))
    piped = ranks.filter(pl.col("pp_index").max().over("job") > 0).select("job", "addr", "pp_index")
    asked = jobs.filter(settled() & (not empty)).select(*WINDOW_JOB, "job_id")
    counted = (
        asked.join(piped, on="job")
        .join(stages, on=[*FOUND_JOB, "addr"], how="left")
        .group_by(WINDOW_JOB)
        .agg(
            found=(pl.col("stage") == pl.col("pp_index")).sum().cast(pl.Int64),
            true=pl.len().cast(pl.Int64),
            named=pl.col("stage").count(),
        )
    )
    verdict = (
        pl.when(pl.col("named") == 0)
        .then(pl.lit("unknown"))
        .when(pl.col("found") == pl.col("true"))
        .then(pl.lit("right"))
        .otherwise(pl.lit("wrong"))
    )
    return counted.select(
        *WINDOW_JOB, "found", "true", degree=pl.lit(STAGES), settled=pl.lit(value=True), verdict=verdict
    ).select(*WINDOW_JOB, "degree", "found", "true", "settled", "verdict")


def verdict_counts(verdicts: Verdicts, *by: str) -> pl.DataFrame:
    """Count the settled verdicts: `right`, `wrong`, `unknown` windows by `degree` and further columns."""
    return (
        verdicts.filter("settled")
        .group_by(*by, "degree")
        .agg((pl.col("verdict") == one).sum().cast(pl.Int64).alias(one) for one in ("right", "wrong", "unknown"))
        .sort(*by, "degree")
    )
