"""Trickles: transfers about which their series moves next to nothing, and small ones after which it does not go on.

A series that moves much in bursts begins a burst as late after the last one as it has paused between earlier bursts. If
it stops there, the beginning is little, and nothing much is near it; yet it is no trickle. Nor is a small transfer if
most bursts began with one of its size: it is the beginning of the next burst.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import FLOAT64, FLOAT64S, INT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import MAJORITY, Flags, Floats, Integers


@subroutine
def _begins_bursts(size: int, begun: Integers, same: float, recurs: int) -> bool:
    """Say whether most bursts of a series, which began with such sizes, began with one of this size."""
    alike = (np.abs(begun - size) <= same * size).sum()
    return bool(alike >= recurs and alike > MAJORITY * begun.size)


@subroutine
def _mark_after_last_burst(
    marked: Flags,
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    begun: Integers,
    pause: int,
    same: float,
    recurs: int,
) -> None:
    """Mark what follows the last burst of a series, too, if its like came before it and comes after it."""
    for i in range(sizes.size - 1, 0, -1):
        if marked[i]:
            continue
        alike = np.abs(sizes - sizes[i]) <= same * sizes[i]
        among = min(alike[:i].sum(), alike[i + 1 :].sum()) >= recurs
        if starts[i] - ends[i - 1] <= pause or not among or _begins_bursts(sizes[i], begun, same, recurs):
            return
        marked[i] = True


@kernel(INT64S, INT64S, INT64S, INT64S, FLOAT64S, INT64, INT64, INT64, FLOAT64, FLOAT64, INT64)
def trickles(
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    offsets: Integers,
    least: Floats,
    small: int,
    reach: int,
    pause: int,
    longer: float,
    same: float,
    recurs: int,
) -> Flags:
    """Return which transfers are trickles, shape (transfers,).

    Parameters
    ----------
    starts, ends, sizes : shape (transfers,), each series in order of the starts
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    least : shape (series,): what a series moves, at least, about a transfer that is no trickle
    small : the size below which a transfer is small
    reach : how long before and after a transfer counts, in the unit of the starts
    pause : from which a transfer that follows the one before it later than this begins something new
    longer : the ratio by which a pause may be longer than the second longest of the same series before it: once, a
        series may have paused for anything
    same : the ratio by which two transfers of one size may differ
    recurs : how many bursts, at least, have begun with a transfer of one size where that shows anything
    """
    marked = np.zeros(starts.size, np.bool_)
    begun = np.zeros(starts.size and np.diff(offsets).max(), np.int64)
    for series in range(least.size):
        first, until, before, after = offsets[series], offsets[series], 0, 0
        last = worked = starts[first] - pause - 1
        longest = second = bursts = 0
        for i in range(offsets[series], offsets[series + 1]):
            while until < offsets[series + 1] and starts[until] <= starts[i] + reach:
                after += sizes[until]
                until += 1
            while starts[first] < starts[i] - reach:
                before -= sizes[first]
                first += 1
            begins = starts[i] - last > pause
            over = begins and after < least[series] and sizes[i] < small
            if over:
                over = not _begins_bursts(sizes[i], begun[:bursts], same, recurs)
            elif begins and after >= least[series] and i + 1 < offsets[series + 1] and starts[i + 1] - ends[i] <= pause:
                begun[bursts] = sizes[i]
                bursts += 1
            since = starts[i] - worked
            if before + after >= least[series]:
                second = max(second, min(longest, since))
                longest, worked = max(longest, since), max(worked, ends[i])
            else:
                over |= since > (1 + longer) * second
            marked[i] = over
            before, after = before + sizes[i], after - sizes[i]
            last = max(last, ends[i])
        mine = slice(offsets[series], offsets[series + 1])
        _mark_after_last_burst(marked[mine], starts[mine], ends[mine], sizes[mine], begun[:bursts], pause, same, recurs)
    return marked
