"""Recurrence: which sizes of a series come again from step to step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers
from llmprism_tasks.methods.sorting import sort


class Sizes(NamedTuple):
    """What is known of each transfer's size.

    Attributes
    ----------
    classes : shape (transfers,), number of the class of alike sizes it is in, from 0 for the smallest of its series
    fresh : shape (transfers,), whether exactly its size is met in fewer than half of its series' steps
    order : shape (transfers,), places of the transfers series by series, class by class, each class in the order they
        have
    offsets : shape (classes + 1,): class i has the places `order[offsets[i]]` to `order[offsets[i + 1] - 1]`
    """

    classes: Integers
    fresh: npt.NDArray[np.bool_]
    order: Integers
    offsets: Integers


def sizes(values: Integers, steps: Integers, offsets: Integers, tolerance: float) -> Sizes:
    """Look for the sizes that come again.

    Parameters
    ----------
    values : bytes, transfers of all series one after another
    steps : the step of each transfer, ascending in each series
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    tolerance : ratio by which sizes of one class may differ, as for `alike.classes`
    """
    return Sizes(*_sizes(values, steps, offsets, float(tolerance)))


@compiled
def _changes(steps: Integers, places: Integers, begin: int, end: int) -> int:
    """How many different steps there are at places that have equal ones together."""
    different = 1
    for i in range(begin + 1, end):
        different += steps[places[i]] != steps[places[i - 1]]
    return different


@compiled
def _sizes(
    values: Integers, steps: Integers, offsets: Integers, tolerance: float
) -> tuple[Integers, npt.NDArray[np.bool_], Integers, Integers]:
    n = values.size
    begins, met = np.zeros(n + 1, np.int64), 0
    classes, fresh, order = np.zeros(n, np.int64), np.zeros(n, np.bool_), np.empty(n, np.int64)
    ordered, by_size, following = np.empty(n), np.empty(n, np.int64), np.empty(n + 1, np.int64)
    for series in range(offsets.size - 1):
        low, high = offsets[series], offsets[series + 1]
        count = high - low
        if count == 0:
            continue
        for i in range(count):
            ordered[i], by_size[i], following[i] = values[low + i], low + i, 0
        series_steps = _changes(steps, by_size, 0, count)
        sort(ordered, by_size, count)  # equal sizes stay in order of steps
        number, smallest, at = 0, ordered[0], 0
        while at < count:
            size, after = ordered[at], at
            if size > smallest * (1 + tolerance):
                number, smallest = number + 1, size
                following[number] = low + at
            while after < count and ordered[after] == size:
                after += 1
            seldom = _changes(steps, by_size, at, after) * 2 < series_steps
            for i in range(at, after):
                classes[by_size[i]], fresh[by_size[i]] = number, seldom
            at = after
        following[0] = low
        for one in range(number + 1):
            begins[met + one] = following[one]
        met += number + 1
        for i in range(low, high):
            order[following[classes[i]]] = i
            following[classes[i]] += 1
    begins[met] = n
    return classes, fresh, order, begins[: met + 1].copy()
