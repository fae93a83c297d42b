"""Reassembly of messages that the collector cut into several flow records.

A flow record ends when its connection was silent for the collector's idle timeout. Where a NIC or a link is slow, the
sender pauses within a message, and what was always one record comes as many: too small to tell a pace, and of no size
that the pair is known by. Such records show by their sum, which is the size that the pair sends all the time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.jit import BOOLEANS, FLOAT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import MAJORITY, Integers


def begins(
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    offsets: Integers,
    usual: Integers,
    *,
    same_size: float,
    longest_pause: float,
) -> npt.NDArray[np.bool_]:
    """Mark the records with which a message begins: all but what goes on with one.

    Parameters
    ----------
    starts, ends : ns, records of all series one after another, each series in order of its starts
    sizes, offsets, same_size : as for `usual_sizes`
    usual : bytes of a message of each series; 0 for those of which every record is taken for one
    longest_pause : ns between two records of one message
    """
    return _message_starts(starts, ends, sizes, offsets, usual, float(same_size), float(longest_pause))


@subroutine
def _majority_candidate(sizes: Integers, same_size: float) -> int:
    """Return the size that would win if more than half of the bytes were of one."""
    usual, votes = 0, 0
    for size in sizes:
        if abs(size - usual) <= same_size * usual:
            votes += size
        elif votes >= size:
            votes -= size
        else:
            usual, votes = size, size - votes
    return usual


@kernel(INT64S, INT64S, FLOAT64)
def usual_sizes(sizes: Integers, offsets: Integers, same_size: float) -> Integers:
    """Return the size of each series that carries more than half of its bytes; 0 where none does.

    Found by a vote in which bytes of other sizes cancel its own (R. S. Boyer and J. S. Moore, MJRTY, 1981).

    Parameters
    ----------
    sizes : bytes, records of all series one after another
    offsets : shape (series + 1,): series i holds the records `offsets[i]` to `offsets[i + 1]`
    same_size : ratio by which records of one size may differ
    """
    found = np.zeros(offsets.size - 1, np.int64)
    for series in range(found.size):
        mine = sizes[offsets[series] : offsets[series + 1]]
        usual, alike, total = _majority_candidate(mine, same_size), 0, 0
        for size in mine:
            alike += size * (abs(size - usual) <= same_size * usual)
            total += size
        if alike > MAJORITY * total:
            found[series] = usual
    return found


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, FLOAT64, FLOAT64)
def _message_starts(
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    offsets: Integers,
    usual: Integers,
    same_size: float,
    longest_pause: float,
) -> npt.NDArray[np.bool_]:
    marked = np.ones(sizes.size, np.bool_)
    for series in range(usual.size):
        row, high = offsets[series], offsets[series + 1]
        least, most = usual[series] * (1 - same_size), usual[series] * (1 + same_size)
        while usual[series] > 0 and row < high:
            last, moved, until = row, sizes[row], ends[row]
            while last + 1 < high and starts[last + 1] - until <= longest_pause and moved + sizes[last + 1] <= most:
                last += 1
                moved += sizes[last]
                until = max(until, ends[last])
            if least <= moved <= most:
                marked[row + 1 : last + 1] = False
                row = last
            row += 1
    return marked


@kernel(INT64S, INT64S, BOOLEANS)
def joined_messages(ends: Integers, sizes: Integers, begins: npt.NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """Return the end and the bytes of each message; parameters as for `begins`, and what that returns."""
    count = 0
    for begin in begins:
        count += begin
    lasts, whole, last = np.empty(count, np.int64), np.empty(count, np.int64), -1
    for row in range(begins.size):
        if begins[row]:
            last += 1
            lasts[last], whole[last] = ends[row], sizes[row]
        else:
            lasts[last] = max(lasts[last], ends[row])
            whole[last] += sizes[row]
    return lasts, whole
