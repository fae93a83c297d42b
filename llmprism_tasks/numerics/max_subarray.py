"""Maximum subarray: the run of neighbours with the largest sum (Kadane's algorithm)."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import FLOAT64S, INT64S, kernel
from llmprism_tasks.numerics.robust import Floats, Integers


@kernel(FLOAT64S, INT64S, INT64S)
def best_runs(values: Floats, offsets: Integers, since: Integers) -> tuple[Integers, Integers, Floats]:
    """Find in each series the run of neighbours with the largest sum, of those that are not over before a position.

    Subtract from a series what is not worth mentioning, and the run is where it is. Where it is over, only what comes
    after it is asked.

    Parameters
    ----------
    values : shape (n,); NaN ends a run
    offsets : shape (series + 1,): series i holds the values `offsets[i]` to `offsets[i + 1]`
    since : shape (series,): position that the run of series i reaches at least

    Returns
    -------
    first, last : positions in `values`, both in the run; -1 where no value is above 0
    total : the run's sum; 0 where there is none

    J. Bentley, "Programming Pearls: Algorithm Design Techniques", CACM 27 (1984), with Kadane's algorithm.
    """
    series = len(offsets) - 1
    first, last, total = np.full(series, -1, np.int64), np.full(series, -1, np.int64), np.zeros(series)
    for s in range(series):
        begin = offsets[s]
        while True:
            first[s], last[s], total[s] = -1, -1, 0.0
            running, began = 0.0, begin
            for i in range(begin, offsets[s + 1]):
                if np.isnan(values[i]):
                    running, began = 0.0, i + 1
                    continue
                if running <= 0.0:
                    running, began = 0.0, i
                running += values[i]
                if running > total[s]:
                    first[s], last[s], total[s] = began, i, running
            if last[s] < 0 or last[s] >= since[s]:
                break
            begin = last[s] + 1
    return first, last, total
