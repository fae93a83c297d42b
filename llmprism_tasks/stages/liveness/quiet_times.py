"""Quiet times: the times in which no flow of a job was under way, which of them are long for it, and which of them are
the collector's.

A collector that loses all records for some seconds, as when an exporter restarts, makes jobs seem to stand still. Who
goes on meanwhile shows that the collector works. Where all others fell silent with a job, for longer than they are
together at any other time, the collector did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_SECOND, Window
from llmprism_tasks.numerics.robust import Flags, Integers
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.liveness.foreign import BIN_NS, LONGER_BY_STEPS, is_beyond_chatter
from llmprism_tasks.stages.liveness.kernels.busy_time import busy_parts
from llmprism_tasks.stages.step_division.periodicity import PAIR
from llmprism_tasks.stages.traffic import nic_pairs

RESTART_SHARE = 0.8
"""Ratio of the time in which a job restarts from which a pause may be taken for a restart: `restarts` measures it in
tenths, give or take two. The step with such a pause belongs to no run, so nothing else tells of it."""


SAME_PLACE = 0.1
"""Part of a step by which two pauses may be apart to be at one place of it."""


@dataclass(frozen=True)
class Gap:
    """A long time without flows of a job: from the end of its last flow to the start of its next one.

    `back_ns` is None if there is no next flow. `longest_ns` is the longest such time before, and `is_longest` says
    whether this one is clearly longer. `trained_ns` is when the job came back from the long gap before, or was first
    seen.
    """

    job_id: str
    since_ns: int
    back_ns: int | None
    longest_ns: int
    is_longest: bool = True

    def beside(self, longest_ns: int) -> Gap:
        """Return the gap held against another longest one."""
        over_ns = 0 if self.back_ns is None else self.back_ns - self.since_ns
        clearly = over_ns > (1 + LONGER_BY_STEPS) * longest_ns
        return replace(self, longest_ns=longest_ns, is_longest=self.is_longest or clearly)


def beyond_chatter(bulk: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    """Return the flows of jobs in order, less heartbeats and logs, which a job that stands still sends as well."""
    bulk = nic_pairs.in_order(bulk)
    works = is_beyond_chatter(bulk, least_ns=restart_silence_ns(settings), same_size=settings.traffic.same_size)
    return bulk.filter(pl.Series(works))


def restart_silence_ns(settings: Settings) -> int:
    """Return the time in which a job restarts, in ns."""
    return int(settings.traffic.restart_silence_s * NANOSECONDS_PER_SECOND)


def long_gaps(bulk: pl.DataFrame, window: Window, settings: Settings) -> Iterator[Gap]:
    """Yield the long gaps between a job's flows that reach into the last two windows.

    They are longer than any before, or than the time in which a job restarts. Shorter gaps are included if other NICs
    joined the job after them, and those that are over and are not the longest.
    """
    gaps = quiet_times(bulk).with_columns(length=pl.coalesce("back_ns", pl.lit(window.end_ns)) - pl.col("since_ns"))
    over = pl.col("back_ns").is_not_null()
    longest = pl.col("length").cum_max().shift(fill_value=0).over("job_id")
    latest = _joining_times(bulk).group_by("job_id").agg(pl.col("joined_ns").max())
    least_ns = restart_silence_ns(settings)
    shortest = (
        pl.when(pl.col("joined_ns") >= pl.col("back_ns"))
        .then(least_ns)
        .when(over)
        .then(RESTART_SHARE * least_ns)
        .otherwise(least_ns)
    )
    replaces = (pl.col("joined_ns") >= pl.col("back_ns")).fill_null(value=False)
    clearly = ~over | replaces | (pl.col("length") > (1 + LONGER_BY_STEPS) * pl.col("longest_ns"))
    long = (
        gaps.with_columns(longest_ns=longest)
        .join(latest, on="job_id", maintain_order="left")
        .filter(
            pl.col("length") > shortest,
            pl.col("back_ns").is_null() | (pl.col("back_ns") > window.start_ns - window.length_ns),
        )
        .with_columns(is_longest=clearly)
    )
    return (Gap(**row) for row in long.drop("length", "joined_ns").iter_rows(named=True))


def _joining_times(bulk: pl.DataFrame) -> pl.DataFrame:
    """Return since when each member takes part in its job: `job_id`, `addr`, `joined_ns`."""
    bulk = nic_pairs.in_order(bulk)
    first = nic_pairs.named(bulk.select("job_id", *PAIR, "flow_start_ns")[nic_pairs.starts_of_pairs(bulk)[:-1]])
    ends = pl.concat([first.select("job_id", "flow_start_ns", addr=end) for end in PAIR])
    return ends.group_by("job_id", "addr").agg(joined_ns=pl.col("flow_start_ns").min())


def quiet_times(bulk: pl.DataFrame) -> pl.DataFrame:
    """Return the times without flows of each job: `job_id`, `since_ns`, `back_ns`; sorted by `job_id` and time.

    The last time of a job has no end (NULL). Times within one second of the clock are absent.

    Parameters
    ----------
    bulk : flows inside jobs, with `job_id`
    """
    return (
        _busy_seconds(bulk)
        .select(
            "job_id",
            since_ns=pl.col("last_ns").cum_max().over("job_id"),
            back_ns=pl.col("first_ns").shift(-1).over("job_id"),
        )
        .filter(pl.col("back_ns").is_null() | (pl.col("back_ns") > pl.col("since_ns")))
    )


def _busy_seconds(bulk: pl.DataFrame) -> pl.DataFrame:
    """Return the busy seconds of each job: `job_id`, start of the first flow (`first_ns`), end of the last (`last_ns`).

    Sorted by `job_id` and time.
    """
    bulk = nic_pairs.in_order(bulk)
    pairs, offsets = nic_pairs.pairs_of(bulk, ["job_id"]), nic_pairs.starts_of_pairs(bulk)
    jobs = pairs.select("job_id").unique().sort("job_id")
    numbered = pairs.join(jobs.with_row_index("job"), on="job_id", maintain_order="left")
    job, first, last = busy_parts(
        bulk["flow_start_ns"].to_numpy(), bulk["flow_end_ns"].to_numpy(), offsets, numbered["job"].to_numpy(), BIN_NS
    )
    return jobs[job].with_columns(first_ns=pl.Series(first), last_ns=pl.Series(last))


def are_of_collector(others_ns: Integers, since_ns: Integers, until_ns: Integers, usual_ns: float) -> Flags:
    """Return which silences of a job the collector made: all others fell silent in it, for longer than ever beside.

    Parameters
    ----------
    others_ns : shape (flows,), when each flow that is none of the job's began, ascending
    since_ns, until_ns : shape (silences,), start and end of every long silence of the job
    usual_ns : usual length of the job's step: others may stop up to one before or after the job, and be back up to one
        before it
    """
    begins, backs = others_ns[:-1], others_ns[1:]
    since, until = since_ns[:, np.newaxis], until_ns[:, np.newaxis]
    meets = (begins < until) & (backs > since)
    longest_beside = (backs - begins)[~meets.any(axis=0)].max(initial=0)
    covers = (np.abs(begins - since) <= usual_ns) & (backs >= until - usual_ns)
    return np.asarray((meets & covers & (backs - begins > longest_beside)).any(axis=1))
