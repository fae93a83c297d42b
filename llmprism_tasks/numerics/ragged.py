"""Ragged arrays: segments of neighbouring rows that agree on some keys, and sums, medians and counts of each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.grouped_sort import Groups
from llmprism_tasks.numerics.jit import INT32S, INT64, INT64S, kernel
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import median


def bounds(*keys: npt.NDArray[np.generic]) -> Integers:
    """Return where segments begin, and after them the number of rows: segment i is rows `[i]` to `[i + 1]`.

    Parameters
    ----------
    keys : each of shape (rows,); where any of them changes, a segment begins
    """
    changes = keys[0][1:] != keys[0][:-1]
    for key in keys[1:]:
        changes |= key[1:] != key[:-1]
    inner = np.flatnonzero(changes) + 1
    return np.concatenate([[0], inner, [keys[0].size]] if keys[0].size else [[0]]).astype(np.int64)


def sums(values: npt.NDArray[np.generic], offsets: Integers) -> Integers:
    """Return the sum of each segment's whole numbers; of flags, how many are set."""
    return np.add.reduceat(values, offsets[:-1], dtype=np.int64) if offsets.size > 1 else np.zeros(0, np.int64)


def largest(values: Integers, offsets: Integers) -> Integers:
    """Return the largest number of each segment."""
    return np.maximum.reduceat(values, offsets[:-1]) if offsets.size > 1 else np.zeros(0, np.int64)


def first_largest(values: Integers, offsets: Integers) -> Integers:
    """Return the row of each segment's largest number, of equals the first."""
    rows = np.flatnonzero(values == np.repeat(largest(values, offsets), np.diff(offsets)))
    return rows[np.searchsorted(rows, offsets[:-1])]


def spread(figures: Floats, offsets: Integers) -> Floats:
    """Return for each row the figure of its segment."""
    return np.repeat(figures, np.diff(offsets))


def distinct(numbers: Integers, offsets: Integers) -> Integers:
    """Return how many different numbers each segment has.

    Parameters
    ----------
    numbers : shape (rows,), from 0; small, for a mark is kept for each
    """
    return _distinct(numbers, offsets, int(numbers.max(initial=0)) + 1)


def commonest(numbers: Integers, offsets: Integers) -> Integers:
    """Return the number that each segment has most often, of equals the smallest.

    Parameters
    ----------
    numbers : shape (rows,), from 0; small, for a count is kept for each
    """
    return _commonest(numbers, offsets, int(numbers.max(initial=0)) + 1)


@kernel(INT32S, also=[(INT64S,)])
def of_ascending(numbers: Groups) -> Integers:
    """Return the same as `bounds` for ascending numbers, without reading all of them."""
    offsets, count, begin = np.empty(numbers.size + 1, np.int64), 0, 0
    while begin < numbers.size:
        offsets[count], width = begin, 1
        count += 1
        while begin + width < numbers.size and numbers[begin + width] == numbers[begin]:
            width *= 2
        same, end = begin + width // 2, min(begin + width, numbers.size)
        while end - same > 1:
            middle = (same + end) >> 1
            if numbers[middle] == numbers[begin]:
                same = middle
            else:
                end = middle
        begin = end
    offsets[count] = numbers.size
    return offsets[: count + 1].copy()


@kernel(INT64S, INT64S)
def totals(values: Integers, offsets: Integers) -> Integers:
    """Return the sum of each segment's whole numbers, as `sums` does, also where some segments have no rows."""
    found = np.zeros(offsets.size - 1, np.int64)
    for segment in range(offsets.size - 1):
        for i in range(offsets[segment], offsets[segment + 1]):
            found[segment] += values[i]
    return found


@kernel(INT64S, INT64S)
def medians(values: Integers, offsets: Integers) -> Floats:
    """Return the median of each segment, which has one row at least."""
    middles, room = np.empty(offsets.size - 1), np.empty(values.size)
    for segment in range(offsets.size - 1):
        low, high = offsets[segment], offsets[segment + 1]
        ascending = True
        for i in range(low, high):
            room[i - low] = values[i]
            ascending &= i == low or values[i] >= values[i - 1]
        if ascending:  # most rows are all equal
            middles[segment] = (values[(low + high - 1) // 2] + values[(low + high) // 2]) / 2
        else:
            middles[segment] = median(room, high - low)
    return middles


@kernel(INT64S, INT64S, INT64)
def _distinct(numbers: Integers, offsets: Integers, limit: int) -> Integers:
    counts = np.zeros(offsets.size - 1, np.int64)
    met_in = np.full(limit, -1, np.int64)
    for segment in range(offsets.size - 1):
        for i in range(offsets[segment], offsets[segment + 1]):
            if met_in[numbers[i]] != segment:
                met_in[numbers[i]] = segment
                counts[segment] += 1
    return counts


@kernel(INT64S, INT64S, INT64)
def _commonest(numbers: Integers, offsets: Integers, limit: int) -> Integers:
    found, counts = np.zeros(offsets.size - 1, np.int64), np.zeros(limit, np.int64)
    for segment in range(offsets.size - 1):
        for i in range(offsets[segment], offsets[segment + 1]):
            counts[numbers[i]] = 0
        most = 0
        for i in range(offsets[segment], offsets[segment + 1]):
            number = numbers[i]
            counts[number] += 1
            if counts[number] > most or (counts[number] == most and number < found[segment]):
                most, found[segment] = counts[number], number
    return found
