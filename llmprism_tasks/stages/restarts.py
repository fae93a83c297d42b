"""Restarts: what a pair sent before it fell silent for long belongs to another run, of the same job or of another.

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
    """Leave out what pairs sent before their last long silence, if it began before the window.

    Silent for long is a pair that sends nothing for `restart_silence_s`, and for `restart_ratio` times as long as it
    usually does: between steps of 90 s it may be silent for most of a minute. When a silence begins in the window, the
    run before it still has steps to be told. A pair that has not come back takes no part in the run there is now.

    Parameters
    ----------
    bulk : bulk flows, look-back included
    """
    part_ns = int(settings.restart_silence_s * NANOSECONDS_PER_SECOND) // RESOLUTION
    parts = (
        bulk.select(*PAIR, part=pl.col("flow_start_ns") // part_ns, last=pl.col("flow_end_ns") // part_ns)
        .group_by(*PAIR, "part")
        .agg(pl.col("last").max())
    )
    now = parts.select(PAIR).unique().with_columns(part=window.end_ns // part_ns, last=window.end_ns // part_ns)
    parts = (
        pl.concat([parts, now.select(parts.columns)], how="vertical_relaxed")
        .sort(*PAIR, "part")
        .with_columns(since=pl.col("last").cum_max().shift().over(PAIR))
        .with_columns(silence=pl.col("part") - pl.col("since"))
    )
    usual = pl.col("silence").median().over(PAIR)
    restarted = (
        (pl.col("silence") > RESOLUTION)
        & (pl.col("silence") >= settings.restart_ratio * usual)
        & ((pl.col("since") + 1) * part_ns <= window.start_ns)
    )
    begins = parts.filter(restarted).group_by(PAIR).agg(begins=pl.col("part").max())
    if begins.is_empty():
        return bulk
    return (
        bulk.join(begins, on=PAIR, how="left")
        .filter(pl.col("flow_start_ns") // part_ns >= pl.col("begins").fill_null(0))
        .drop("begins")
    )
