"""Wait-for chains, followed from each waiting member to the member at the chain's end, which waits for nobody."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.grouped_sort import collected
from llmprism_tasks.numerics.jit import FLOAT64, FLOAT64S, INT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers

NO_NIC = -1
"""In the place of who is waited for."""


def followed(
    waiting: Integers, targets: Integers, lengths: Integers, worth: Floats, *, share: float, longest: int
) -> Integers:
    """Return the member at the end of each member's chain of longest waits, shape (n,); `NO_NIC` without a wait.

    A chain goes on to whom the one waited for has waited for longest, if that was for a good part of the time. Two that
    wait for each other in turn are no chain. Of those waited for equally long the first in number counts.

    Parameters
    ----------
    waiting, targets : shape (waits,), who waited for whom, numbers from 0 to n - 1
    lengths : shape (waits,), for how long
    worth : shape (n,), in all for one other, from which on it is worth following
    share : ratio of the time waited for one that he must have waited himself to pass it on
    longest : links that are followed at most
    """
    places, offsets = collected(waiting, worth.size)
    return _followed(offsets, targets[places], lengths[places], worth, share, longest)


@subroutine
def _sum_waits(
    slots: Integers, offsets: Integers, targets: Integers, lengths: Integers
) -> tuple[Integers, Integers, Integers]:
    """Add up each member's waits for the same other; `slots`, shape (n,), is all `NO_NIC` before and after."""
    bounds = np.zeros(len(offsets), np.int64)
    other, total = np.empty(len(targets), np.int64), np.empty(len(targets), np.int64)
    n = 0
    for one in range(len(offsets) - 1):
        for i in range(offsets[one], offsets[one + 1]):
            if slots[targets[i]] == NO_NIC:
                slots[targets[i]], other[n], total[n] = n, targets[i], 0
                n += 1
            total[slots[targets[i]]] += lengths[i]
        for i in range(offsets[one], offsets[one + 1]):
            slots[targets[i]] = NO_NIC
        bounds[one + 1] = n
    return bounds, other, total


@subroutine
def _longest_waits(bounds: Integers, other: Integers, total: Integers) -> tuple[Integers, Integers]:
    """Return the member that each one waited for longest, and for how long."""
    whom, longest = np.full(len(bounds) - 1, NO_NIC, np.int64), np.zeros(len(bounds) - 1, np.int64)
    for one in range(len(bounds) - 1):
        for i in range(bounds[one], bounds[one + 1]):
            more = total[i] > longest[one] or (total[i] == longest[one] and other[i] < whom[one])
            if whom[one] == NO_NIC or more:
                whom[one], longest[one] = other[i], total[i]
    return whom, longest


@kernel(INT64S, INT64S, INT64S, FLOAT64S, FLOAT64, INT64)
def _followed(
    offsets: Integers, targets: Integers, lengths: Integers, worth: Floats, share: float, most: int
) -> Integers:
    slots = np.full(len(worth), NO_NIC, np.int64)
    bounds, other, total = _sum_waits(slots, offsets, targets, lengths)
    whom, longest = _longest_waits(bounds, other, total)
    source = other.copy()
    for one in range(len(bounds) - 1):
        for i in range(bounds[one], bounds[one + 1]):
            came_from, links = one, 0
            while total[i] >= worth[one] and links < most:
                onward = whom[source[i]]
                if onward in (NO_NIC, one, came_from) or longest[source[i]] < share * total[i]:
                    break
                came_from, source[i], links = source[i], onward, links + 1
    bounds, other, total = _sum_waits(slots, bounds, source[: bounds[-1]], total)
    return _longest_waits(bounds, other, total)[0]
