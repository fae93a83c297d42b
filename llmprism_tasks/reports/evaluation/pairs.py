"""Pairs compared with the truth: how many of each kind were found, and which kinds were confused."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.reports.evaluation import presence
from llmprism_tasks.reports.evaluation.jobs import Tables, visible

SETTLED_STEPS = 5
"""Steps that must have ended before kinds and degrees are judged: four are the fewest that show a period, and the last
one of a window may still be under way."""

ENDS = ["src_addr", "dst_addr"]
PAIR = ["window_start_ns", "job", *ENDS]


def settled() -> pl.Expr:
    """Return whether a row of `job_scores` has shown enough steps to judge more than its members."""
    return (pl.col("steps") >= SETTLED_STEPS) & ~pl.col("changes")


def asked_pairs(found: Tables, truth: Tables, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return each pair's true kinds and its found kind, for windows in which its job is settled.

    Parameters
    ----------
    found : `windows`, `pairs`
    truth : `truth_pairs`; a pair may have several true kinds, and each of them is right. Pairs that it lacks (start-up,
        control messages) are `other`. Only pairs whose NICs are both the job's in the window are judged, and only at
        their time, `start_ns` to `end_ns`. If the times are not recorded, the truth of a ring that members have joined
        still contains its old pairs; for such a job, pairs that carry nothing are left out
    jobs : as `job_scores` returns

    Returns
    -------
    `window_start_ns`, `job`, `src_addr`, `dst_addr`, `kinds`, `kind` (`other` for a pair that was not found), `right`,
    `absent` (a true pair that was not found at all), `confidence`
    """
    asked = jobs.filter(settled()).select("window_start_ns", "job", "job_id")
    named = asked.join(found["pairs"], on=["window_start_ns", "job_id"]).select(*PAIR, "kind", "confidence")
    present = _present_pairs(found, truth, jobs.select("window_start_ns", "job"))
    both = present.join(asked, on=["window_start_ns", "job"], how="semi").join(
        named, on=PAIR, how="full", coalesce=True
    )
    theirs = _of_followers(found, truth, present, jobs)
    both = (
        both.join(theirs, on=PAIR, how="left")
        .filter(pl.col("kinds").is_not_null() | pl.col("theirs").is_null())
        .with_columns(kinds=pl.when(pl.col("theirs").is_null()).then("kinds").otherwise(_all("kinds", "theirs")))
    )
    if "start_ns" not in truth["truth_pairs"].columns:
        joined = visible(truth).group_by("job").agg(arrivals=pl.col("start_ns").n_unique())
        both = both.join(joined, on="job").filter((pl.col("arrivals") == 1) | pl.col("kind").is_not_null())
    return (
        both.with_columns(
            absent=pl.col("kind").is_null(),
            kinds=pl.col("kinds").fill_null(["other"]),
            kind=pl.col("kind").fill_null("other"),
        )
        .with_columns(right=pl.col("kinds").list.contains(pl.col("kind")))
        .select(*PAIR, "kinds", "kind", "right", "absent", "confidence")
        .sort(PAIR)
    )


def _present_pairs(found: Tables, truth: Tables, asked: pl.DataFrame) -> pl.DataFrame:
    """Return the true pairs of each window whose two ends are the job's then, with their `kinds`."""
    windows = found["windows"].select("window_start_ns", "window_end_ns")
    pairs = asked.join(truth["truth_pairs"], on="job")
    if "start_ns" in pairs.columns:
        pairs = pairs.join(windows, on="window_start_ns").filter(
            pl.col("start_ns") < pl.col("window_end_ns"), pl.col("end_ns") > pl.col("window_start_ns")
        )
    return _of_members(found, truth, pairs).group_by(PAIR).agg(kinds=pl.col("kind").unique().sort())


def _of_members(found: Tables, truth: Tables, pairs: pl.DataFrame) -> pl.DataFrame:
    """Keep the pairs whose two ends are members of the job in the window."""
    windows = found["windows"].select("window_start_ns", "window_end_ns")
    members = presence.members_by_window(visible(truth), windows)
    for end in ENDS:
        pairs = pairs.join(members.rename({"addr": end}), on=["window_start_ns", "job", end], how="semi")
    return pairs


def _of_followers(found: Tables, truth: Tables, present: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the kinds that pairs of a job's NICs have in other true jobs found as the same job: PAIR, `theirs`."""
    called = jobs.drop_nulls("job_id").select("window_start_ns", "job", "job_id")
    others = present.join(called, on=["window_start_ns", "job"]).rename({"job": "other"})
    met = called.join(others, on=["window_start_ns", "job_id"]).filter(pl.col("job") != pl.col("other"))
    return _of_members(found, truth, met).explode("kinds").group_by(PAIR).agg(theirs=pl.col("kinds").unique().sort())


def _all(own: str, others: str) -> pl.Expr:
    return pl.col(own).list.set_union(others).list.sort()


def kind_counts(asked: pl.DataFrame) -> pl.DataFrame:
    """Count pairs by job and kind.

    Parameters
    ----------
    asked : as `asked_pairs` returns

    Returns
    -------
    `job`, `kind`, `found` (called this kind), `right` (of these, correct), `true` (truly of this kind), `met` (of
    these, found with one of their kinds), `absent` (of these, not found at all)
    """
    by_found = asked.group_by("job", "kind").agg(found=pl.len(), right=pl.col("right").sum())
    by_truth = (
        asked.explode("kinds")
        .group_by("job", kind="kinds")
        .agg(true=pl.len(), met=pl.col("right").sum(), absent=pl.col("absent").sum())
    )
    return (
        by_found.join(by_truth, on=["job", "kind"], how="full", coalesce=True)
        .with_columns(pl.col("found", "right", "true", "met", "absent").fill_null(0).cast(pl.Int64))
        .sort("job", "kind")
    )


def precision_recall(counts: pl.DataFrame) -> pl.DataFrame:
    """Return each kind's `found`, `right`, `true`, `met`, `absent`, `precision` and `recall`, over all jobs.

    Precision is NULL if no pair was called this kind, recall if no pair is.
    """
    return (
        counts.group_by("kind")
        .agg(pl.col("found", "right", "true", "met", "absent").sum())
        .with_columns(precision=_ratio("right", "found"), recall=_ratio("met", "true"))
        .sort("kind")
    )


def _ratio(part: str, whole: str) -> pl.Expr:
    return pl.when(pl.col(whole) > 0).then(pl.col(part) / pl.col(whole))


def confusions(asked: pl.DataFrame) -> pl.DataFrame:
    """Count confused kinds: `job`, `true` (kinds, joined by +), `kind` (the wrong one), `pairs`."""
    return (
        asked.filter(~pl.col("right"))
        .group_by("job", "kind", true=pl.col("kinds").list.join("+"))
        .agg(pairs=pl.len().cast(pl.Int64))
        .select("job", "true", "kind", "pairs")
        .sort("job", "true", "kind")
    )
