"""Event coincidence: the share of two senders' bytes that start together, and the share expected by chance."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import FLOAT64, INT64S, kernel
from llmprism_tasks.numerics.robust import Integers


def together(
    starts: Integers, sizes: Integers, others: Integers, other_sizes: Integers, *, tolerance: float
) -> tuple[float, float]:
    """Return which share of the bytes of each side begins together with some of the other.

    Parameters
    ----------
    starts, others : ns, when transfers begin, each in ascending order, neither empty
    sizes, other_sizes : bytes of these transfers
    tolerance : ns within which two begin together
    """
    met, others_met = _coincident_bytes(starts, sizes, others, other_sizes, float(tolerance))
    return float(met / sizes.sum()), float(others_met / other_sizes.sum())


def reach(starts: Integers, *, tolerance: float) -> float:
    """Return the share of time that lies within the tolerance of some start: what others begin then by chance.

    Parameters are as for `together`.
    """
    reached = np.minimum(np.diff(starts), 2 * tolerance).sum() + 2 * tolerance
    return float(reached / (starts[-1] - starts[0] + 2 * tolerance))


@kernel(INT64S, INT64S, INT64S, INT64S, FLOAT64)
def _coincident_bytes(
    starts: Integers, sizes: Integers, others: Integers, other_sizes: Integers, tolerance: float
) -> tuple[int, int]:
    """Return the bytes of each side that begin together with some of the other, walking along both in order of time."""
    met, others_met, i, j = 0, 0, 0, 0
    while i < starts.size or j < others.size:
        if j == others.size or (i < starts.size and starts[i] <= others[j]):
            near = j < others.size and others[j] - starts[i] <= tolerance
            met += sizes[i] * (near or (j > 0 and starts[i] - others[j - 1] <= tolerance))
            i += 1
        else:
            near = i < starts.size and starts[i] - others[j] <= tolerance
            others_met += other_sizes[j] * (near or (i > 0 and others[j] - starts[i - 1] <= tolerance))
            j += 1
    return met, others_met
