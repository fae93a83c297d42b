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
from llmprism_tasks.methods.steadiness import Rhythms, rhythm_of_bursts

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
def _messages(starts: Integers, ends: Integers, directions: Integers) -> tuple[Integers, Integers]:
    """Number messages, and say where each begins: transfers of one direction that overlap are parts of one."""
    numbers, firsts = np.empty(starts.size, np.int64), np.empty(starts.size, np.int64)
    latest, last, count = np.zeros(2, np.int64), np.full(2, -1, np.int64), 0
    for i in range(starts.size):
        direction = directions[i]
        if last[direction] < 0 or starts[i] > latest[direction]:
            last[direction], firsts[count] = count, i
            latest[direction] = ends[i]
            count += 1
        numbers[i] = last[direction]
        latest[direction] = max(latest[direction], ends[i])
    return numbers, firsts[:count]


@compiled
def _nearest(times: Floats, others: Floats) -> Integers:
    """Return for each time which of the others is the nearest; both in ascending order."""
    found = np.searchsorted(others, times)
    for i in range(times.size):
        after, before = min(found[i], others.size - 1), max(found[i] - 1, 0)
        found[i] = before if times[i] - others[before] <= abs(others[after] - times[i]) else after
    return found


@compiled
def _alone(times: Floats, others: Floats) -> Integers:
    """Mark the times that no other goes with: 1, or 0."""
    alone = np.ones(times.size, np.int64)
    if times.size < 2 or others.size < 2:
        return alone
    close = CLOSE * np.median(np.diff(times))
    there, back = _nearest(times, others), _nearest(others, times)
    for i in range(times.size):
        if back[there[i]] == i and abs(times[i] - others[there[i]]) < close:
            alone[i] = 0
    return alone


@compiled
def _turns(times: Floats, ways: Integers, first: int) -> Integers:
    """Mark the messages that begin anew: alone, in direction `first`, after one that was alone in the other."""
    alone = np.zeros(times.size, np.int64)
    own, other = np.flatnonzero(ways == 0), np.flatnonzero(ways == 1)
    alone[own] = _alone(times[own], times[other])
    alone[other] = _alone(times[other], times[own])
    begins = np.zeros(times.size, np.int64)
    for i in range(1, times.size):
        if alone[i] and alone[i - 1] and ways[i] == first and ways[i - 1] != first:
            begins[i] = 1
    return begins


@compiled
def _weights(sizes: Integers, directions: Integers, firsts: Integers, burst: Integers) -> Integers:
    """Return what must be equal in all bursts: bytes; where all of them come back in each, messages, however long."""
    moved = np.zeros((burst[-1] + 1, 2))
    for i in range(sizes.size):
        moved[burst[i], directions[i]] += sizes[i]
    inner = moved[1:-1]
    returned = np.abs(inner[:, 0] - inner[:, 1]) <= RETURNED * np.maximum(inner[:, 0], inner[:, 1])
    if inner.shape[0] == 0 or returned.mean() < MOST:
        return sizes
    weights = np.zeros_like(sizes)
    weights[firsts] = 1
    return weights


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
    series = offsets.size - 1
    thresholds, clarities = np.full(series, np.nan), np.zeros(series)
    periods, means, durations = np.full(series, np.nan), np.full(series, np.nan), np.full(series, np.nan)
    counts, numbers = np.zeros(series, np.int64), np.full(starts.size, -1, np.int64)
    for s in range(series):
        low, high = offsets[s], offsets[s + 1]
        if high == low:
            continue
        message, firsts = _messages(starts[low:high], ends[low:high], directions[low:high])
        times = (starts[low:high][firsts] - starts[low]).astype(np.float64)
        ways = directions[low:high][firsts]
        for first in range(2):
            cut = np.cumsum(_turns(times, ways, first))
            if cut[-1] == 0:
                continue
            burst = cut[message]
            each = 0.5 * times.size / (cut[-1] + 1)
            period, mean, duration = rhythm_of_bursts(
                burst,
                starts[low:high],
                ends[low:high],
                _weights(sizes[low:high], directions[low:high], firsts, burst),
                each,
                byte_tolerance,
                pace_tolerance,
                few_ratio,
            )
            if np.isnan(period) or (counts[s] and duration >= durations[s]):
                continue
            thresholds[s], periods[s], means[s], durations[s] = 0.0, period, mean, duration
            clarities[s], counts[s] = each, cut[-1] + 1
            numbers[low:high] = burst
    return thresholds, periods, means, durations, clarities, counts, numbers
