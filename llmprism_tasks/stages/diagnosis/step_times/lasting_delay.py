"""Lasting delay: whether what made one step of a job longer made most of its members later.

The members of a job wait for each other, so what holds up one of them holds up all, in this step or in the next one for
those that had ended it before. Where a step was cut at another place, the steps beside it are as much too short. Where
some members' steps were cut so, or where two jobs were taken for one, the others end their steps as early as ever.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, Flags, Floats, Integers

BEFORE, AFTER = 2, 1
"""Steps before and after a long one whose ends are compared: the end of the one before it is in doubt, as its own is,
and a member may be held up in the one after it."""


def is_lasting(numbers: Integers, excess: Floats, usual_ns: float, steps: pl.DataFrame) -> Flags:
    """Return which steps of a job made most of its members later by most of what they exceed the usual by.

    Parameters
    ----------
    numbers : shape (steps,), of the job's steps, ascending
    excess : shape (steps,), ns
    usual_ns : the usual length of a step
    steps : of the job's members: `addr`, `step_index`, `start_ns`, `end_ns`
    """
    begin_ns = 0 if steps.is_empty() else int(steps["start_ns"].to_numpy().min())
    begins = steps.select("addr", pl.col("step_index") - 1, at="start_ns")
    ends = pl.concat([steps.select("addr", "step_index", at="end_ns"), begins]).unique(["addr", "step_index"])
    known = ends.filter(pl.col("step_index").is_between(int(numbers[0]) - 1, int(numbers[-1])))
    row = known["step_index"].to_numpy() - numbers[0] + 1
    column = known["addr"].rank("dense").cast(pl.Int64).to_numpy() - 1
    ended = np.full((int(numbers[-1] - numbers[0]) + 2, int(column.max(initial=0)) + 1), np.nan)
    ended[row, column] = known["at"].to_numpy() - begin_ns
    own = numbers - numbers[0] + 1
    since, until = np.maximum(own - BEFORE, 0), np.minimum(own + AFTER, ended.shape[0] - 1)
    late = ended[until] - ended[since] - (until - since)[:, np.newaxis] * usual_ns
    seen = np.sort(late, axis=1)  # those that are not known come last
    count = np.count_nonzero(~np.isnan(seen), axis=1)
    typical = np.take_along_axis(seen, np.maximum(count - 1, 0)[:, np.newaxis] // 2, axis=1)[:, 0]
    return np.asarray((count > 0) & (typical >= MAJORITY * excess))
