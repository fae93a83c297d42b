"""Clusters of sizes that are equal up to a tolerance: headers make the sizes of one tensor differ slightly.

A class begins at its smallest value and holds all up to `1 + tolerance` times that, so it never drifts: a chain of
values each a little larger than the last makes many classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.encoding import distinct
from llmprism_tasks.numerics.jit import FLOAT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers


class Collected(NamedTuple):
    """The values of each class together, series by series, class by class.

    Attributes
    ----------
    places : shape (n,), those of a class in the order in which they come
    offsets : shape (classes + 1,): a class has the places `offsets[i]` to `offsets[i + 1]`
    sums : shape (classes,), of its values
    several : shape (series,), how many classes each has
    """

    places: Integers
    offsets: Integers
    sums: Integers
    several: Integers


def collected(values: Integers, offsets: Integers, tolerance: float) -> Collected:
    """Bring alike values together; parameters as for `classes`."""
    places, ends, sums, several = _collected(values, offsets, float(tolerance))
    count = int(several.sum())
    return Collected(places, ends[: count + 1].copy(), sums[:count].copy(), several)


@subroutine
def _classify_series(values: Integers, tolerance: float, numbers: Integers, different: Floats) -> int:
    """Write the class of each value of one series, and return how many there are."""
    least, most = values[0], values[0]
    for value in values:
        least, most = min(least, value), max(most, value)
    if most <= least * (1 + tolerance):  # most pairs send one size
        numbers[: values.size] = 0
        return 1
    count = distinct(values, numbers, different)
    class_of, number, smallest = np.empty(count, np.int64), 0, different[0]
    for k in range(count):
        if different[k] > smallest * (1 + tolerance):
            number, smallest = number + 1, different[k]
        class_of[k] = number
    for i in range(values.size):
        numbers[i] = class_of[numbers[i]]
    return number + 1


@subroutine
def _longest_series(offsets: Integers) -> int:
    longest = 0
    for series in range(offsets.size - 1):
        longest = max(longest, offsets[series + 1] - offsets[series])
    return longest


@kernel(INT64S, INT64S, FLOAT64)
def classes(values: Integers, offsets: Integers, tolerance: float) -> Integers:
    """Number the classes of alike values in each series, from 0.

    Parameters
    ----------
    values : shape (n,), each series in any order, >= 0 and below 2^53
    offsets : shape (series + 1,): series i holds the values `offsets[i]` to `offsets[i + 1]`
    tolerance : ratio, >= 0
    """
    numbers, different = np.empty(values.size, np.int64), np.empty(_longest_series(offsets))
    for series in range(offsets.size - 1):
        low, high = offsets[series], offsets[series + 1]
        if low < high:
            _classify_series(values[low:high], tolerance, numbers[low:high], different)
    return numbers


@kernel(INT64S, INT64S, FLOAT64)
def _collected(values: Integers, offsets: Integers, tolerance: float) -> tuple[Integers, Integers, Integers, Integers]:
    longest, count = _longest_series(offsets), 0
    numbers, different = np.empty(longest, np.int64), np.empty(longest)
    places, ends, sums = np.empty(values.size, np.int64), np.empty(values.size + 1, np.int64), np.empty_like(values)
    several, following = np.zeros(offsets.size - 1, np.int64), np.empty(longest + 1, np.int64)
    ends[0] = 0
    for series in range(offsets.size - 1):
        low, high = offsets[series], offsets[series + 1]
        if low == high:
            continue
        several[series] = _classify_series(values[low:high], tolerance, numbers, different)
        following[: several[series]] = 0
        sums[count : count + several[series]] = 0
        for i in range(low, high):
            following[numbers[i - low]] += 1
            sums[count + numbers[i - low]] += values[i]
        place = low
        for k in range(several[series]):
            held, following[k] = following[k], place
            place += held
            ends[count + k + 1] = place
        for i in range(low, high):
            k = numbers[i - low]
            places[following[k]] = i
            following[k] += 1
        count += several[series]
    return places, ends, sums, several
