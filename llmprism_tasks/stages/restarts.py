"""Restarts: what was sent before a long silence belongs to another run, of the same job or of another.

Jobs follow each other on the same hosts, and a job that crashed comes back after a pause. Their steps last differently
long, move other bytes, and are counted anew; one rhythm for both would be that of neither.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import TrafficSettings
from llmprism_tasks.windows import NANOSECONDS_PER_SECOND, Window

PAIR = ["src_addr", "dst_addr"]
RESOLUTION = 5
"""Parts into which the shortest silence is divided: silences are measured in these, not from flow to flow, for a table
of pairs and parts is a hundred times smaller than that of flows."""


def since_restart(bulk: pl.DataFrame, window: Window, settings: TrafficSettings) -> pl.DataFrame:
    """Return the second part of what `at_restarts` does: the runs there are in the window."""
    return at_restarts(bulk, window, settings)[1]


def at_restarts(bulk: pl.DataFrame, window: Window, settings: TrafficSettings) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Part what pairs sent before their last long silence, if it began before the window, from what they sent since.

    When a silence begins in the window, the run before it still has steps to be told (see `runs`). A pair that has not
    come back takes no part in the run there is now.

    Parameters
    ----------
    bulk : bulk flows, look-back included
    """
    part_ns = _part_ns(settings)
    long = _long_silences(bulk, PAIR, window, settings).filter((pl.col("since") + 1) * part_ns <= window.start_ns)
    if long.is_empty():
        return bulk.clear(), bulk
    return _parted(bulk, long, PAIR, part_ns)


def runs(bulk: pl.DataFrame, window: Window, settings: TrafficSettings) -> list[pl.DataFrame]:
    """Return the flows of the runs that jobs have in the window: of those that ended in it, and of the present ones.

    Parameters
    ----------
    bulk : bulk flows with `job_id`, look-back included
    """
    bulk, part_ns = since_restart(bulk, window, settings), _part_ns(settings)
    long = _long_silences(bulk, ["job_id"], window, settings).filter(pl.col("part") < window.end_ns // part_ns)
    if long.is_empty():
        return [bulk]
    return list(_parted(bulk, long, ["job_id"], part_ns))


def _parted(bulk: pl.DataFrame, long: pl.DataFrame, key: list[str], part_ns: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Part flows at the last of each pair's or job's long silences."""
    begins = long.group_by(key).agg(begins=pl.col("part").max())
    placed = bulk.join(begins, on=key, how="left").with_columns(
        former=pl.col("flow_start_ns") // part_ns < pl.col("begins").fill_null(0)
    )
    return tuple(placed.filter(chosen).drop("begins", "former") for chosen in ("former", ~pl.col("former")))  # type: ignore[return-value]


def _part_ns(settings: TrafficSettings) -> int:
    return int(settings.restart_silence_s * NANOSECONDS_PER_SECOND) // RESOLUTION


def _long_silences(bulk: pl.DataFrame, key: list[str], window: Window, settings: TrafficSettings) -> pl.DataFrame:
    """Find where pairs or jobs were silent for long: `key`, `since` (the last part before), `part` (the first after).

    That is for `restart_silence_s`, and for `restart_ratio` times as long as in half of all other time, of which so
    much must have been seen at least: between steps of 90 s a pair may be silent for most of a minute, though in the
    synchronisation that ends them it sends without a pause.
    """
    part_ns, end = _part_ns(settings), window.end_ns // _part_ns(settings)
    parts = (
        bulk.select(*key, part=pl.col("flow_start_ns") // part_ns, last=pl.col("flow_end_ns") // part_ns)
        .group_by(*key, "part")
        .agg(pl.col("last").max())
    )
    now = parts.select(key).unique().with_columns(part=pl.lit(end, pl.Int64), last=pl.lit(end, pl.Int64))
    silences = (
        pl.concat([parts, now.select(parts.columns)])
        .sort(*key, "part")
        .with_columns(since=pl.col("last").cum_max().shift().over(key), time=pl.col("part").diff().over(key))
        .with_columns(silence=pl.col("part") - pl.col("since"), seen=pl.col("time").sum().over(key))
    )
    long = silences.filter(pl.col("silence") > RESOLUTION)
    usual = (
        long.select(*key, "part", shorter=pl.col("silence") / settings.restart_ratio)
        .join(silences.select(*key, "silence", "time"), on=key)
        .filter(pl.col("silence") <= pl.col("shorter"))
        .group_by(*key, "part")
        .agg(usual=pl.col("time").sum())
    )
    other = pl.col("seen") - pl.col("time")
    known = usual.filter(pl.col("usual") >= RESOLUTION)
    return long.join(known, on=[*key, "part"]).filter(pl.col("usual") >= other / 2).select(*key, "since", "part")
