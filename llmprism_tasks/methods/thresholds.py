"""Thresholds: by how long a gap a series of transfers may be cut into bursts."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Floats, Integers
from llmprism_tasks.methods.sorting import sort
from llmprism_tasks.methods.steadiness import FEW

MOST_CANDIDATES = 24
"""Ways of cutting looked at in one series, the clearest first; a series of steps has a handful."""


@compiled
def long_gaps(
    starts: Integers, latest: Integers, low: int, high: int, shortest_gap: float, places: Integers, gaps: Floats
) -> int:
    """Write the transfers that begin after a gap that is not among the shortest, and how long it is; return how many.

    Parameters
    ----------
    latest : ns, the last end of this and all earlier transfers of its series
    """
    count = 0
    for i in range(low + 1, high):
        gap = starts[i] - latest[i - 1]
        if gap > shortest_gap:
            places[count], gaps[count] = i, gap
            count += 1
    return count


@compiled
def ways_to_cut(
    gaps: Floats,
    count: int,
    others: bool,
    shortest_gap: float,
    clearest_ratio: float,
    few_ratio: float,
    thresholds: Floats,
    clarities: Floats,
) -> int:
    """Write the thresholds that may cut a series, each with its clarity, the clearest first; return how many.

    Parameters
    ----------
    gaps : those longer than the shortest
    others : whether there are shorter ones, which all are alike
    """
    ordered, ranks, ratios = np.empty(count + 1), np.empty(count + 1, np.int64), np.empty(count + 1)
    for i in range(count):
        ordered[i] = -gaps[i]
    sort(ordered, ranks, count)
    if others:
        ordered[count] = -shortest_gap
    last, clear = count - 1 + others, 0
    for rank in range(last):
        ratio = ordered[rank] / ordered[rank + 1]
        if ratio >= min(clearest_ratio, few_ratio):
            ranks[clear], ratios[clear] = rank, -ratio
            clear += 1
    sort(ratios, ranks, clear)
    ways = 0
    for i in range(min(clear, MOST_CANDIDATES)):
        rank = ranks[i]
        if -ratios[i] >= (clearest_ratio if rank >= FEW - 1 else few_ratio):
            thresholds[ways], clarities[ways] = np.sqrt(ordered[rank] * ordered[rank + 1]), -ratios[i]
            ways += 1
    if not others:  # perhaps no gap stands out because every transfer is a burst of its own
        thresholds[ways], clarities[ways] = -ordered[last] / 2, -ordered[last] / shortest_gap
        ways += 1
    return ways
