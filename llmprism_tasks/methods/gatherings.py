"""Gatherings: a stream of bursts cut where everybody has come, for a collective moves when the last member is there."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers


def gatherings(members: Integers, bursts: Integers, offsets: Integers) -> Integers:
    """Number the gatherings of each series from 0: consecutive bursts until all members have taken part.

    Parameters
    ----------
    members : shape (n,), >= 0, who takes part; many series laid end to end, each in order of time
    bursts : shape (n,), never falling within a series: in which burst that is
    offsets : shape (series + 1,): series i holds the rows `offsets[i]` to `offsets[i + 1]`

    Returns
    -------
    int64, shape (n,). A burst is never cut. What comes after the last complete gathering belongs to it.
    """
    return _gatherings(members, bursts, offsets, int(members.max(initial=-1)) + 1)


@compiled
def _gatherings(members: Integers, bursts: Integers, offsets: Integers, count: int) -> Integers:
    numbers = np.zeros(len(members), np.int64)
    last_seen = np.full(count, -1, np.int64)
    stamp = 0
    for series in range(len(offsets) - 1):
        begin, end = offsets[series], offsets[series + 1]
        expected = 0
        for i in range(begin, end):
            if last_seen[members[i]] != stamp:
                last_seen[members[i]] = stamp
                expected += 1
        stamp += 1
        number, come, complete = 0, 0, -1
        for i in range(begin, end):
            if i > begin and bursts[i] != bursts[i - 1] and come == expected:
                number, come = number + 1, 0
                stamp += 1
            if last_seen[members[i]] != stamp:
                last_seen[members[i]] = stamp
                come += 1
            if come == expected:
                complete = number
            numbers[i] = number
        stamp += 1
        for i in range(begin, end):
            numbers[i] = min(numbers[i], max(complete, 0))
    return numbers
