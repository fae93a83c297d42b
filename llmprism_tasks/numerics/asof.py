"""Following: which of some moments is the first that comes at a time or after it."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import INT64, INT64S, kernel
from llmprism_tasks.numerics.robust import Integers


def first_from(times: Integers, offsets: Integers, moments: Integers, lows: Integers, highs: Integers) -> Integers:
    """Return for each time the place of the first of its series' moments that is not before it; -1 if all are.

    Parameters
    ----------
    times : shape (times,), each series in ascending order
    offsets : shape (series + 1,): series i has the times `offsets[i]` to `offsets[i + 1]`
    moments : shape (moments,)
    lows, highs : shape (series,): series i has the moments `lows[i]` to `highs[i]`, in ascending order
    """
    return values_from(times, offsets, moments, np.arange(moments.size), lows, highs, otherwise=-1)


def values_from(
    times: Integers,
    offsets: Integers,
    moments: Integers,
    values: Integers,
    lows: Integers,
    highs: Integers,
    *,
    otherwise: int,
) -> Integers:
    """Return for each time what stands for the moment that `first_from` finds, or something else where it finds none.

    Parameters
    ----------
    values : of each moment, shape (moments,)
    """
    return _values_from(times, offsets, moments, values, lows, highs, otherwise)


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64)
def _values_from(
    times: Integers,
    offsets: Integers,
    moments: Integers,
    values: Integers,
    lows: Integers,
    highs: Integers,
    otherwise: int,
) -> Integers:
    found = np.empty(times.size, np.int64)
    for series in range(offsets.size - 1):
        place = lows[series]
        for i in range(offsets[series], offsets[series + 1]):
            while place < highs[series] and moments[place] < times[i]:
                place += 1
            found[i] = values[place] if place < highs[series] else otherwise
    return found
