"""Passed on: what a member of a ring has not been seen to send, although who receives it has sent it on.

Around a ring, each member sends on what it receives. So it is at most one part ahead of the one before it. Of the last
parts of an exchange, who stopped lacks one more than the next member, which lacks one more than the one after it. A
member that lacks far less than the one before it had received the rest: its records were lost.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.stages.step_division.periodicity import PAIR
from llmprism_tasks.stages.traffic.opposite import opposite


def with_lost(sent: pl.DataFrame) -> pl.DataFrame:
    """Return what pairs have sent, with what was lost on the way to who has sent most of it on.

    That is a receiver that sends one way to one NIC alone, and that lacks less than half as much of its own bytes. Who
    has stopped before the last two parts of an exchange is never taken for that.

    Parameters
    ----------
    sent : `src_addr`, `dst_addr`, `usual` (bytes per step), `sent` (bytes in this step)
    """
    one_way = sent.join(opposite(sent), on=PAIR, how="anti")
    one_way = one_way.filter(pl.len().over("src_addr") == 1, pl.len().over("dst_addr") == 1)
    lacks = one_way.select(*PAIR, lacks=(1 - pl.col("sent") / pl.col("usual")).clip(lower_bound=0))
    onward = lacks.select(dst_addr="src_addr", onward="lacks")
    lost = lacks.join(onward, on="dst_addr").filter(pl.col("onward") < MAJORITY * pl.col("lacks")).select(PAIR)
    return (
        sent.join(lost.with_columns(lost=True), on=PAIR, how="left", maintain_order="left")
        .with_columns(sent=pl.when("lost").then(pl.max_horizontal("sent", "usual")).otherwise("sent"))
        .drop("lost")
    )
