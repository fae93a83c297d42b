"""The layout: degrees of each kind of parallelism, and the order of pipeline stages."""

from __future__ import annotations

import operator

import polars as pl

from llmprism_tasks.reports.evaluation.jobs import FOUND_JOB, WINDOW_JOB, Tables
from llmprism_tasks.reports.evaluation.pairs import settled

DEGREES = ("tp", "pp", "dp", "cp", "ep", "sharded")
STAGES = "pp_stage"

RANKS = ("tp", "pp", "dp", "cp")
"""Degrees whose product is the number of ranks; experts live within those of `dp` and `cp`."""

Verdicts = pl.DataFrame


def degree_verdicts(found: Tables, truth: Tables, jobs: pl.DataFrame) -> Verdicts:
    """Judge each degree of each job in the windows in which it is settled.

    Parameters
    ----------
    found : `jobs`; a degree without a column is not asked for
    truth : `layouts`; a degree that is not told is not asked for. Where a job has several layouts, or its members
        change, the one counts whose ranks are as many as its members, at its time if that is told
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
    """Keep the layouts that a job has in the window, where their times are told; one if there are two the same."""
    if "start_ns" in layouts.columns:
        spans = layouts.join(windows.select("window_start_ns", "window_end_ns"), on="window_start_ns")
        layouts = spans.filter(
            pl.col("start_ns") < pl.col("window_end_ns"), pl.col("end_ns") > pl.col("window_start_ns")
        ).sort(*WINDOW_JOB, "start_ns")
    return layouts.unique(WINDOW_JOB, keep="last", maintain_order=True)


def stage_verdicts(found: Tables, truth: Tables, jobs: pl.DataFrame) -> Verdicts:
    """Judge the order of pipeline stages, of jobs with more than one, in the windows in which they are settled.

    Parameters
    ----------
    found : `job_members`, asked only if it has `pp_stage`
    truth : `truth_ranks`, asked only of jobs it has: `job`, `addr`, `pp_index`
    jobs : as `job_scores` returns

    Returns
    -------
    as `degree_verdicts`, with `degree` = `pp_stage`, `true` the number of members with a stage and `found` how many of
    them have the right one. `right` if all have; `unknown` if none has any
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
