"""Rounds of a sequence of turns: a new round begins with a member that has already had its turn in the current one."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import INT64, INT64S, kernel
from llmprism_tasks.numerics.robust import Integers


def rounds(members: Integers, offsets: Integers) -> Integers:
    """Number the rounds of each series from 0: a member that has had its turn in a round begins the next.

    Parameters
    ----------
    members : shape (n,), >= 0, whose turn it was; many series laid end to end, each in order of time
    offsets : shape (series + 1,): series i holds the turns `offsets[i]` to `offsets[i + 1]`

    Returns
    -------
    int64, shape (n,). No member comes twice in a round, and later turns never change earlier rounds.
    """
    return _rounds(members, offsets, int(members.max(initial=-1)) + 1)


@kernel(INT64S, INT64S, INT64)
def _rounds(members: Integers, offsets: Integers, count: int) -> Integers:
    numbers = np.zeros(len(members), np.int64)
    for series in range(len(offsets) - 1):
        seen, number = np.full(count, -1, np.int64), 0
        for i in range(offsets[series], offsets[series + 1]):
            if seen[members[i]] == number:
                number += 1
            seen[members[i]] = number
            numbers[i] = number
    return numbers
