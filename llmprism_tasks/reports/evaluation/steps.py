"""Steps compared with the truth: found, missing and extra steps, and the errors of their ends and durations."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.reports.evaluation.jobs import FOUND_JOB, Tables

NEAR_PERIODS = 0.3
"""Ratio of the period within which a found end is matched with a true one."""

END = [*FOUND_JOB, "found_ns"]
"""Columns that identify a found step."""


def matched_steps(found: Tables, truth: Tables, jobs: pl.DataFrame, owned: pl.DataFrame) -> pl.DataFrame:
    """Match each true step with an end of a found step of the same job, after removing their typical offset.

    Parameters
    ----------
    found : `windows`, `steps`; steps that end outside all windows are left out
    truth : `truth_steps`
    jobs : as `job_scores` returns
    owned : as `owners` returns. Steps of a found job that is no true job's best match count for its owner, so that
        steps found twice or in silence are extra

    Returns
    -------
    all true and all found steps: `job` (NULL for steps of no true job), `step` (NULL for a found end near no true one),
    `true_ns`, `found_ns` (NULL for a step that was not found). Of several ends near a step, the nearest is matched and
    the others are extra. If several true jobs were found as one, because they follow each other on the same NICs, an
    end near a step of one of them is not extra for the others, and an end near no step is extra for the first of them
    only. Ends before or after all windows, apart from the offset, are in no truth and are left out.
    """
    asked = truth["truth_steps"].join(jobs.select("job").unique(), on="job", how="semi")
    began = pl.max_horizontal(pl.col("end_ns").shift().over("job", order_by="end_ns"), "start_ns")
    true = (
        _within(asked.with_columns(began_ns=pl.when("optimized").then(began)), found["windows"])
        .select("job", "step", "began_ns", true_ns="end_ns")
        .sort("true_ns", "job")
    )
    ends = _ends(found, jobs, owned)
    offsets = _nearest(true, ends.rename({"found_ns": "near_ns"}), "true_ns", "near_ns")
    offset = offsets.group_by("job").agg(offset_ns=(pl.col("near_ns") - pl.col("true_ns")).median().cast(pl.Int64))
    period = true.group_by("job").agg(period_ns=pl.col("true_ns").diff().median())
    shifted = ends.join(offset, on="job", how="left").with_columns(shifted_ns=pl.col("found_ns") - pl.col("offset_ns"))
    apart = (pl.col("shifted_ns") - pl.col("true_ns")).abs()
    candidates = (
        _nearest(shifted.drop_nulls("shifted_ns"), true, "shifted_ns", "true_ns")
        .join(period, on="job", how="left")
        .with_columns(apart=apart)
        .sort("job", "step", "apart", "found_ns")
    )
    inside = pl.col("shifted_ns").is_between("began_ns", "true_ns").fill_null(value=False)
    near = pl.col("period_ns").is_null() | (pl.col("apart") <= NEAR_PERIODS * pl.col("period_ns")) | inside
    own = near & pl.struct("job", "step").is_first_distinct()
    first = ~pl.col("own") & (pl.col("job") == pl.col("job").min().over(END)) & ~pl.col("own").any().over(END)
    seen = pl.col("shifted_ns").is_between(
        found["windows"]["window_start_ns"].min(), found["windows"]["window_end_ns"].max()
    )
    belongs = (
        candidates.with_columns(own=own)
        .filter(pl.col("own") | (first & seen))
        .select("job", "found_ns", step=pl.when("own").then("step"))
    )
    nobodys = shifted.filter(pl.col("shifted_ns").is_null()).select(
        "job", "found_ns", step=pl.lit(None, true.schema["step"])
    )
    everything = true.drop("began_ns").join(belongs, on=["job", "step"], how="full", coalesce=True)
    return pl.concat([everything, nobodys], how="diagonal").sort("job", "true_ns", "found_ns")


def _within(steps: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Keep the steps that end in a window."""
    spans = windows.select("window_start_ns", "window_end_ns").sort("window_start_ns")
    ends = steps.sort("end_ns").join_asof(spans, left_on="end_ns", right_on="window_start_ns", strategy="backward")
    return ends.filter(pl.col("end_ns") < pl.col("window_end_ns"))


def _ends(found: Tables, jobs: pl.DataFrame, owned: pl.DataFrame) -> pl.DataFrame:
    """Return the ends of found steps under their true job's name: `job`, `found_ns`."""
    best = jobs.drop_nulls("job_id").select(*FOUND_JOB, "job")
    others = owned.join(best, on=FOUND_JOB, how="anti").select(*FOUND_JOB, "job")
    return (
        found["steps"]
        .filter(pl.col("addr").is_null())
        .join(pl.concat([best, others]), on=FOUND_JOB)
        .select("job", *FOUND_JOB, found_ns="end_ns")
        .sort("found_ns", "job")
    )


def _nearest(left: pl.DataFrame, right: pl.DataFrame, at: str, near: str) -> pl.DataFrame:
    """Join each row with the nearest row of the same job on the right."""
    return left.sort(at).join_asof(
        right.sort(near),
        left_on=at,
        right_on=near,
        by="job",
        strategy="nearest",
        coalesce=False,
        check_sortedness=False,
    )


def duration_errors(matched: pl.DataFrame) -> pl.DataFrame:
    """Compare durations, which are differences of consecutive ends: `job`, `step`, `error` (as a ratio).

    Parameters
    ----------
    matched : as `matched_steps` returns
    """
    true, found = (pl.col(column).diff().over("job", order_by="step") for column in ("true_ns", "found_ns"))
    return (
        matched.drop_nulls("step")
        .with_columns(
            error=((found - true) / true).abs(), follows=pl.col("step").diff().over("job", order_by="step") == 1
        )
        .filter("follows")
        .drop_nulls("error")
        .select("job", "step", "error")
    )


def end_errors(matched: pl.DataFrame) -> pl.DataFrame:
    """Compare ends after removing the job's typical offset: `job`, `step`, `error_ns` (0 or more).

    Parameters
    ----------
    matched : as `matched_steps` returns
    """
    offset = pl.col("found_ns") - pl.col("true_ns")
    return matched.drop_nulls(["step", "found_ns"]).select(
        "job", "step", error_ns=(offset - offset.median().over("job")).abs()
    )


def step_counts(matched: pl.DataFrame) -> pl.DataFrame:
    """Count each job's `true` steps, the `found` ones among them, and `extra` found steps."""
    return (
        matched.group_by("job")
        .agg(
            true=pl.col("step").count().cast(pl.Int64),
            found=(pl.col("step").is_not_null() & pl.col("found_ns").is_not_null()).sum().cast(pl.Int64),
            extra=pl.col("step").is_null().sum().cast(pl.Int64),
        )
        .sort("job")
    )


def spread(values: pl.Series) -> dict[str, float | None]:
    """Return `median`, 95th percentile (`p95`) and `max` of errors; None without any."""
    figures = (values.median(), values.quantile(0.95, interpolation="linear"), values.max())
    names = ("median", "p95", "max")
    return {name: None if one is None else float(one) for name, one in zip(names, figures, strict=True)}  # type: ignore[arg-type]
