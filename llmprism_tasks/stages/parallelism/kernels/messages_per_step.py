"""Messages per step: transfers that start together are one message; those of the typical size are counted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.jit import FLOAT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import median


class Bunches(NamedTuple):
    """The bunches of each series and step that has any like the typical one.

    Attributes
    ----------
    series : shape (rows,), ascending
    counts : shape (rows,), of bunches like the typical one; those twice as large count twice
    typical : shape (rows,), bytes, their median
    """

    series: Integers
    counts: Integers
    typical: Floats


def in_steps(
    offsets: Integers,
    steps: Integers,
    starts: Integers,
    sizes: Integers,
    *,
    together_ns: float,
    like_one: tuple[float, float],
    twice: float,
) -> Bunches:
    """Count the bunches of each series' steps.

    Parameters
    ----------
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    steps, starts, sizes : of each transfer: its step, ns and bytes; each series in order of steps and starts
    together_ns : a transfer that starts no later after the one before is one with it
    like_one : ratios of the median bunch of its series between which one counts
    twice : ratio by which a bunch may differ from two such
    """
    return Bunches(*_in_steps(offsets, steps, starts, sizes, float(together_ns), *like_one, float(twice)))


@subroutine
def _write_bunches(
    low: int,
    high: int,
    steps: Integers,
    starts: Integers,
    sizes: Integers,
    together: float,
    bytes_: Floats,
    of: Integers,
) -> int:
    """Write the bytes of a series' bunches, and the step of each, and return how many there are."""
    count = 0
    for i in range(low, high):
        if i == low or steps[i] != steps[i - 1] or starts[i] - starts[i - 1] > together:
            bytes_[count], of[count] = 0, steps[i]
            count += 1
        bytes_[count - 1] += sizes[i]
    return count


@kernel(INT64S, INT64S, INT64S, INT64S, FLOAT64, FLOAT64, FLOAT64, FLOAT64)
def _in_steps(
    offsets: Integers,
    steps: Integers,
    starts: Integers,
    sizes: Integers,
    together: float,
    least: float,
    most: float,
    twice: float,
) -> tuple[Integers, Integers, Floats]:
    longest, rows = 0, 0
    for series in range(offsets.size - 1):
        longest = max(longest, offsets[series + 1] - offsets[series])
        for i in range(offsets[series], offsets[series + 1]):
            rows += i == offsets[series] or steps[i] != steps[i - 1]
    bytes_, of, room = np.empty(longest), np.empty(longest, np.int64), np.empty(longest)
    whose, counts, typical, row = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows), 0
    for series in range(offsets.size - 1):
        low, high = offsets[series], offsets[series + 1]
        count = _write_bunches(low, high, steps, starts, sizes, together, bytes_, of)
        room[:count] = bytes_[:count]
        usual, alike, twofold = median(room, count) if count else 0.0, 0, 0
        for i in range(count):
            times = bytes_[i] / usual
            if least <= times <= most:
                room[alike] = bytes_[i]
                alike, twofold = alike + 1, twofold + (abs(times - 2) <= twice)
            if alike and (i == count - 1 or of[i + 1] != of[i]):
                whose[row], counts[row], typical[row] = series, alike + twofold, median(room, alike)
                row, alike, twofold = row + 1, 0, 0
    return whose[:row].copy(), counts[:row].copy(), typical[:row].copy()
