"""How right the results are: what a warehouse holds, compared with the truth about a run.

Works for the captures in `tests/data/real` and for what `llmprism simulate` writes: both tell the truth in the same
tables. Everything is counted by window, since each window's answer is used on its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

Tables = Mapping[str, pl.DataFrame]

SETTLED = 5
"""Steps that must have ended before a kind or a degree is asked for: four are the fewest that show a period, and a
window's last may still be under way."""

NEAR = 0.3
"""Ratio of the period within which an end that was found is the end of that step."""


def read_truth(folder: Path) -> dict[str, pl.DataFrame]:
    """Read the tables of a `truth/` folder, each under its file's name.

    Steps are judged by their `grad_end_ns` where it is told: no flow shows when an optimizer has done with its numbers.
    """
    tables = {file.stem: pl.read_parquet(file) for file in sorted(folder.glob("*.parquet"))}
    tables |= {file.stem: pl.read_csv(file) for file in sorted(folder.glob("layouts.csv"))}
    if "grad_end_ns" in tables["truth_steps"].columns:
        tables["truth_steps"] = tables["truth_steps"].with_columns(end_ns="grad_end_ns")
    return tables


def job_scores(found: Tables, truth: Tables, windows: pl.DataFrame) -> pl.DataFrame:
    """Say for each window and true job which job was found, and whether its members are exactly the true ones.

    Parameters
    ----------
    found : the tables `job_members` and `jobs`
    truth : `truth_jobs`, `truth_steps`; jobs that leave no flows (`visible` false) are not asked for
    windows : `window_start_ns`, `window_end_ns`

    Returns
    -------
    `window_start_ns`, `job`, `job_id` (the one that shares most members; NULL if none does), `exact`, `steps` (true
    ones that ended before the window's end), `tp`, `pp`, `dp`. Windows count from the one in which a job's
    first step began to the one in which its last ended.
    """
    members = truth["truth_jobs"]
    if "visible" in members.columns:
        members = members.filter(pl.col("visible") & (pl.col("kind") == "training"))
    members = members.select("job", "addr").unique()
    sizes = members.group_by("job").agg(members=pl.len())
    steps = truth["truth_steps"]
    at_work = (
        steps.group_by("job")
        .agg(since_ns=pl.col("start_ns").min(), until_ns=pl.col("end_ns").max(), ends=pl.col("end_ns"))
        .join(sizes, on="job")
        .join(windows.select("window_start_ns", "window_end_ns"), how="cross")
        .filter(pl.col("since_ns") < pl.col("window_end_ns"), pl.col("until_ns") > pl.col("window_start_ns"))
        .explode("ends")
        .group_by("window_start_ns", "job", "members")
        .agg(steps=(pl.col("ends") < pl.col("window_end_ns")).sum())
    )
    shared = (
        found["job_members"].join(members, on="addr", how="left").group_by("window_start_ns", "job_id", "job").len()
    )
    best = (
        shared.with_columns(size=pl.col("len").sum().over("window_start_ns", "job_id"))
        .drop_nulls("job")
        .sort("window_start_ns", "job", "len", "size", "job_id", descending=[False, False, True, False, False])
        .group_by("window_start_ns", "job", maintain_order=True)
        .first()
    )
    exact = (pl.col("len") == pl.col("members")) & (pl.col("size") == pl.col("members"))
    return (
        at_work.join(best, on=["window_start_ns", "job"], how="left")
        .with_columns(exact=exact.fill_null(value=False))
        .join(
            found["jobs"].select("window_start_ns", "job_id", "tp", "pp", "dp"),
            on=["window_start_ns", "job_id"],
            how="left",
        )
        .select("window_start_ns", "job", "job_id", "exact", "steps", "tp", "pp", "dp")
        .sort("window_start_ns", "job")
    )


def invented_jobs(found: Tables, truth: Tables) -> pl.DataFrame:
    """Return the jobs, window by window, that share no member with a true one."""
    known = found["job_members"].join(truth["truth_jobs"], on="addr", how="semi")
    return found["jobs"].join(known, on=["window_start_ns", "job_id"], how="anti")


def kind_scores(found: Tables, truth: Tables, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return precision and recall of each kind of pair, over the windows in which a job is settled.

    Parameters
    ----------
    found : the table `pairs`
    truth : `truth_pairs`; a pair may have several true kinds, and any of them is right. Pairs that are not there
        (start-up, control messages) are `other`
    jobs : as `job_scores` returns

    Returns
    -------
    `kind`, `found`, `true`, `right` (pairs, each window's counted), `precision`, `recall`
    """
    ends = ["src_addr", "dst_addr"]
    asked = jobs.filter(pl.col("steps") >= SETTLED).select("window_start_ns", "job", "job_id")
    kinds = truth["truth_pairs"].group_by("job", *ends).agg(kinds=pl.col("kind").unique())
    named = asked.join(found["pairs"], on=["window_start_ns", "job_id"]).select("window_start_ns", "job", *ends, "kind")
    both = asked.join(kinds, on="job").join(named, on=["window_start_ns", "job", *ends], how="full", coalesce=True)
    both = both.with_columns(
        kinds=pl.col("kinds").fill_null(["other"]), kind=pl.col("kind").fill_null("other")
    ).with_columns(right=pl.col("kinds").list.contains(pl.col("kind")))
    by_found = both.group_by("kind").agg(found=pl.len(), right=pl.col("right").sum())
    by_truth = both.explode("kinds").group_by(kind="kinds").agg(true=pl.len(), met=pl.col("right").sum())
    return (
        by_found.join(by_truth, on="kind", how="full", coalesce=True)
        .with_columns(pl.col("found", "right", "true", "met").fill_null(0))
        .with_columns(precision=pl.col("right") / pl.col("found"), recall=pl.col("met") / pl.col("true"))
        .select("kind", "found", "true", "right", "precision", "recall")
        .sort("kind")
    )


def degree_scores(jobs: pl.DataFrame, truth: Tables) -> pl.DataFrame:
    """Return for each job the share of its settled windows in which `tp`, `pp` and `dp` are all right.

    Parameters
    ----------
    jobs : as `job_scores` returns
    truth : `layouts`: `job`, `tp`, `pp`, `dp`
    """
    right = pl.all_horizontal(pl.col(degree).eq_missing(pl.col(f"true_{degree}")) for degree in ("tp", "pp", "dp"))
    layouts = truth["layouts"].select("job", pl.col("tp", "pp", "dp").name.prefix("true_"))
    return (
        jobs.filter(pl.col("steps") >= SETTLED)
        .join(layouts, on="job")
        .group_by("job")
        .agg(windows=pl.len(), right=right.mean())
        .sort("job")
    )


def matched_steps(found: Tables, truth: Tables, jobs: pl.DataFrame) -> pl.DataFrame:
    """Find each true step's end among the ends of the job's own steps, once their typical distance is taken off.

    Parameters
    ----------
    found : the table `steps`
    truth : `truth_steps`
    jobs : as `job_scores` returns

    Returns
    -------
    every true step and every found one: `job`, `step` (NULL for a found end near no true one), `true_ns`, `found_ns`
    (NULL for a step that was not found). Of several ends near one step the nearest is its, the others are near none.
    """
    names = jobs.drop_nulls("job_id").select("window_start_ns", "job_id", "job")
    ends = (
        found["steps"]
        .filter(pl.col("addr").is_null())
        .join(names, on=["window_start_ns", "job_id"])
        .select("job", found_ns="end_ns")
        .sort("found_ns")
    )
    true = truth["truth_steps"].select("job", "step", true_ns="end_ns").sort("true_ns")
    period = true.group_by("job").agg(period_ns=pl.col("true_ns").diff().median())
    nearest = true.join_asof(
        ends.with_columns(near_ns="found_ns"),
        left_on="true_ns",
        right_on="near_ns",
        by="job",
        strategy="nearest",
        check_sortedness=False,
    )
    offset = nearest.group_by("job").agg(offset_ns=(pl.col("found_ns") - pl.col("true_ns")).median())
    candidates = (
        ends.join(offset, on="job")
        .with_columns(shifted_ns=(pl.col("found_ns") - pl.col("offset_ns")).round().cast(pl.Int64))
        .sort("shifted_ns")
        .join_asof(
            true.with_columns(near_ns="true_ns"),
            left_on="shifted_ns",
            right_on="near_ns",
            by="job",
            strategy="nearest",
            check_sortedness=False,
        )
        .join(period, on="job")
        .with_columns(apart=(pl.col("shifted_ns") - pl.col("true_ns")).abs())
    )
    own = (pl.col("apart") <= NEAR * pl.col("period_ns")) & (
        pl.col("apart") == pl.col("apart").min().over("job", "step")
    )
    belongs = candidates.with_columns(step=pl.when(own).then("step")).select("job", "step", "found_ns")
    return true.join(belongs, on=["job", "step"], how="full", coalesce=True).sort("job", "true_ns", "found_ns")


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


def step_scores(matched: pl.DataFrame) -> pl.DataFrame:
    """Return for each job its `true` steps, how many were `found`, how many are `extra`, and the durations' errors.

    Parameters
    ----------
    matched : as `matched_steps` returns
    """
    counts = matched.group_by("job").agg(
        true=pl.col("step").count(),
        found=(pl.col("step").is_not_null() & pl.col("found_ns").is_not_null()).sum(),
        extra=pl.col("step").is_null().sum(),
    )
    return counts.join(error_figures(duration_errors(matched), by="job"), on="job", how="left").sort("job")


def error_figures(errors: pl.DataFrame, *, by: str) -> pl.DataFrame:
    """Return the errors' `median`, 95th percentile (`p95`) and `worst` for each value of a column."""
    return errors.group_by(by).agg(
        median=pl.col("error").median(),
        p95=pl.col("error").quantile(0.95, interpolation="linear"),
        worst=pl.col("error").max(),
    )
