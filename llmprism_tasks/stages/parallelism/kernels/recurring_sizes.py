"""Which transfer sizes of a series recur from step to step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.encoding import distinct
from llmprism_tasks.numerics.jit import FLOAT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Integers


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
    """Find the sizes that recur.

    Parameters
    ----------
    values : bytes, transfers of all series one after another
    steps : the step of each transfer, ascending in each series
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    tolerance : ratio by which sizes of one class may differ, as for `size_clusters.classes`
    """
    return Sizes(*_sizes(values, steps, offsets, float(tolerance)))


@subroutine
def _count_steps(steps: Integers, numbers: Integers, met: Integers, latest: Integers, count: int) -> int:
    """Count the different steps of a series, and write in how many of them each of its numbers is met."""
    different = 0
    met[:count], latest[:count] = 0, -1
    for i in range(steps.size):
        different += i == 0 or steps[i] != steps[i - 1]
        if latest[numbers[i]] != different:
            latest[numbers[i]] = different
            met[numbers[i]] += 1
    return different


@kernel(INT64S, INT64S, INT64S, FLOAT64)
def _sizes(
    values: Integers, steps: Integers, offsets: Integers, tolerance: float
) -> tuple[Integers, npt.NDArray[np.bool_], Integers, Integers]:
    n, longest, count = values.size, 0, 0
    for series in range(offsets.size - 1):
        longest = max(longest, offsets[series + 1] - offsets[series])
    begins, order = np.empty(n + 1, np.int64), np.empty(n, np.int64)
    classes, fresh = np.empty(n, np.int64), np.empty(n, np.bool_)
    different, met, latest = np.empty(longest), np.empty(longest, np.int64), np.empty(longest, np.int64)
    class_of, following = np.empty(longest, np.int64), np.empty(longest, np.int64)
    for series in range(offsets.size - 1):
        low, high = offsets[series], offsets[series + 1]
        if low == high:
            continue
        numbers, number, smallest = classes[low:high], 0, 0.0
        several = distinct(values[low:high], numbers, different)
        series_steps = _count_steps(steps[low:high], numbers, met, latest, several)
        for k in range(several):
            if k == 0 or different[k] > smallest * (1 + tolerance):
                number, smallest = number + (k > 0), different[k]
                following[number] = 0
            class_of[k] = number
        for i in range(low, high):
            fresh[i] = met[classes[i]] * 2 < series_steps
            classes[i] = class_of[classes[i]]
            following[classes[i]] += 1
        place = low
        for one in range(number + 1):
            begins[count], place, following[one] = place, place + following[one], place
            count += 1
        for i in range(low, high):
            order[following[classes[i]]] = i
            following[classes[i]] += 1
    begins[count] = n
    return classes, fresh, order, begins[: count + 1].copy()
