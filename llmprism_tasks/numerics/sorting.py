"""Sorting and medians within kernels, compiled once for all of them.

Numba has NumPy's own, but compiles them anew for each way of calling them: half a second to three each, all of which
the first analysis on a machine would wait for. Kernels give these arrays that they have filled themselves.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.jit import subroutine

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

FEW = 16
"""Neighbours that are sorted by moving each to its place, quicker than merging so few."""


@subroutine
def sort(keys: Floats | Integers, places: Integers, count: int) -> None:
    """Sort the first keys, ascending, and with them the places they stand for; equal ones keep their order.

    Merge sort from the bottom up; what is in order already takes linear time.
    """
    for begin in range(0, count, FEW):
        for i in range(begin + 1, min(begin + FEW, count)):
            key, place, to = keys[i], places[i], i
            while to > begin and keys[to - 1] > key:
                keys[to], places[to] = keys[to - 1], places[to - 1]
                to -= 1
            keys[to], places[to] = key, place
    room, places_room, width = np.empty(count, keys.dtype), np.empty(count, np.int64), FEW
    while width < count:
        for begin in range(0, count - width, 2 * width):
            right, end = begin + width, min(begin + 2 * width, count)
            if keys[right - 1] <= keys[right]:
                continue
            for i in range(width):
                room[i], places_room[i] = keys[begin + i], places[begin + i]
            left, to = 0, begin
            while left < width:
                if right < end and keys[right] < room[left]:
                    keys[to], places[to] = keys[right], places[right]
                    right += 1
                else:
                    keys[to], places[to] = room[left], places_room[left]
                    left += 1
                to += 1
        width *= 2


@subroutine
def _at(values: Floats, count: int, rank: int) -> float:
    """Return the value of a rank, from 0, and bring all smaller ones before it (C. A. R. Hoare's FIND, 1961).

    Values go to either side without a branch, which a processor could not foresee. Where NaN is met in the search, it
    is the result.
    """
    low, high = 0, count
    while high - low > 1:
        middle, less = (low + high) >> 1, low
        pivot, values[middle] = values[middle], values[high - 1]
        for i in range(low, high - 1):
            value = values[i]
            values[i], values[less] = values[less], value
            less += value < pivot
        values[high - 1], values[less] = values[less], pivot
        if less == low:  # what is equal is taken out at once, or many equal ones would take squared time
            for i in range(low, high):
                value = values[i]
                values[i], values[less] = values[less], value
                less += value == pivot
            if less == low:  # NaN is not even equal to itself: a search for a place for it would not end
                return np.nan
            if rank < less:
                break
            low = less
        elif rank < less:
            high = less
        else:
            low = less
    return float(values[rank])


@subroutine
def _two_at(values: Floats, count: int, rank: int) -> tuple[float, float]:
    """Return the value of a rank, from 0, and the next one, or itself if it is the last; change their order."""
    lower = _at(values, count, rank)
    following = values[min(rank + 1, count - 1)]
    for i in range(rank + 2, count):
        following = min(following, values[i])
    return lower, following


@subroutine
def median(values: Floats, count: int) -> float:
    """Return the median of the first values, one at least, and change their order; of no use if one is NaN."""
    if count % 2:
        return _at(values, count, count // 2)
    lower, upper = _two_at(values, count, count // 2 - 1)
    return (lower + upper) / 2


@subroutine
def quantile(values: Floats, count: int, share: float) -> float:
    """Return the quantile of the first values as `numpy.quantile` does, and change their order; as for `median`."""
    rank = (count - 1) * share
    below = int(rank)
    lower, upper = _two_at(values, count, below)
    return lower * (1 - (rank - below)) + upper * (rank - below)


@subroutine
def lower_median(values: Floats, count: int) -> float:
    """Return the median as `median` does, or the smaller one of the two in the middle."""
    return _two_at(values, count, (count - 1) // 2)[0]


@subroutine
def sort_by(keys: Integers, places: Integers, count: int, second: Integers | Numbers, third: Integers) -> None:
    """Sort as `sort` does, and the few of equal keys by two more keys of the places they stand for."""
    sort(keys, places, count)
    for i in range(1, count):
        place, to = places[i], i
        while to > 0 and keys[to - 1] == keys[i]:
            before = places[to - 1]
            if second[before] < second[place] or (second[before] == second[place] and third[before] <= third[place]):
                break
            places[to] = before
            to -= 1
        places[to] = place
