"""Regularity: whether bursts carry equal bytes at a steady pace, as steps do, and how long their period is."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.jit import subroutine
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import median

FEW_BURSTS = 3
"""Bursts that are too few for a median: of four, two lie inside, whole, and their difference can be looked at."""


MANY_BURSTS = 8
"""Whole bursts from which on their bytes alone can tell that they are steps: chance makes so many alike in no pair of
the captures and simulated platforms that does not train."""

EXACT_BURSTS = 0.9
"""Ratio of many bursts that must carry equal bytes for their pace to be free within `UNEVEN_PERIODS`: loss changes
some."""

UNEVEN_PERIODS = 0.4
"""Relative difference that neighbouring periods may typically have where the bytes alone tell. Samples whose lengths
vary log-normally with a sigma of 0.35 make it 0.33; what comes at times anywhere between a fifth and nearly twice of
the mean makes it 0.41 to 0.47, and what comes at random times 1.1."""

ROUNDING = 1 - 1e-9
"""Times a tolerance within which no rounding takes a difference beyond it."""


class Rhythms(NamedTuple):
    """What repeats in each series; arrays of shape (series,).

    Attributes
    ----------
    threshold : ns, gaps above it cut; NaN where no way of cutting is periodic
    period : ns, median time from one burst's end to the next; NaN likewise
    mean_period : ns, mean of the same
    duration : ns, median time from a burst's first start to its last end; NaN likewise
    clarity : how many times longer the shortest cutting gap is than the longest other; 0 where there is none
    bursts : how many bursts that makes; 0 where there is none
    """

    threshold: Floats
    period: Floats
    mean_period: Floats
    duration: Floats
    clarity: Floats
    bursts: Integers


@subroutine
def no_rhythms(series: int) -> Rhythms:
    """Return what is known of series in which nothing repeats."""
    threshold, period, mean = np.full(series, np.nan), np.full(series, np.nan), np.full(series, np.nan)
    return Rhythms(threshold, period, mean, np.full(series, np.nan), np.zeros(series), np.zeros(series, np.int64))


@subroutine
def burst_numbers(begins: Integers, transfers: int) -> Integers:
    """Return the burst of each transfer of a series, by the first transfer of each burst."""
    numbers = np.zeros(transfers, np.int64)
    for burst in range(1, begins.size):
        numbers[begins[burst] :] = burst
    return numbers


@subroutine
def burst_extents(
    numbers: Integers, bursts: int, starts: Integers, ends: Integers, sizes: Integers
) -> tuple[Floats, Floats, Floats]:
    """Return the first start and the last end of each burst, in ns after a series begins, and its bytes.

    Parameters
    ----------
    numbers : the burst of each transfer
    bursts : how many there are
    """
    firsts, lasts, carried = np.full(bursts, np.inf), np.zeros(bursts), np.zeros(bursts)
    for i in range(starts.size):
        burst = numbers[i]
        firsts[burst] = min(firsts[burst], float(starts[i] - starts[0]))
        lasts[burst] = max(lasts[burst], float(ends[i] - starts[0]))
        carried[burst] += sizes[i]
    return firsts, lasts, carried


@subroutine
def _is_steady(values: Floats, low: int, high: int, tolerance: float) -> bool:
    """Whether the median difference of neighbours over the median is within a tolerance; not below two values, which
    have no neighbours."""
    count = high - low
    if count < 2:
        return False
    least, most = values[low], values[low]
    for i in range(low, high):
        least, most = min(least, values[i]), max(most, values[i])
    if least > 0 and most - least <= ROUNDING * tolerance * least:
        return True
    room, changes, within = values[low:high].copy(), count - 1, 0
    middle = median(room, count)
    if middle <= 0:
        return False
    for i in range(changes):
        room[i] = abs(values[low + i + 1] - values[low + i])
        within += room[i] / middle <= tolerance
    if 2 * within != changes:
        return bool(2 * within > changes)
    return bool(median(room, changes) / middle <= tolerance)


@subroutine
def _is_uniform(values: Floats, count: int, tolerance: float) -> bool:
    least, most = values[0], values[0]
    for i in range(1, count):
        least, most = min(least, values[i]), max(most, values[i])
    return bool(most <= least * (1 + tolerance))


@subroutine
def _is_exact(values: Floats, low: int, high: int, tolerance: float, clear: bool) -> bool:
    """Whether there are many values, or clear ones, and nearly all of them are within a tolerance of their median."""
    count = high - low
    if count < MANY_BURSTS and not clear:
        return False
    room, within = values[low:high].copy(), 0
    middle = median(room, count)
    for i in range(low, high):
        within += abs(values[i] - middle) <= tolerance * middle
    return bool(within >= EXACT_BURSTS * count)


@subroutine
def rhythm(
    burst_starts: Floats,
    burst_ends: Floats,
    burst_bytes: Floats,
    count: int,
    clarity: float,
    byte_tolerance: float,
    pace_tolerance: float,
    uneven_tolerance: float,
    few_ratio: float,
) -> tuple[float, float, float]:
    """Return the period of one series' bursts (ns; median and mean) and their median duration; NaN if not periodic.

    Those are periodic that carry equal bytes at a steady pace; the first and the last of them may be cut off. The pace
    of many that all carry the same bytes may vary more, as where samples have different lengths.

    Parameters
    ----------
    burst_starts, burst_ends : first start and last end of each burst, ns
    count : how many bursts there are, from the beginning of the arrays; one at least
    clarity : how sure the cuts are; two or three bursts, three at an equal distance, are believed from `few_ratio` on
    uneven_tolerance : as `pace_tolerance`, where nearly all of many bursts carry the same bytes, or all of several
        bursts that are as clear as two or three have to be
    """
    pace, periods = np.empty(count), count - 1
    for i in range(periods):
        pace[i] = burst_ends[i + 1] - burst_ends[i]
    if count > FEW_BURSTS:
        periodic = _is_steady(burst_bytes, 1, periods, byte_tolerance) and (
            _is_steady(pace, 0, periods, pace_tolerance)
            or (
                _is_exact(burst_bytes, 1, periods, byte_tolerance, clarity >= few_ratio)
                and _is_steady(pace, 0, periods, uneven_tolerance)
            )
        )
    else:
        periodic = (
            count > 1
            and clarity >= few_ratio
            and _is_uniform(burst_bytes, count, byte_tolerance)
            and _is_uniform(pace, periods, pace_tolerance)
        )
    if not periodic:
        return math.nan, math.nan, math.nan
    total, durations = 0.0, np.empty(count)
    for i in range(periods):
        total += pace[i]
    for i in range(count):
        durations[i] = burst_ends[i] - burst_starts[i]
    return median(pace, periods), total / periods, median(durations, count)
