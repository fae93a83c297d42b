"""Coincidence: how much of what two senders move begins at the same moments, beyond what chance explains."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers


def together(
    starts: Integers, sizes: Integers, others: Integers, other_sizes: Integers, *, tolerance: float
) -> tuple[float, float]:
    """Return which share of the bytes of both begins together, of the side where it is less, and what chance gives.

    Parameters
    ----------
    starts, others : ns, when transfers begin, each in ascending order, neither empty
    sizes, other_sizes : bytes of these transfers
    tolerance : ns within which two begin together
    """
    sides = [
        (_met(starts, others, tolerance, sizes), _reach(others, tolerance)),
        (_met(others, starts, tolerance, other_sizes), _reach(starts, tolerance)),
    ]
    return min(met for met, _ in sides), max(reach for _, reach in sides)


def _met(starts: Integers, others: Integers, tolerance: float, sizes: Integers) -> float:
    return float(_bytes_met(starts, others, float(tolerance), sizes) / sizes.sum())


@compiled
def _bytes_met(starts: Integers, others: Integers, tolerance: float, sizes: Integers) -> int:
    met, after = 0, 0
    for i in range(starts.size):
        while after < others.size and others[after] < starts[i]:
            after += 1
        near = after < others.size and others[after] - starts[i] <= tolerance
        if near or (after > 0 and starts[i] - others[after - 1] <= tolerance):
            met += sizes[i]
    return met


def _reach(starts: Integers, tolerance: float) -> float:
    """Return the share of time that lies within the tolerance of some start."""
    reached = np.minimum(np.diff(starts), 2 * tolerance).sum() + 2 * tolerance
    return float(reached / (starts[-1] - starts[0] + 2 * tolerance))
