"""Early fragments: transfers that together with the next one have the size of a whole transfer of the same series.

A rank that comes early to a collective fills the buffers of its connection (NCCL_BUFFSIZE, 4 MiB a channel), stalls
until the last rank comes, and leaves a record of its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.asof import lower_bound
from llmprism_tasks.numerics.encoding import distinct
from llmprism_tasks.numerics.jit import FLOAT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers

EARLY_PART = 0.5
"""Ratio of the next transfer's bytes below which one may be the part that was sent early: buffers hold a fraction of
what a collective moves. Two equal halves are two tensors."""


def joined_sizes(sizes: Integers, begins: npt.NDArray[np.bool_]) -> Integers:
    """Return the bytes of each transfer with those of the one before, where that begins it."""
    whole = sizes.copy()
    whole[1:] += sizes[:-1] * begins[:-1]
    return whole


@subroutine
def _smallest_repeated_size(numbers: Integers, different: Floats, count: int) -> float:
    """Return the smallest of different sizes that is met twice; 0 if none is."""
    met = np.zeros(count, np.int64)
    for number in numbers:
        met[number] += 1
    for k in range(count):
        if met[k] > 1:
            return float(different[k])
    return 0.0


@subroutine
def _has_size(ordered: Floats, count: int, size: float, tolerance: float) -> bool:
    """Whether a size is among some in ascending order."""
    at = lower_bound(ordered, 0, count, size / (1 + tolerance))
    return bool(at < count and ordered[at] <= size * (1 + tolerance))


@kernel(INT64S, INT64S, FLOAT64)
def early_fragments(sizes: Integers, offsets: Integers, tolerance: float) -> npt.NDArray[np.bool_]:
    """Mark the transfers that make, together with the next, one that their series also has whole.

    A buffer has the same size every time, and what is smaller goes in one piece: so only the smallest size that is met
    twice may be what one held.

    Parameters
    ----------
    sizes : bytes, transfers of all series one after another, each series in order of its starts
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    tolerance : ratio by which sizes of one tensor may differ; what is smaller beside the next changes nothing
    """
    begins = np.zeros(sizes.size, np.bool_)
    numbers, different = np.empty(sizes.size, np.int64), np.empty(sizes.size)
    for series in range(offsets.size - 1):
        low, high = offsets[series], offsets[series + 1]
        if high - low < 2:
            continue
        least, most = sizes[low], sizes[low]
        for i in range(low, high):
            least, most = min(least, sizes[i]), max(most, sizes[i])
        if least >= EARLY_PART * most:
            continue
        mine = numbers[: high - low]
        count = distinct(sizes[low:high], mine, different)
        early = _smallest_repeated_size(mine, different, count)
        for i in range(low, high - 1):
            whole = float(sizes[i] + sizes[i + 1])
            if sizes[i] == early and tolerance * whole < early < EARLY_PART * sizes[i + 1]:
                begins[i] = _has_size(different, count, whole, tolerance / 2)
    return begins
