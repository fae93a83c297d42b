"""Candidate thresholds: gap lengths that may separate the bursts of a series."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import subroutine
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import sort
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS

MOST_CANDIDATES = 24
"""Ways of cutting looked at in one series, the clearest first; a series of steps has a handful."""


@subroutine
def long_gaps(starts: Integers, latest: Integers, shortest_gap: float, places: Integers, gaps: Floats) -> int:
    """Write the transfers that begin after a gap that is not among the shortest, and how long it is; return how many.

    Parameters
    ----------
    starts : ns, transfers of one series
    latest : ns, the last end of this and all earlier ones
    """
    count = 0
    for i in range(1, starts.size):
        gap = starts[i] - latest[i - 1]
        if gap > shortest_gap:
            places[count], gaps[count] = i, gap
            count += 1
    return count


@subroutine
def _find_length_jumps(gaps: Floats, count: int, ratio: float, longer: Floats, shorter: Floats, ranks: Integers) -> int:
    """Write each two neighbours by length between which there are `ratio` and more, the longest first, and the rank of
    the longer one, from 0 for the longest; return how many there are.

    Such two never lie in one bin of a histogram with bins narrower than the ratio, of which only the edges count.
    """
    bits = 52 - max(int(np.ceil(-np.log2(ratio - 1.0))) + 1, 1)  # the mantissa's, left out: a bin is half as wide
    bins = gaps.view(np.int64)
    lowest, highest = bins[0], bins[0]
    for i in range(count):
        lowest, highest = min(lowest, bins[i]), max(highest, bins[i])
    lowest >>= bits
    several = (highest >> bits) - lowest + 1
    held, least, most = np.zeros(several, np.int64), np.full(several, np.inf), np.zeros(several)
    for i in range(count):
        place = (bins[i] >> bits) - lowest
        held[place] += 1
        least[place], most[place] = min(least[place], gaps[i]), max(most[place], gaps[i])
    found, rank, above = 0, -1, several - 1
    for place in range(several - 1, -1, -1):
        if held[place] == 0:
            continue
        if place < above and least[above] / most[place] >= ratio:
            longer[found], shorter[found], ranks[found] = least[above], most[place], rank
            found += 1
        rank, above = rank + held[place], place
    return found


@subroutine
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
    if count == 0:
        return 0
    longer, shorter, ranks = np.empty(count), np.empty(count), np.empty(count, np.int64)
    least_ratio = min(clearest_ratio, few_ratio)
    clear = _find_length_jumps(gaps, count, least_ratio, longer, shorter, ranks)
    smallest = gaps[0]
    for i in range(count):
        smallest = min(smallest, gaps[i])
    if others and smallest / shortest_gap >= least_ratio:
        longer[clear], shorter[clear], ranks[clear] = smallest, shortest_gap, count - 1
        clear += 1
    falling, order = np.empty(clear), np.arange(clear)
    for i in range(clear):
        falling[i] = -(longer[i] / shorter[i])
    sort(falling, order, clear)
    ways = 0
    for i in range(min(clear, MOST_CANDIDATES)):
        way = order[i]
        if -falling[i] >= (clearest_ratio if ranks[way] >= FEW_BURSTS - 1 else few_ratio):
            thresholds[ways], clarities[ways] = np.sqrt(longer[way] * shorter[way]), -falling[i]
            ways += 1
    if not others:  # perhaps no gap stands out because every transfer is a burst of its own
        thresholds[ways], clarities[ways] = smallest / 2, smallest / shortest_gap
        ways += 1
    return ways
