"""Elsewhere: when anybody of another group was last seen, for each group, from one look at all of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.grouped_sort import Groups
from llmprism_tasks.numerics.jit import INT32S, INT64, INT64S, kernel
from llmprism_tasks.numerics.robust import Integers

NEVER = np.iinfo(np.int64).min


class Latest(NamedTuple):
    """The latest time of each slot of time, and the latest of any other group; `NEVER` for none.

    Attributes
    ----------
    times, second : shape (slots,), of the group that was seen last, and of all others
    group : shape (slots,), of the first
    """

    times: Integers
    second: Integers
    group: Integers

    def of_others(self, group: int) -> Integers:
        """Return the latest time of each slot in which anybody of another group was seen, ascending."""
        times: Integers = np.where(self.group == group, self.second, self.times)
        seen: Integers = times[times != NEVER]
        return seen


def latest_of_two(times: Integers, groups: Groups, slot: int) -> Latest:
    """Find the latest times of each slot.

    Parameters
    ----------
    times : shape (n,), any unit
    groups : shape (n,), 0 or more
    slot : length of a slot in the same unit; slots begin at its multiples
    """
    if not times.size:
        return Latest(*(np.empty(0, np.int64) for _ in range(3)))
    first = int(times.min()) // slot
    return Latest(*_latest_of_two(times, groups, first * slot, slot, int(times.max()) // slot - first + 1))


@kernel(INT64S, INT32S, INT64, INT64, INT64)
def _latest_of_two(
    times: Integers, groups: Groups, begin: int, slot: int, slots: int
) -> tuple[Integers, Integers, Integers]:
    latest, second, group = np.full(slots, NEVER), np.full(slots, NEVER), np.full(slots, -1)
    place, next_slot = 0, begin  # of the slot that the time before was in, which most are in
    for i in range(times.size):
        if not next_slot - slot <= times[i] < next_slot:
            place = (times[i] - begin) // slot
            next_slot = begin + (place + 1) * slot
        if groups[i] == group[place]:
            latest[place] = max(latest[place], times[i])
        elif times[i] > latest[place]:
            latest[place], second[place], group[place] = times[i], latest[place], groups[i]
        else:
            second[place] = max(second[place], times[i])
    return latest, second, group
