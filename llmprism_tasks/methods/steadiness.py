"""Steadiness: whether bursts are steps, which carry equal bytes at a steady pace, and how long their period is."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Floats, Integers

FEW = 3
"""Bursts that are too few for a median: of four, two lie inside, whole, and their difference can be looked at."""


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


@compiled
def _typical_change(values: Floats) -> float:
    """Median difference of neighbours over the median; infinite below two values, which have no neighbours."""
    if values.size < 2:
        return math.inf
    middle = float(np.median(values))
    if middle <= 0:
        return math.inf
    return float(np.median(np.abs(np.diff(values))) / middle)


@compiled
def _steady(burst_bytes: Floats, pace: Floats, byte_tolerance: float, pace_tolerance: float) -> bool:
    """Whether bursts carry equal bytes at a steady pace; the first and the last may be cut off."""
    return _typical_change(burst_bytes[1:-1]) <= byte_tolerance and _typical_change(pace) <= pace_tolerance


@compiled
def _few_alike(burst_bytes: Floats, pace: Floats, byte_tolerance: float, pace_tolerance: float) -> bool:
    """Whether two or three bursts carry equal bytes, three at an equal distance."""
    alike = bool(burst_bytes.max() <= burst_bytes.min() * (1 + byte_tolerance))
    return alike and bool(pace.max() <= pace.min() * (1 + pace_tolerance))


@compiled
def rhythm_of_bursts(
    numbers: Integers,
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    clarity: float,
    byte_tolerance: float,
    pace_tolerance: float,
    few_ratio: float,
) -> tuple[float, float, float]:
    """Return the period of one series' bursts (ns; median and mean) and their median duration; NaN if not periodic.

    Parameters
    ----------
    numbers : the burst of each transfer, from 0, all in use
    clarity : how sure the cuts are; two or three bursts are believed from `few_ratio` on
    """
    count = numbers.max() + 1
    burst_starts, burst_ends = np.full(count, np.inf), np.zeros(count, dtype=np.float64)
    burst_bytes = np.zeros(count, dtype=np.float64)
    for i in range(numbers.size):
        burst_starts[numbers[i]] = min(burst_starts[numbers[i]], float(starts[i] - starts[0]))
        burst_ends[numbers[i]] = max(burst_ends[numbers[i]], float(ends[i] - starts[0]))
        burst_bytes[numbers[i]] += sizes[i]
    return rhythm(burst_starts, burst_ends, burst_bytes, clarity, byte_tolerance, pace_tolerance, few_ratio)


@compiled
def rhythm(
    burst_starts: Floats,
    burst_ends: Floats,
    burst_bytes: Floats,
    clarity: float,
    byte_tolerance: float,
    pace_tolerance: float,
    few_ratio: float,
) -> tuple[float, float, float]:
    """Return what `rhythm_of_bursts` does, by each burst's first start, last end (both ns) and bytes."""
    count, pace = burst_ends.size, np.diff(burst_ends)
    if count > FEW:
        periodic = _steady(burst_bytes, pace, byte_tolerance, pace_tolerance)
    else:
        periodic = count > 1 and clarity >= few_ratio and _few_alike(burst_bytes, pace, byte_tolerance, pace_tolerance)
    if not periodic:
        return math.nan, math.nan, math.nan
    return float(np.median(pace)), float(np.mean(pace)), float(np.median(burst_ends - burst_starts))
