"""Turn: which flows after the last whole step may begin another one, by the order in which steps go.

A log or a heartbeat that two members exchange after their job has ended begins no step. Where their pair sends only
after a part of a step in all others, and next to nothing of that part has been sent, it is not their turn. Who comes
early to an exchange, because others hang, is out of turn as well; but before it the step has begun in turn.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.stages.step_division.periodicity import PAIR


def in_turn(begun: pl.DataFrame, steps: pl.DataFrame, same_size: float) -> pl.DataFrame:
    """Return the flows of an unfinished step less those of pairs whose turn it is not, in order of time.

    It is not a pair's turn if less than half has been sent of what was over in every step before the pair began. Half,
    because the records of some of it may be lost.

    Parameters
    ----------
    begun : flows of the unfinished step
    steps : flows of earlier steps, with `step`
    same_size : ratio of a step's bytes by which two steps differ without meaning
    """
    over = steps.sort("flow_end_ns").select("step", "flow_end_ns", over=pl.col("bytes").cum_sum().over("step"))
    least = (
        steps.with_columns(doubt=same_size * pl.col("bytes").sum().over("step"))
        .sort("flow_start_ns")
        .join_asof(over, left_on="flow_start_ns", right_on="flow_end_ns", by="step", check_sortedness=False)
        .with_columns(least=MAJORITY * pl.col("over").fill_null(0) - pl.col("doubt"))
        .group_by(PAIR)
        .agg(pl.col("least").min())
    )
    sent = begun.sort("flow_start_ns").with_columns(sent=pl.col("bytes").cum_sum() - pl.col("bytes"))
    return sent.join(least, on=PAIR, how="left").filter(pl.col("sent") >= pl.col("least").fill_null(0))
