"""Ordering: transfers of many pairs brought into groups, each in order of time, without sorting all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers

Groups = Integers | npt.NDArray[np.int32]


def grouped(groups: Groups, number: int, starts: Integers, ends: Integers, sizes: Integers) -> Integers:
    """Return the places of transfers, group by group, each in order of start, end and size.

    Parameters
    ----------
    groups : shape (transfers,): the group of each, from 0 to `number` - 1
    starts, ends, sizes : shape (transfers,); nothing is quicker than what comes in order of the starts

    Returns
    -------
    shape (transfers,): a permutation; what is equal keeps its order
    """
    return _grouped(np.argsort(starts, kind="stable"), groups, number, starts, ends, sizes)


def ascending(groups: Groups, starts: Integers, ends: Integers, sizes: Integers) -> bool:
    """Whether transfers lie group by group, each in order of start, end and size: as `grouped` orders them."""
    return bool(_ascending(groups, starts, ends, sizes))


@compiled
def _ascending(groups: Groups, starts: Integers, ends: Integers, sizes: Integers) -> bool:
    for i in range(1, groups.size):
        before = (groups[i - 1], starts[i - 1], ends[i - 1], sizes[i - 1])
        if before > (groups[i], starts[i], ends[i], sizes[i]):
            return False
    return True


@compiled
def _grouped(
    rows: Integers, groups: Groups, number: int, starts: Integers, ends: Integers, sizes: Integers
) -> Integers:
    counts = np.zeros(number + 1, dtype=np.int64)
    for group in groups:
        counts[group + 1] += 1
    begins = np.cumsum(counts)
    following = begins.copy()
    places = np.empty(groups.size, dtype=np.int64)
    for i in rows:
        group = groups[i]
        place = following[group]
        following[group] += 1
        while place > begins[group]:
            before = places[place - 1]
            if starts[before] != starts[i] or (ends[before], sizes[before]) <= (ends[i], sizes[i]):
                break
            places[place] = before
            place -= 1
        places[place] = i
    return places
