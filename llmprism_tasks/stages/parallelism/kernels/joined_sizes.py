"""Which records are several messages of one size that the collector joined."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.jit import FLOAT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers


class Transfers(NamedTuple):
    """Transfers, shape (transfers,), of all series one after another.

    Attributes
    ----------
    values : bytes
    classes : of alike sizes, from 0 for the smallest of each series
    steps : ascending in each series
    starts : ns, ascending in each step of a series
    """

    values: Integers
    classes: Integers
    steps: Integers
    starts: Integers


def units(transfers: Transfers, offsets: Integers, spans: Integers, tolerance: float) -> Integers:
    """Return the size of the messages that each transfer consists of: shape (transfers,), bytes.

    The unit of a series is its smallest size of which whole multiples carry most of its bytes. A transfer is some such
    messages, joined by the collector, if most bytes of these multiples come in sizes that are seen another number of
    times in most steps than in the step before: how many messages a collector joins is chance, how many tensors of a
    size a model has is not. And they go on through most steps: what is joined of one burst is told by its size.
    All other transfers keep their size.

    Parameters
    ----------
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    spans : shape (series,), ns between the first and the last start of a step from which on they go on through it
    tolerance : by how much a size may miss a whole number of messages, as a ratio of one
    """
    found: Integers = _units(*transfers, offsets, spans, float(tolerance))
    return found


@subroutine
def _sum_bytes(values: Integers, classes: Integers, steps: Integers, count: int) -> tuple[Integers, Floats, Floats]:
    """Return of each class of a series its smallest size, its bytes, and those of them that come in classes of which
    most steps have another number than the step before."""
    size, bytes_, varying = np.zeros(count, np.int64), np.zeros(count), np.zeros(count)
    latest, number, before = np.full(count, -1), np.full(count, -1), np.full(count, -1)
    equal, step = np.zeros(count, np.int64), -1
    for i in range(steps.size):
        step += i == 0 or steps[i] != steps[i - 1]
        one = classes[i]
        size[one] = values[i] if bytes_[one] == 0 else min(size[one], values[i])
        bytes_[one] += values[i]
        if latest[one] != step:
            equal[one] += number[one] == before[one] and latest[one] >= 0
            before[one] = number[one] if latest[one] == step - 1 else 0
            latest[one], number[one] = step, 0
        number[one] += 1
    for one in range(count):
        equal[one] += number[one] == before[one]
        varying[one] = bytes_[one] if 2 * equal[one] < step else 0.0
    return size, bytes_, varying


@subroutine
def _is_multiple(size: int, unit: int, tolerance: float) -> bool:
    times = size / unit
    return times > 0.5 and abs(times - np.floor(times + 0.5)) <= tolerance


@subroutine
def _goes_on(values: Integers, steps: Integers, starts: Integers, unit: int, tolerance: float, span: int) -> bool:
    """Say whether the multiples of a unit go on through most steps of a series."""
    there, long, first, counted = 0, 0, 0, False
    for i in range(steps.size):
        if i == 0 or steps[i] != steps[i - 1]:
            there, first, counted = there + 1, -1, False
        if _is_multiple(values[i], unit, tolerance):
            first = starts[i] if first < 0 else first
            if not counted and starts[i] - first >= span:
                long, counted = long + 1, True
    return 2 * long >= there


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, FLOAT64)
def _units(
    values: Integers,
    classes: Integers,
    steps: Integers,
    starts: Integers,
    offsets: Integers,
    spans: Integers,
    tolerance: float,
) -> Integers:
    found = values.copy()
    for series in range(offsets.size - 1):
        low, high = offsets[series], offsets[series + 1]
        count = 0
        for i in range(low, high):
            count = max(count, classes[i] + 1)
        size, bytes_, varying = _sum_bytes(values[low:high], classes[low:high], steps[low:high], count)
        all_, unit, vary, of_unit = bytes_.sum(), 0, 0.0, 0.0
        for one in range(count):
            of_unit, vary = 0.0, 0.0
            for other in range(one, count):
                if _is_multiple(size[other], size[one], tolerance):
                    of_unit, vary = of_unit + bytes_[other], vary + varying[other]
            if 2 * of_unit >= all_:
                unit = size[one]
                break
        series_of = values[low:high], steps[low:high], starts[low:high]
        if unit and 2 * vary >= of_unit and _goes_on(*series_of, unit, tolerance, spans[series]):
            for i in range(low, high):
                if values[i] > (1 + tolerance) * unit and _is_multiple(values[i], unit, tolerance):
                    found[i] = unit
    return found
