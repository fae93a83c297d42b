"""Jobs compared with the truth: the found job of each true one, whether its NICs are exact, and invented jobs."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from llmprism_tasks.reports.evaluation import presence

Tables = Mapping[str, pl.DataFrame]

WINDOW_JOB = ["window_start_ns", "job"]
FOUND_JOB = ["window_start_ns", "job_id"]


def job_scores(found: Tables, truth: Tables) -> pl.DataFrame:
    """Return for each window and true job the found job, and whether its members are exactly the true ones.

    Windows count in which a step of the job is under way. If the members change within a window, each of the sets is
    right.

    Parameters
    ----------
    found : `windows`, `jobs`, `job_members`
    truth : as `normal` returns; only training that leaves flows counts

    Returns
    -------
    `window_start_ns`, `job`, `members` (number of true members), `changes` (whether they change in the window), `steps`
    (that ended before the window's end with these members), `hours` (the window's length), `job_id` (the found job with
    most of the members; NULL if none has any), `exact`, `done` (whether the window was run to its end), and the found
    job's `kind` and `confidence`
    """
    windows, members = found["windows"], visible(truth)
    working = presence.at_work(truth["truth_steps"].join(members, on="job", how="semi"), windows)
    sets = presence.sets_by_window(working, presence.member_sets(members))
    latest = sets.group_by(WINDOW_JOB).agg(
        pl.col("since_ns").max(),
        members=pl.col("members").sort_by("since_ns").last(),
        changes=pl.len() > 1,
    )
    working = presence.steps_ended(working.join(latest, on=WINDOW_JOB), truth["truth_steps"])
    best = _best(found, presence.members_by_window(members, windows))
    exact = best.join(sets, on=[*WINDOW_JOB, "sum"]).filter(pl.col("size") == pl.col("members"))
    exact = exact.select(*WINDOW_JOB, exact=pl.lit(value=True)).unique()
    hours = (pl.col("window_end_ns") - pl.col("window_start_ns")) / 3_600e9
    return (
        working.join(best, on=WINDOW_JOB, how="left")
        .join(exact, on=WINDOW_JOB, how="left")
        .join(found["jobs"].select(*FOUND_JOB, "kind", "confidence"), on=FOUND_JOB, how="left")
        .join(windows.select("window_start_ns", done=pl.col("status") == "done"), on="window_start_ns")
        .with_columns(pl.col("exact").fill_null(value=False), hours=hours)
        .select(*WINDOW_JOB, "members", "changes", "steps", "hours", "done", "job_id", "exact", "kind", "confidence")
        .sort(WINDOW_JOB)
    )


def visible(truth: Tables) -> pl.DataFrame:
    """Return the members of the training jobs that leave flows."""
    return truth["truth_jobs"].filter(pl.col("visible") & (pl.col("kind") == "training"))


def _best(found: Tables, present: pl.DataFrame) -> pl.DataFrame:
    """Return the found job with most members of each window's true jobs; of several the smallest."""
    members = found["job_members"].select(*FOUND_JOB, "addr")
    sizes = members.group_by(FOUND_JOB).agg(size=pl.len(), sum=presence.mark().sum())
    shared = members.join(present, on=["window_start_ns", "addr"]).group_by(*FOUND_JOB, "job").len()
    return (
        shared.join(sizes, on=FOUND_JOB)
        .sort(*WINDOW_JOB, "len", "size", "job_id", descending=[False, False, True, False, False])
        .group_by(WINDOW_JOB, maintain_order=True)
        .first()
        .select(*WINDOW_JOB, "job_id", "size", "sum")
    )


def owners(found: Tables, truth: Tables) -> pl.DataFrame:
    """Return the true job of each found job: the one with most of its members in the window or, without any, ever.

    Returns
    -------
    `window_start_ns`, `job_id`, `kind`, `job` (NULL if no member ever trains), `present` (whether the true job has any
    of these members in this window)
    """
    members = found["job_members"].select(*FOUND_JOB, "addr")
    trained = visible(truth)
    present = presence.members_by_window(trained, found["windows"]).with_columns(present=pl.lit(value=True))
    ever = trained.select("job", "addr").unique()
    best = (
        members.join(ever, on="addr")
        .join(present, on=["window_start_ns", "job", "addr"], how="left")
        .group_by(*FOUND_JOB, "job")
        .agg(pl.len(), present=pl.col("present").fill_null(value=False).sum())
        .sort(*FOUND_JOB, "present", "len", "job", descending=[False, False, True, True, False])
        .group_by(FOUND_JOB, maintain_order=True)
        .first()
    )
    return (
        found["jobs"]
        .select(*FOUND_JOB, "kind")
        .join(best.select(*FOUND_JOB, "job", present=pl.col("present") > 0), on=FOUND_JOB, how="left")
        .with_columns(pl.col("present").fill_null(value=False))
        .sort(FOUND_JOB)
    )


def invented_jobs(found: Tables, truth: Tables, owned: pl.DataFrame) -> pl.DataFrame:
    """Return the found jobs that are called training and have no training member.

    Parameters
    ----------
    owned : as `owners` returns

    Returns
    -------
    `window_start_ns`, `job_id`, `job` (NULL unless the job is over, or has not begun), `who`: `another tenant` (of kind
    `other`), `an invisible job` (training inside its hosts), `a job that is over` or `nobody`
    """
    called = owned.filter((pl.col("kind") == "training") & ~pl.col("present"))
    known = found["job_members"].join(truth["truth_jobs"].select("addr", "kind").unique(), on="addr")
    tenants = (
        known.group_by(FOUND_JOB)
        .agg(tenant=(pl.col("kind") == "other").any())
        .join(called.select(FOUND_JOB), on=FOUND_JOB, how="semi")
    )
    who = (
        pl.when(pl.col("job").is_not_null())
        .then(pl.lit("a job that is over"))
        .when(pl.col("tenant"))
        .then(pl.lit("another tenant"))
        .when(pl.col("tenant").is_not_null())
        .then(pl.lit("an invisible job"))
        .otherwise(pl.lit("nobody"))
    )
    # A job of which the window says that it has ended is there to be told of.
    called = called.join(found["diagnoses"].filter(pl.col("kind") == "ended"), on=FOUND_JOB, how="anti")
    return called.join(tenants, on=FOUND_JOB, how="left").select(*FOUND_JOB, "job", who=who).sort(FOUND_JOB)


def identities(scores: pl.DataFrame, truth: Tables, windows: pl.DataFrame) -> pl.DataFrame:
    """Return where a true job that was found before has another `job_id`, though half of its members stayed.

    Parameters
    ----------
    scores : as `job_scores` returns

    Returns
    -------
    one row for each job and window except its first: `window_start_ns`, `job`, `before` and `job_id`, `stayed` (ratio
    of the members in the window where it was last found), `changed` (another `job_id` though at least half stayed)
    """
    seen = (
        scores.drop_nulls("job_id")
        .sort("job", "window_start_ns")
        .select(
            *WINDOW_JOB,
            "job_id",
            before=pl.col("job_id").shift(1).over("job"),
            last_ns=pl.col("window_start_ns").shift(1).over("job"),
        )
        .drop_nulls("before")
    )
    members = presence.members_by_window(visible(truth), windows)
    then = seen.join(members, left_on=["last_ns", "job"], right_on=WINDOW_JOB)
    now = members.with_columns(stayed=pl.lit(value=True))
    stayed = (
        then.join(now, on=[*WINDOW_JOB, "addr"], how="left")
        .group_by(*WINDOW_JOB, "before", "job_id")
        .agg(stayed=pl.col("stayed").fill_null(value=False).mean())
    )
    changed = (pl.col("before") != pl.col("job_id")) & (pl.col("stayed") >= 0.5)
    return stayed.with_columns(changed=changed).sort(WINDOW_JOB)
