"""Recurrence: which sizes of a series come again from step to step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers


class Sizes(NamedTuple):
    """What is known of each transfer's size; arrays of shape (transfers,).

    Attributes
    ----------
    classes : number of the class of alike sizes it is in, from 0 for the smallest of its series
    fresh : whether exactly its size is met in fewer than half of its series' steps
    order : places of the transfers series by series, class by class, each class in the order they have
    """

    classes: Integers
    fresh: npt.NDArray[np.bool_]
    order: Integers


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
def _changes(values: Integers) -> int:
    """How many different values there are, in an array where equal ones lie together."""
    different = 1
    for i in range(1, values.size):
        different += values[i] != values[i - 1]
    return different


@compiled
def _sizes(
    values: Integers, steps: Integers, offsets: Integers, tolerance: float
) -> tuple[Integers, npt.NDArray[np.bool_], Integers]:
    classes = np.zeros(values.size, dtype=np.int64)
    fresh = np.zeros(values.size, dtype=np.bool_)
    order = np.empty(values.size, dtype=np.int64)
    for series in range(offsets.size - 1):
        low, high = offsets[series], offsets[series + 1]
        by_size = low + np.argsort(values[low:high], kind="mergesort")  # stable: equal sizes stay in order of steps
        series_steps = _changes(steps[low:high])
        begins = np.zeros(high - low + 1, dtype=np.int64)
        number, smallest, at = 0, values[by_size[0]], 0
        while at < by_size.size:
            size = values[by_size[at]]
            if size > smallest * (1 + tolerance):
                number, smallest = number + 1, size
            after = at
            while after < by_size.size and values[by_size[after]] == size:
                after += 1
            same = by_size[at:after]
            classes[same] = number
            fresh[same] = _changes(steps[same]) * 2 < series_steps
            begins[number + 1] += after - at
            at = after
        places = low + np.cumsum(begins)
        for i in range(low, high):
            order[places[classes[i]]] = i
            places[classes[i]] += 1
    return classes, fresh, order
