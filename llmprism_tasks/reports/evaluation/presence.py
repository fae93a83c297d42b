"""Presence: in which windows, and with which NICs, each true job trains, so that windows can be judged."""

from __future__ import annotations

import polars as pl

MARKS = 1 << 48
"""Range of the numbers that represent addresses. Sums of 32,768 of them fit 64 bits, and two different sets of one size
have the same sum once in 2.8e14."""

FORWARD = 1 / 3
"""Share of a step that is its forward pass, because the backward pass is twice the work. Data parallelism sends nothing
in it, so a job that begins at a window's very end cannot be seen there."""


def members_by_window(members: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return each job's NICs in each window: those that belong to it at some time in the window.

    Parameters
    ----------
    members : `job`, `addr`, `start_ns`, `end_ns`
    windows : `window_start_ns`, `window_end_ns`

    Returns
    -------
    `window_start_ns`, `job`, `addr`, without duplicates
    """
    return (
        windows.select("window_start_ns", "window_end_ns")
        .join_where(
            members.select("job", "addr", "start_ns", "end_ns"),
            pl.col("start_ns") < pl.col("window_end_ns"),
            pl.col("end_ns") > pl.col("window_start_ns"),
        )
        .select("window_start_ns", "job", "addr")
        .unique()
    )


def mark() -> pl.Expr:
    """Return the number that represents an address: sets of NICs are equal if their sizes and sums are."""
    return (pl.col("addr").hash(seed=0) % MARKS).cast(pl.Int64)


def member_sets(members: pl.DataFrame) -> pl.DataFrame:
    """Return the successive sets of NICs that each job has.

    Parameters
    ----------
    members : `job`, `addr`, `start_ns`, `end_ns`

    Returns
    -------
    `job`, `since_ns`, `until_ns`, `members` (number), `sum` (of the addresses' numbers); no rows for times without
    members
    """
    own = members.select("job", "addr", "start_ns", "end_ns").unique().with_columns(sum=mark())
    comes = own.select("job", "sum", since_ns="start_ns", members=pl.lit(1))
    goes = own.select("job", sum=-pl.col("sum"), since_ns="end_ns", members=pl.lit(-1))
    return (
        pl.concat([comes, goes])
        .group_by("job", "since_ns")
        .agg(pl.col("members", "sum").sum())
        .sort("job", "since_ns")
        .with_columns(pl.col("members", "sum").cum_sum().over("job"), until_ns=pl.col("since_ns").shift(-1).over("job"))
        .filter(pl.col("members") > 0)
        .select("job", "since_ns", "until_ns", "members", "sum")
    )


def at_work(steps: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the windows in which each job has a step under way that is past its forward pass.

    These are the windows from its first to its last step, without its silences.

    Parameters
    ----------
    steps : `job`, `start_ns`, `end_ns`
    windows : `window_start_ns`, `window_end_ns`

    Returns
    -------
    `window_start_ns`, `window_end_ns`, `job`, `period_ns` (length of a typical step)
    """
    lasts = pl.col("end_ns") - pl.col("start_ns")
    periods = steps.group_by("job").agg(period_ns=lasts.median().cast(pl.Int64))
    return (
        windows.select("window_start_ns", "window_end_ns")
        .join_where(
            steps.select("job", "end_ns", backward_ns=pl.col("start_ns") + (FORWARD * lasts).cast(pl.Int64)),
            pl.col("backward_ns") < pl.col("window_end_ns"),
            pl.col("end_ns") > pl.col("window_start_ns"),
        )
        .select("window_start_ns", "window_end_ns", "job")
        .unique()
        .join(periods, on="job")
        .sort("window_start_ns", "job")
    )


def sets_by_window(working: pl.DataFrame, sets: pl.DataFrame) -> pl.DataFrame:
    """Return the sets of NICs that a job has in a window; each of them is a right answer.

    When a job ends, its ranks leave one after the other, and the sets in between are meaningless. So a set must last
    for a step to count, unless the window has no such set.

    Parameters
    ----------
    working : as `at_work` returns
    sets : as `member_sets` returns

    Returns
    -------
    `window_start_ns`, `job`, `since_ns`, `members`, `sum`
    """
    lasts_ns = pl.col("until_ns") - pl.col("since_ns")
    longest = lasts_ns == lasts_ns.max().over("window_start_ns", "job")
    return (
        working.join(sets, on="job")
        .filter(pl.col("since_ns") < pl.col("window_end_ns"), pl.col("until_ns") > pl.col("window_start_ns"))
        .filter((lasts_ns >= pl.col("period_ns")) | longest)
        .select("window_start_ns", "job", "since_ns", "members", "sum")
    )


def steps_ended(working: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Count the steps that a job has ended with its present members by the end of each window.

    Parameters
    ----------
    working : `window_start_ns`, `window_end_ns`, `job`, `since_ns` (start of the time with these members)
    steps : `job`, `end_ns`

    Returns
    -------
    `working` with `steps`
    """
    counted = steps.sort("end_ns").select("job", "end_ns", count=pl.int_range(1, pl.len() + 1).over("job"))

    def before(moments: pl.DataFrame, column: str) -> pl.DataFrame:
        """Add `count`: how many steps of the job had ended by the moment in a column; NULL for none."""
        return moments.sort(column).join_asof(
            counted,
            left_on=column,
            right_on="end_ns",
            by="job",
            strategy="backward",
            allow_exact_matches=column == "since_ns",
            check_sortedness=False,
            coalesce=False,
        )

    until = before(working, "window_end_ns").drop("end_ns").rename({"count": "until"})
    both = before(until, "since_ns").drop("end_ns")
    ended = pl.col("until").fill_null(0) - pl.col("count").fill_null(0)
    return both.with_columns(steps=ended).drop("until", "count").sort("window_start_ns", "job")
