"""Maximum subarray: the run of neighbours with the largest sum (Kadane's algorithm)."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import FLOAT64S, INT64S, kernel
from llmprism_tasks.numerics.robust import Floats, Integers


@kernel(FLOAT64S, INT64S)
def best_runs(values: Floats, offsets: Integers) -> tuple[Integers, Integers, Floats]:
    """Find in each series the run of neighbours with the largest sum.

    Subtract from a series what is not worth mentioning, and the run is where it is.

    Parameters
    ----------
    values : shape (n,); NaN ends a run
    offsets : shape (series + 1,): series i holds the values `offsets[i]` to `offsets[i + 1]`

    Returns
    -------
    first, last : positions in `values`, both in the run; -1 where no value is above 0
    total : the run's sum; 0 where there is none

    J. Bentley, "Programming Pearls: Algorithm Design Techniques", CACM 27 (1984), with Kadane's algorithm.
    """
    series = len(offsets) - 1
    first, last, total = np.full(series, -1, np.int64), np.full(series, -1, np.int64), np.zeros(series)
    for s in range(series):
        running, began = 0.0, offsets[s]
        for i in range(offsets[s], offsets[s + 1]):
            if np.isnan(values[i]):
                running, began = 0.0, i + 1
                continue
            if running <= 0.0:
                running, began = 0.0, i
            running += values[i]
            if running > total[s]:
                first[s], last[s], total[s] = began, i, running
    return first, last, total
