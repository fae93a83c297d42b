"""Step boundaries of a pipeline: where unanswered gradients are followed by unanswered activations.

In a pipeline's steady phase an activation goes one way when a gradient comes the other. Only at the beginning of a step
activations go alone, and only at its end gradients come alone. So where a transfer that nothing answers is followed by
one in the other direction that nothing answers either, one step has ended and the next begun, however long the pause.
Where the first gradient comes alone, too, the same is seen once more in each step, after the activations that fill the
pipeline; but a pipeline is full for longer than it is empty.
Micro-batches of uneven lengths have activations of uneven sizes, but each of them comes back as its gradient.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import FLOAT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import median
from llmprism_tasks.stages.step_division.kernels.regularity import (
    UNEVEN_PERIODS,
    Rhythms,
    burst_extents,
    no_rhythms,
    rhythm,
)

CLOSE_TRANSFERS = 0.5
"""Ratio of the time between a direction's transfers within which one of the other direction goes with it."""

RETURNED_TOLERANCE = 0.02
"""Ratio within which a burst's bytes come back: a gradient has its activation's size, headers change it by less."""

RETURNING_BURSTS = 0.9
"""Ratio of the bursts of which everything comes back for messages to count instead of bytes."""


def reversal_bursts(
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
    """Cut each series where its direction reverses, and test whether that makes periodic bursts.

    Parameters
    ----------
    starts, ends : ns, transfers of all series one after another, each series in order of its starts
    sizes : bytes
    directions : 0 or 1, which of the two ends sends
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    byte_tolerance, pace_tolerance : as for `gap_segmentation.quiet_gaps`
    few_ratio : two or three bursts must have this many messages in each direction

    Returns
    -------
    what repeats in each series (`threshold` is 0, for no gap cuts; `clarity` how many messages a burst has in each
    direction), and the burst of each transfer; -1 throughout a series that is not periodic
    """
    tolerances = (float(byte_tolerance), float(pace_tolerance), float(few_ratio))
    return _reversal_bursts(starts, ends, sizes, directions, offsets, *tolerances)


@subroutine
def _number_messages(
    starts: Integers, ends: Integers, directions: Integers, numbers: Integers, firsts: Integers
) -> int:
    """Number one series' messages, write where each begins, and return how many there are.

    Transfers of one direction that overlap are parts of one.
    """
    latest, last, count = np.zeros(2, np.int64), np.full(2, -1, np.int64), 0
    for i in range(starts.size):
        direction = directions[i]
        if last[direction] < 0 or starts[i] > latest[direction]:
            last[direction], firsts[count] = count, i
            latest[direction] = ends[i]
            count += 1
        numbers[i] = last[direction]
        latest[direction] = max(latest[direction], ends[i])
    return count


@subroutine
def _find_nearest_opposite(
    times: Floats, own: Integers, owns: int, other: Integers, others: int, nearest: Integers
) -> None:
    """Write the nearest message of the other direction for each message of one direction.

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


@subroutine
def _pairing_time(times: Floats, own: Integers, owns: int) -> float:
    """Return within which time a message of the other direction goes with one of this direction."""
    between = np.empty(owns)
    for i in range(owns - 1):
        between[i] = times[own[i + 1]] - times[own[i]]
    return CLOSE_TRANSFERS * median(between, owns - 1)


@subroutine
def _mark_unanswered(times: Floats, firsts: Integers, directions: Integers, count: int, alone: Integers) -> None:
    """Mark (1, else 0) the messages that have no message of the other direction close by."""
    one, other, nearest = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    ones, others = 0, 0
    for i in range(count):
        alone[i] = 1
        if directions[firsts[i]] == 0:
            one[ones] = i
            ones += 1
        else:
            other[others] = i
            others += 1
    if ones < 2 or others < 2:
        return
    _find_nearest_opposite(times, one, ones, other, others, nearest)
    _find_nearest_opposite(times, other, others, one, ones, nearest)
    close_one, close_other = _pairing_time(times, one, ones), _pairing_time(times, other, others)
    for i in range(count):
        close = close_other if directions[firsts[i]] else close_one
        if nearest[nearest[i]] == i and abs(times[i] - times[nearest[i]]) < close:
            alone[i] = 0


@subroutine
def _number_bursts(
    alone: Integers, firsts: Integers, directions: Integers, count: int, first: int, bursts: Integers
) -> int:
    """Number the bursts that messages make, and return the last: one begins where one is alone in direction `first`,
    after one that was alone in the other."""
    bursts[0] = 0
    for i in range(1, count):
        turns = alone[i] and alone[i - 1]
        bursts[i] = bursts[i - 1]
        if turns and directions[firsts[i]] == first and directions[firsts[i - 1]] != first:
            bursts[i] += 1
    return int(bursts[count - 1])


@subroutine
def _has_returned_bytes(numbers: Integers, directions: Integers, sizes: Integers, carried: Floats) -> bool:
    """Say whether what goes one way comes back the other in most bursts, the first and the last left out.

    Parameters
    ----------
    numbers : the burst of each transfer
    carried : bytes of each burst
    """
    there, count = np.zeros(carried.size), carried.size
    for i in range(sizes.size):
        there[numbers[i]] += sizes[i] * (directions[i] == 0)
    returned = 0
    for burst in range(1, count - 1):
        one, other = there[burst], carried[burst] - there[burst]
        returned += abs(one - other) <= RETURNED_TOLERANCE * max(one, other)
    return bool(count > 2 and returned >= RETURNING_BURSTS * (count - 2))


@subroutine
def _fullness(bursts: Integers, alone: Integers, firsts: Integers, directions: Integers, count: int, first: int) -> int:
    """Say whether a link is full (1) or empty (-1) for longer in most bursts, the first and the last left out; 0 for
    neither, as where all that is sent in one direction comes back after it.

    An activation and a gradient that go together change nothing, whichever is first.

    Parameters
    ----------
    bursts : the burst of each message
    first : the direction in which a burst begins
    """
    full, empty, whole, i = 0, 0, 0, 0
    while i < count:
        burst, level, total, most, messages = bursts[i], 0, 0, 0, 0
        while i < count and bursts[i] == burst:
            level += alone[i] if directions[firsts[i]] == first else -alone[i]
            total, most, messages = total + level, max(most, level), messages + 1
            i += 1
        if 0 < burst < bursts[count - 1]:
            whole += 1
            full += 2 * total > messages * most
            empty += 2 * total < messages * most
    return int(2 * full > whole) - int(2 * empty > whole)


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, FLOAT64, FLOAT64, FLOAT64)
def _reversal_bursts(
    all_starts: Integers,
    all_ends: Integers,
    all_sizes: Integers,
    all_directions: Integers,
    offsets: Integers,
    byte_tolerance: float,
    pace_tolerance: float,
    few_ratio: float,
) -> tuple[Rhythms, Integers]:
    found, numbers = no_rhythms(offsets.size - 1), np.full(all_starts.size, -1, np.int64)
    for s in range(offsets.size - 1):
        low, high = offsets[s], offsets[s + 1]
        if high == low:
            continue
        starts, ends, sizes = all_starts[low:high], all_ends[low:high], all_sizes[low:high]
        directions, n = all_directions[low:high], high - low
        message, firsts, alone = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
        times, bursts = np.empty(n), np.empty(n, np.int64)
        messages = _number_messages(starts, ends, directions, message, firsts)
        for i in range(messages):
            times[i] = starts[firsts[i]] - starts[0]
        _mark_unanswered(times, firsts, directions, messages, alone)
        fullest = -1
        for first in range(2):
            count = _number_bursts(alone, firsts, directions, messages, first, bursts) + 1
            if count == 1:
                continue
            each, own_numbers = 0.5 * messages / count, bursts[message]
            firsts_ns, lasts_ns, carried = burst_extents(own_numbers, count, starts, ends, sizes)
            if _has_returned_bytes(own_numbers, directions, sizes, carried):
                carried[:] = 0.0
                for i in range(messages):
                    carried[bursts[i]] += 1.0
            period, mean, duration = rhythm(
                firsts_ns, lasts_ns, carried, count, each, byte_tolerance, pace_tolerance, UNEVEN_PERIODS, few_ratio
            )
            if np.isnan(period):
                continue
            fullness = _fullness(bursts, alone, firsts, directions, messages, first)
            if found.bursts[s] and (fullness < fullest or (fullness == fullest and duration >= found.duration[s])):
                continue
            fullest = fullness
            found.threshold[s], found.clarity[s], found.bursts[s] = 0.0, each, count
            found.period[s], found.mean_period[s], found.duration[s] = period, mean, duration
            numbers[low:high] = own_numbers
    return found, numbers
