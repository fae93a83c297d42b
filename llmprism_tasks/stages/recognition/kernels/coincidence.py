"""Event coincidence: when senders begin, the share of two senders' bytes that start together, and that expected by
chance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.asof import BEFORE_ALL
from llmprism_tasks.numerics.jit import FLOAT64, INT32S, INT64, INT64S, kernel
from llmprism_tasks.numerics.robust import Flags, Integers


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


@kernel(INT64S, INT32S, INT64S, INT64S, INT64S, INT64, INT64)
def begins(
    groups: Integers,
    number: npt.NDArray[np.int32],
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    least: int,
    quiet: int,
) -> Flags:
    """Return which transfers begin after their pair was quiet, shape (transfers,).

    Parameters
    ----------
    groups : of each pair; negative ones begin nothing
    number : of each transfer, the place of its pair
    starts, ends, sizes : of each transfer, ns, ns and bytes; starts ascend in each pair
    least : bytes that a transfer has more than
    quiet : ns
    """
    busy_until, found = np.full(groups.size, BEFORE_ALL), np.zeros(starts.size, np.bool_)
    for i in range(starts.size):
        pair = number[i]
        if groups[pair] < 0 or sizes[i] <= least:
            continue
        found[i] = busy_until[pair] == BEFORE_ALL or starts[i] - busy_until[pair] > quiet
        busy_until[pair] = max(busy_until[pair], ends[i])
    return found


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
