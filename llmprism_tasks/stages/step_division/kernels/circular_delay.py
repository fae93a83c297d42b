"""Typical delay of each series within the period of its group's leader, as a circular median."""

from __future__ import annotations

import math

import numpy as np

from llmprism_tasks.numerics.asof import nearest
from llmprism_tasks.numerics.jit import FLOAT64S, INT64S, kernel
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import median

FULL_TURN = 2 * math.pi


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, FLOAT64S)
def typical_phases(
    times: Integers, offsets: Integers, groups: Integers, leading: Integers, led: Integers, pace: Floats
) -> tuple[Floats, Floats]:
    """Say by how much of a turn each series typically comes after the leader of its group.

    Parameters
    ----------
    times : ns, all series one after another
    offsets : shape (series + 1,): series i has the times `offsets[i]` to `offsets[i + 1]`, one at least
    groups : shape (series,), from 0
    leading : ns, the times of all leaders, each in ascending order
    led : shape (groups + 1,): the leader of group i has the times `led[i]` to `led[i + 1]`, one at least
    pace : shape of `leading`: how long a turn is around each, > 0 ns

    Returns
    -------
    for each series the median of its phases, which is one on a circle: just under half a turn late and just over it are
    neighbours; and for each time the pace of the leader's time that is nearest, of equally near ones the later
    """
    typical, paces = np.empty(offsets.size - 1), np.empty(times.size)
    phases, room = np.empty(times.size), np.empty(times.size)
    for series in range(offsets.size - 1):
        low, count, group = offsets[series], offsets[series + 1] - offsets[series], groups[series]
        sine = cosine = 0.0
        for i in range(low, low + count):
            near = nearest(leading, led[group], led[group + 1], times[i])
            paces[i] = pace[near]
            phases[i] = (times[i] - leading[near]) / paces[i]
            sine += math.sin(FULL_TURN * phases[i])
            cosine += math.cos(FULL_TURN * phases[i])
        centre = math.atan2(sine / count, cosine / count) / FULL_TURN
        for i in range(count):
            off = phases[low + i] - centre
            room[i] = off - round(off)
        typical[series] = centre + median(room, count)
    return typical, paces
