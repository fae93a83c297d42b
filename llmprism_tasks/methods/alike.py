"""Numbers that are the same up to a tolerance: sizes of one tensor that headers make differ."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Floats, Integers
from llmprism_tasks.methods.sorting import sort


def classes(values: Floats, offsets: Integers, tolerance: float) -> Integers:
    """Number the classes of alike values in each series, from 0.

    A class begins at its smallest value and holds all up to `1 + tolerance` times that, so it never drifts: a chain of
    values each a little larger than the last makes many classes.

    Parameters
    ----------
    values : shape (n,), each series in any order, >= 0
    offsets : shape (series + 1,): series i holds the values `offsets[i]` to `offsets[i + 1]`
    tolerance : ratio, >= 0
    """
    return _classes(values, offsets, tolerance)


@compiled
def _classes(values: Floats, offsets: Integers, tolerance: float) -> Integers:
    numbers, ordered, places = np.zeros(values.size, np.int64), np.empty(values.size), np.empty(values.size, np.int64)
    for series in range(len(offsets) - 1):
        low, high = offsets[series], offsets[series + 1]
        number, smallest = -1, -1.0
        if low == high:
            continue
        least, most = values[low], values[low]
        for i in range(low, high):
            least, most = min(least, values[i]), max(most, values[i])
            ordered[i - low], places[i - low] = values[i], i
        if most <= least * (1 + tolerance):
            continue  # most pairs send one size, and to sort costs far more than to look
        sort(ordered, places, high - low)
        for i in range(high - low):
            if number < 0 or ordered[i] > smallest * (1 + tolerance):
                number, smallest = number + 1, ordered[i]
            numbers[places[i]] = number
    return numbers
