"""Early fragments: transfers that together with a later one have the size of a whole transfer of the same series.

A rank that comes early to a collective, or sends before the receiver is ready, fills the buffers of its connection
(NCCL_BUFFSIZE, 4 MiB a channel), stalls until the last rank comes, and leaves a record of its own.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.asof import lower_bound
from llmprism_tasks.numerics.encoding import distinct
from llmprism_tasks.numerics.jit import FLOAT64, INT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers

EARLY_PART = 0.5
"""Ratio of the rest's bytes below which one may be the part that was sent early: buffers hold a fraction of
what a collective moves. Two equal halves are two tensors."""


def joined_sizes(sizes: Integers, rest: Integers) -> Integers:
    """Return the bytes of each transfer with those of the early ones that it is the rest of.

    Parameters
    ----------
    rest : as `early_fragments` returns
    """
    whole = np.zeros_like(sizes)
    np.add.at(whole, rest, sizes)
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


@kernel(INT64S, INT64S, FLOAT64, INT64)
def early_fragments(sizes: Integers, offsets: Integers, tolerance: float, connections: int) -> Integers:
    """Return the place of the rest of each transfer that was sent early: both make one that their series also has
    whole. Of all others it is their own place.

    A buffer has the same size every time, and what is smaller goes in one piece: so only the smallest size that is met
    twice may be what one held. Over one connection the rest comes next; another one may send while one waits.

    Parameters
    ----------
    sizes : bytes, transfers of all series one after another, each series in order of its starts
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    tolerance : ratio by which sizes of one tensor may differ; what is smaller beside the rest changes nothing
    connections : of two NICs, which may wait for their receivers at a time
    """
    rest = np.arange(sizes.size)
    numbers, different = np.empty(sizes.size, np.int64), np.empty(sizes.size)
    waiting = np.empty(connections, np.int64)
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
        waiting[:] = -1
        for i in range(low, high):
            whole = early + sizes[i]
            if sizes[i] == early:
                waiting[1:] = waiting[:-1].copy()
                waiting[0] = i
            elif (
                waiting[0] >= (0 if connections > 1 else i - 1)
                and waiting[0] >= 0
                and tolerance * whole < early < EARLY_PART * sizes[i]
                and _has_size(different, count, whole, tolerance / 2)
            ):
                rest[waiting[0]] = i
                waiting[:-1] = waiting[1:].copy()
                waiting[-1] = -1
    return rest
