"""As-of search: where a time falls among ascending times.

`lower_bound` halves what is left to search; `advance` walks on from a place that is known to be no further, which is
quicker for times that are asked for in order: the place is one or two further each time. What belongs to the last time
that is not after another is one place before the first that is at least one unit after it.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import INT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers

BEFORE_ALL, AFTER_ALL = np.iinfo(np.int64).min, np.iinfo(np.int64).max
"""In the place of a time where there is none: before all times, and after them."""


@subroutine
def lower_bound(times: Floats | Integers, low: int, high: int, time: float) -> int:
    """Return the first place from `low` on of a time that is not before another, or `high`."""
    while low < high:
        middle = (low + high) >> 1
        if times[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@subroutine
def advance(times: Integers, place: int, high: int, time: int) -> int:
    """Return the first place from `place` on of a time that is not before another, or `high`."""
    while place < high and times[place] < time:
        place += 1
    return place


@subroutine
def nearest(times: Integers, low: int, high: int, time: int) -> int:
    """Return the place, from `low` to before `high`, of the time nearest to another, the later of two equally near."""
    after = lower_bound(times, low, high, time)
    if after == high or (after > low and time - times[after - 1] < times[after] - time):
        return after - 1
    return after


def first_from(times: Integers, offsets: Integers, moments: Integers, lows: Integers, highs: Integers) -> Integers:
    """Return for each time the place of the first of its series' moments that is not before it; -1 if all are.

    Parameters
    ----------
    times : shape (times,); quickest where each series is in ascending order
    offsets : shape (series + 1,): series i has the times `offsets[i]` to `offsets[i + 1]`
    moments : shape (moments,)
    lows, highs : shape (series,): series i has the moments `lows[i]` to `highs[i]`, in ascending order
    """
    return values_from(times, offsets, moments, np.arange(moments.size), lows, highs, otherwise=-1)


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64)
def values_from(
    times: Integers,
    offsets: Integers,
    moments: Integers,
    values: Integers,
    lows: Integers,
    highs: Integers,
    otherwise: int,
) -> Integers:
    """Return for each time the value of the moment that `first_from` finds, or `otherwise` where it finds none.

    Parameters
    ----------
    values : of each moment, shape (moments,)
    """
    found = np.empty(times.size, np.int64)
    for series in range(offsets.size - 1):
        place, high, before = lows[series], highs[series], BEFORE_ALL
        for i in range(offsets[series], offsets[series + 1]):
            time = times[i]
            if time < before:
                place = lows[series]
            place, before = advance(moments, place, high, time), time
            found[i] = values[place] if place < high else otherwise
    return found
