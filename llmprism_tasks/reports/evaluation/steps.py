"""Steps: which were found, which were invented, and how far their ends and durations are from the true ones."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.reports.evaluation.jobs import FOUND_JOB, Tables

NEAR = 0.3
"""Ratio of the period within which an end that was found is the end of that step."""

END = [*FOUND_JOB, "found_ns"]
"""What a found step is known by."""


def matched_steps(found: Tables, truth: Tables, jobs: pl.DataFrame, owned: pl.DataFrame) -> pl.DataFrame:
    """Find each true step's end among the ends of the job's own steps, once their typical distance is taken off.

    Parameters
    ----------
    found : `windows`, `steps`; steps that end in none of the windows are not asked for
    truth : `truth_steps`
    jobs : as `job_scores` returns
    owned : as `owners` returns; steps of a found job that is nobody's best match are its owner's, so that what is
        found twice or in silence is extra

    Returns
    -------
    every true step and every found one: `job` (NULL for steps of nobody), `step` (NULL for a found end near no true
    one), `true_ns`, `found_ns` (NULL for a step that was not found). Of several ends near one step the nearest is its,
    the others are near none. Where several true jobs were found as one (they follow each other on the same NICs), a
    step near that of any of them is not the others' to explain, and one near none is the first one's. What ended before
    or after all windows, but for the offset, is in no truth.
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
    near = pl.col("period_ns").is_null() | (pl.col("apart") <= NEAR * pl.col("period_ns")) | inside
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
    """Keep the steps that end in some window."""
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
    """Join each row with its job's nearest on the right."""
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
    """Compare durations, as differences of consecutive ends: `job`, `step`, `error` (a ratio of the true one).

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
    """Compare ends, once the job's typical offset is taken off: `job`, `step`, `error_ns` (0 or more).

    Parameters
    ----------
    matched : as `matched_steps` returns
    """
    offset = pl.col("found_ns") - pl.col("true_ns")
    return matched.drop_nulls(["step", "found_ns"]).select(
        "job", "step", error_ns=(offset - offset.median().over("job")).abs()
    )


def step_counts(matched: pl.DataFrame) -> pl.DataFrame:
    """Count each job's `true` steps, how many were `found`, and how many found ones are `extra`."""
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
