"""Culprits: the chain of waiting, walked to its source.

Who waits for a neighbour in the pipeline, or for the last member of a gradient group, waits for whoever that one waits
for. The chain goes on while the next one has itself waited for a good part of the time, and ends at who has not: it
worked.
"""

from __future__ import annotations

import polars as pl

GOOD_PART = 0.5
"""Ratio of the time waited for a NIC that it must itself have waited, for one other, not to be the source of it."""

WORTH_WALKING = 0.01
"""Ratio of its step that a NIC must have waited for another: below, jitter makes chains that mean nothing."""

LONGEST_CHAIN = 64
"""Links that are walked at most: more than pipelines have stages."""


def walked(waits: pl.DataFrame) -> pl.DataFrame:
    """Say for whom each NIC waited longest in a step, when all chains are walked: `part`, `target`.

    Parameters
    ----------
    waits : `part` (a NIC's step), `target` (that of who was waited for), `wait_ns`, `step_ns` (length of the step)
    """
    summed = waits.group_by("part", "target").agg(pl.col("wait_ns").sum(), pl.col("step_ns").first())
    longest = _longest(summed).select(target="part", onward="target", onward_ns="wait_ns")
    worth = pl.col("wait_ns") >= WORTH_WALKING * pl.col("step_ns")
    done, walking = [summed.filter(~worth)], summed.filter(worth).with_columns(came_from="part")
    for _ in range(LONGEST_CHAIN):
        reached = walking.join(longest, on="target", how="left")
        waited = pl.col("onward_ns") >= GOOD_PART * pl.col("wait_ns")
        # Two neighbours that wait for each other in turn are no chain.
        back = (pl.col("onward") == pl.col("part")) | (pl.col("onward") == pl.col("came_from"))
        goes_on = (waited & ~back).fill_null(value=False)
        done.append(reached.filter(~goes_on).select(summed.columns))
        walking = (
            reached.filter(goes_on)
            .select("part", "wait_ns", "step_ns", target="onward", came_from="target")
            .select(walking.columns)
        )
        if walking.is_empty():
            break
    ended = pl.concat([*done, walking.select(summed.columns)])
    return _longest(ended.group_by("part", "target").agg(pl.col("wait_ns").sum())).select("part", "target")


def _longest(waits: pl.DataFrame) -> pl.DataFrame:
    return waits.sort("part", "wait_ns", "target", descending=[False, True, False]).unique("part", keep="first")
