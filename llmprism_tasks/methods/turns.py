"""Turns: where two ends that send to each other in pairs have run out and begin anew.

In a pipeline's steady phase an activation goes one way when a gradient comes the other. Only at the beginning of a step
activations go alone, and only at its end gradients come alone. So where a transfer that nothing answers is followed by
one in the other direction that nothing answers either, one step has ended and the next begun, however long the pause.
Micro-batches of uneven lengths have activations of uneven sizes, but each of them comes back as its gradient.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Floats, Integers
from llmprism_tasks.methods.sorting import median
from llmprism_tasks.methods.steadiness import Rhythms, rhythm

CLOSE = 0.5
"""Ratio of the time between a direction's transfers within which one of the other direction goes with it."""


def turning_bursts(
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    directions: Integers,
    offsets: Integers,
    *,
    byte_tolerance: float,
    pace_tolerance: float,
    few_ratio: float,
) -> tuple[Rhythms, Integers]:
    """Cut each series at its turns, and say whether that makes periodic bursts.

    Parameters
    ----------
    starts, ends : ns, transfers of all series one after another, each series in order of its starts
    sizes : bytes
    directions : 0 or 1, which of the two ends sends
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    byte_tolerance, pace_tolerance : as for `bursts.quiet_gaps`
    few_ratio : two or three bursts must have this many messages in each direction

    Returns
    -------
    what repeats in each series (`threshold` is 0, for no gap cuts; `clarity` how many messages a burst has in each
    direction), and the burst of each transfer; -1 throughout a series that is not periodic
    """
    threshold, period, mean, duration, clarity, count, numbers = _turning_bursts(
        starts, ends, sizes, directions, offsets, float(byte_tolerance), float(pace_tolerance), float(few_ratio)
    )
    return Rhythms(threshold, period, mean, duration, clarity, count), numbers


RETURNED = 0.02
"""Ratio within which a burst's bytes come back: a gradient has its activation's size, headers change it by less."""

MOST = 0.9
"""Ratio of the bursts of which everything comes back for messages to count instead of bytes."""


@compiled
def _messages(
    starts: Integers, ends: Integers, directions: Integers, low: int, high: int, numbers: Integers, firsts: Integers
) -> int:
    """Number one series' messages, write where each begins, and return how many there are.

    Transfers of one direction that overlap are parts of one.
    """
    latest, last, count = np.zeros(2, np.int64), np.full(2, -1, np.int64), 0
    for i in range(low, high):
        direction = directions[i]
        if last[direction] < 0 or starts[i] > latest[direction]:
            last[direction], firsts[count] = count, i
            latest[direction] = ends[i]
            count += 1
        numbers[i] = last[direction]
        latest[direction] = max(latest[direction], ends[i])
    return count


@compiled
def _nearest(times: Floats, own: Integers, owns: int, other: Integers, others: int, nearest: Integers) -> None:
    """Write for each message of one direction which one of the other is the nearest.

    Parameters
    ----------
    times : ns, when each message begins
    own, other : the messages of each direction, in order of time
    owns, others : how many there are, one at least
    """
    after = 0
    for i in range(owns):
        time = times[own[i]]
        while after < others and times[other[after]] < time:
            after += 1
        late, early = other[min(after, others - 1)], other[max(after - 1, 0)]
        nearest[own[i]] = early if time - times[early] <= abs(times[late] - time) else late


@compiled
def _close(times: Floats, own: Integers, owns: int) -> float:
    """Return within which time a message of the other direction goes with one of this direction."""
    between = np.empty(owns)
    for i in range(owns - 1):
        between[i] = times[own[i + 1]] - times[own[i]]
    return CLOSE * median(between, owns - 1)


@compiled
def _alone(times: Floats, firsts: Integers, directions: Integers, count: int, alone: Integers) -> None:
    """Mark the messages that none of the other direction goes with: 1, or 0."""
    ways, many, nearest = np.empty((2, count), np.int64), np.zeros(2, np.int64), np.empty(count, np.int64)
    for i in range(count):
        way = directions[firsts[i]]
        ways[way, many[way]], alone[i] = i, 1
        many[way] += 1
    if many[0] < 2 or many[1] < 2:
        return
    _nearest(times, ways[0], many[0], ways[1], many[1], nearest)
    _nearest(times, ways[1], many[1], ways[0], many[0], nearest)
    for way in range(2):
        close = _close(times, ways[way], many[way])
        for place in range(many[way]):
            i = ways[way, place]
            if nearest[nearest[i]] == i and abs(times[i] - times[nearest[i]]) < close:
                alone[i] = 0


@compiled
def _bursts(alone: Integers, firsts: Integers, directions: Integers, count: int, first: int, bursts: Integers) -> int:
    """Number the bursts that messages make, and return the last: one begins where one is alone in direction `first`,
    after one that was alone in the other."""
    bursts[0] = 0
    for i in range(1, count):
        turns = alone[i] and alone[i - 1]
        bursts[i] = bursts[i - 1]
        if turns and directions[firsts[i]] == first and directions[firsts[i - 1]] != first:
            bursts[i] += 1
    return bursts[count - 1]


@compiled
def _extents(
    message: Integers,
    bursts: Integers,
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    low: int,
    high: int,
    count: int,
    extents: Floats,
) -> None:
    """Write the first start, the last end and the bytes of each burst, ns after the series begins."""
    for burst in range(count):
        extents[0, burst], extents[1, burst], extents[2, burst] = np.inf, 0.0, 0.0
    for i in range(low, high):
        burst = bursts[message[i]]
        extents[0, burst] = min(extents[0, burst], float(starts[i] - starts[low]))
        extents[1, burst] = max(extents[1, burst], float(ends[i] - starts[low]))
        extents[2, burst] += sizes[i]


@compiled
def _returns(
    message: Integers,
    bursts: Integers,
    directions: Integers,
    sizes: Integers,
    low: int,
    high: int,
    count: int,
    moved: Floats,
) -> bool:
    """Say whether what goes one way comes back the other in most bursts, the first and the last left out."""
    for burst in range(count):
        moved[0, burst], moved[1, burst] = 0.0, 0.0
    for i in range(low, high):
        moved[directions[i], bursts[message[i]]] += sizes[i]
    returned = 0
    for burst in range(1, count - 1):
        there, back = moved[0, burst], moved[1, burst]
        returned += abs(there - back) <= RETURNED * max(there, back)
    return count > 2 and returned >= MOST * (count - 2)


@compiled
def _turning_bursts(
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    directions: Integers,
    offsets: Integers,
    byte_tolerance: float,
    pace_tolerance: float,
    few_ratio: float,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Integers, Integers]:
    series, n = offsets.size - 1, starts.size
    best, counts, numbers = np.full((5, series), np.nan), np.zeros(series, np.int64), np.full(n, -1, np.int64)
    message, firsts, alone, bursts = (
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
        np.empty(n, np.int64),
    )
    times, extents, moved = np.empty(n), np.empty((3, n)), np.empty((2, n))
    for s in range(series):
        low, high = offsets[s], offsets[s + 1]
        best[4, s] = 0.0
        if high == low:
            continue
        messages = _messages(starts, ends, directions, low, high, message, firsts)
        for i in range(messages):
            times[i] = starts[firsts[i]] - starts[low]
        _alone(times, firsts, directions, messages, alone)
        for first in range(2):
            last = _bursts(alone, firsts, directions, messages, first, bursts)
            if last == 0:
                continue
            each = 0.5 * messages / (last + 1)
            _extents(message, bursts, starts, ends, sizes, low, high, last + 1, extents)
            if _returns(message, bursts, directions, sizes, low, high, last + 1, moved):
                for burst in range(last + 1):
                    extents[2, burst] = 0.0
                for i in range(messages):
                    extents[2, bursts[i]] += 1.0
            period, mean, duration = rhythm(
                extents[0], extents[1], extents[2], last + 1, each, byte_tolerance, pace_tolerance, few_ratio
            )
            if np.isnan(period) or (counts[s] and duration >= best[3, s]):
                continue
            best[0, s], best[1, s], best[2, s], best[3, s], best[4, s] = 0.0, period, mean, duration, each
            counts[s] = last + 1
            for i in range(low, high):
                numbers[i] = bursts[message[i]]
    return best[0], best[1], best[2], best[3], best[4], counts, numbers
