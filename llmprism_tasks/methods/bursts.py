"""Bursts: where a periodic series of transfers is quiet, and how long its period is.

A training step repeats: it moves the same bytes every time, however long it takes. So a way to cut a series of
transfers at its long gaps is right when the bursts between the cuts carry equal bytes at a steady pace; of the ways
that are, the one with the clearest difference between the gaps that cut and those that do not is taken. Bytes stay
equal where records are split or merged by the collector and where steps slow down, which makes them a surer sign than
times or counts.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Floats, Integers
from llmprism_tasks.methods.sorting import quantile
from llmprism_tasks.methods.steadiness import FEW, Rhythms, rhythm
from llmprism_tasks.methods.thresholds import MOST_CANDIDATES, long_gaps, ways_to_cut

NEGLIGIBLE = 0.1
"""Ratio of a large burst's bytes below which a burst is only the next one's beginning: a rank that comes early to a
collective pushes a few megabytes, stalls until the last one comes, and leaves a record of its own. The smallest part of
a step that counts, a gather beside its reduce-scatter, has a third of the bytes."""

NESTED = 0.7
"""Ratio of the time that bursts must go on for to be steps between checkpoints rather than the buckets of a step: those
are reduced in the backward pass, two thirds of it at most. Bursts of single transfers may be the layers of a step. It
is asked whichever of the two ways of cutting is the clearer; if that is the shorter one, more than a few of the longer
bursts must lie inside, and typically be of several of the others."""

SURELY = 1 + 1e-9
"""Times the least that counts from which on no rounding makes a burst negligible."""

STEPS_APART = 1e9
"""Time, in ns, from one to the next, from which on bursts of several transfers are steps, not the buckets of one: these
are cut to come every few tens of milliseconds in the backward pass (PyTorch: 25 MB, Megatron-LM: 40 million
parameters)."""


def quiet_gaps(
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    offsets: Integers,
    *,
    shortest_gap: float,
    clearest_ratio: float,
    byte_tolerance: float,
    pace_tolerance: float,
    persistence: float,
    few_ratio: float,
) -> Rhythms:
    """Find for each series the gap that separates its periodic bursts.

    Parameters
    ----------
    starts, ends : ns, transfers of all series one after another, each series in order of its starts
    sizes : bytes
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    shortest_gap : ns; shorter gaps are all alike
    clearest_ratio : a gap cuts only if it is this many times longer than the longest that does not
    byte_tolerance : relative difference that neighbouring bursts' bytes may typically have
    pace_tolerance : relative difference that neighbouring periods may typically have
    persistence : ratio of the series' time that its periods must fill: the parts of one burst are as regular as bursts
    few_ratio : two or three bursts, too few to be typical of anything, must all be alike and the gaps between them this
        many times longer than any other
    """
    return Rhythms(
        *_quiet_gaps(
            starts,
            ends,
            sizes,
            offsets,
            float(shortest_gap),
            float(clearest_ratio),
            float(byte_tolerance),
            float(pace_tolerance),
            float(persistence),
            float(few_ratio),
        )
    )


def burst_numbers(starts: Integers, ends: Integers, sizes: Integers, offsets: Integers, threshold: Floats) -> Integers:
    """Number the bursts of each series from 0: a transfer after a gap above the series' threshold begins the next.

    What is negligible beside the series' bursts belongs to the burst that follows it.

    Returns shape (transfers,); -1 throughout a series whose threshold is NaN.
    """
    return _burst_numbers(starts, ends, sizes, offsets, threshold)


def longest_gaps(starts: Integers, ends: Integers, offsets: Integers) -> Floats:
    """Return the longest time in which nothing was under way between two transfers of each series; 0 if there is none.

    Parameters are as for `quiet_gaps`.
    """
    return _longest_gaps(starts, ends, offsets)


@compiled
def _with_next(carried: Floats, count: int, joined: Integers) -> int:
    """Number bursts by their bytes, negligible ones with the next, and return how many are left."""
    smallest, largest = carried[0], carried[0]
    for i in range(count):
        joined[i] = i
        smallest, largest = min(smallest, carried[i]), max(largest, carried[i])
    if smallest > NEGLIGIBLE * SURELY * largest:
        return count
    room, number = carried[:count].copy(), 0
    least = NEGLIGIBLE * quantile(room, count, 0.75)  # half of the bursts may be early records
    for burst in range(count):
        if burst and carried[burst - 1] >= least:
            number += 1
        joined[burst] = number
    return number + 1


@compiled
def _number(starts: Integers, ends: Integers, sizes: Integers, threshold: float, numbers: Integers) -> None:
    """Number the bursts of one series between the gaps above a threshold, negligible ones with the next."""
    carried, joined = np.zeros(starts.size), np.empty(starts.size, np.int64)
    latest, burst = ends[0], 0
    for i in range(starts.size):
        if max(starts[i] - latest, 0) > threshold:
            burst += 1
        latest = max(latest, ends[i])
        numbers[i] = burst
        carried[burst] += sizes[i]
    if _with_next(carried, burst + 1, joined) <= burst:
        for i in range(starts.size):
            numbers[i] = joined[numbers[i]]


@compiled
def _composite(starts: Integers, ends: Integers, numbers: Integers) -> bool:
    """Whether most bursts of one series are of several transfers, one after the other."""
    several, last, latest = 0, -1, ends[0]
    for i in range(1, starts.size):
        if starts[i] > latest and numbers[i] == numbers[i - 1] and numbers[i] != last:
            last = numbers[i]
            several += 1
        latest = max(latest, ends[i])
    return bool(2 * several > numbers[starts.size - 1] + 1)


@compiled
def _steady(burst_ends: Floats, count: int, pace_tolerance: float) -> float:
    """Return the time, in ns, in which a period is about as long as one beside it.

    Of steps that have become twice as long the median period is that of one half, and tells little of the other.
    """
    steady, last = 0.0, count - 2
    for i in range(last + 1):
        pace = burst_ends[i + 1] - burst_ends[i]
        before = abs(burst_ends[i] - burst_ends[i - 1] - pace) if i > 0 else np.inf
        after = abs(burst_ends[i + 2] - burst_ends[i + 1] - pace) if i < last else np.inf
        if min(before, after) <= pace_tolerance * pace:
            steady += pace
    return steady


@compiled
def _between(
    cuts: Integers,
    parts: int,
    starts: Integers,
    latest: Integers,
    moved: Integers,
    burst_starts: Floats,
    burst_ends: Floats,
    burst_bytes: Floats,
) -> int:
    """Write start, end and bytes of the bursts between cuts, negligible ones with the next; return how many there are.

    Parameters
    ----------
    cuts : the first transfer of each part, and the one after the last
    latest : as for `thresholds.long_gaps`
    moved : bytes of all transfers before each, and of all
    """
    carried, joined = np.empty(parts), np.empty(parts, np.int64)
    for part in range(parts):
        carried[part] = moved[cuts[part + 1]] - moved[cuts[part]]
    count, last = _with_next(carried, parts, joined), -1
    for part in range(parts):
        burst = joined[part]
        if burst != last:
            burst_starts[burst], burst_bytes[burst] = starts[cuts[part]] - starts[0], 0.0
        burst_ends[burst] = latest[cuts[part + 1] - 1] - starts[0]
        burst_bytes[burst] += carried[part]
        last = burst
    return count


@compiled
def _cut_at(gaps: Floats, places: Integers, long: int, threshold: float, cuts: Integers) -> int:
    """Write where the parts of a series begin that longer gaps make, and return how many there are.

    Parameters
    ----------
    gaps, places : as `thresholds.long_gaps` writes them; so many
    """
    cuts[0], parts = 0, 1
    for i in range(long):
        cuts[parts] = places[i]
        parts += gaps[i] > threshold
    return parts


@compiled
def _quiet_gaps(
    all_starts: Integers,
    all_ends: Integers,
    all_sizes: Integers,
    offsets: Integers,
    shortest_gap: float,
    clearest_ratio: float,
    byte_tolerance: float,
    pace_tolerance: float,
    persistence: float,
    few_ratio: float,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Integers]:
    series, n = offsets.size - 1, 0
    for s in range(series):
        n = max(n, offsets[s + 1] - offsets[s])
    best_thresholds, periods, means = np.full(series, np.nan), np.full(series, np.nan), np.full(series, np.nan)
    durations, best_clarities, counts = np.full(series, np.nan), np.zeros(series), np.zeros(series, np.int64)
    latest, moved, places, gaps = np.empty(n, np.int64), np.zeros(n + 1, np.int64), np.empty(n, np.int64), np.empty(n)
    cuts, numbers = np.empty(n + 1, np.int64), np.empty(n, np.int64)
    burst_starts, burst_ends, burst_bytes = np.empty(n), np.empty(n), np.empty(n)
    thresholds, clarities = np.empty(MOST_CANDIDATES + 1), np.empty(MOST_CANDIDATES + 1)
    for s in range(series):
        low, high = offsets[s], offsets[s + 1]
        starts, ends, sizes, size = all_starts[low:high], all_ends[low:high], all_sizes[low:high], high - low
        if size < 2:
            continue
        last = ends[0]
        for i in range(size):
            last = max(last, ends[i])
            latest[i], moved[i + 1] = last, moved[i] + sizes[i]
        long = long_gaps(starts, latest, shortest_gap, places, gaps)
        others = long < size - 1
        ways = ways_to_cut(gaps, long, others, shortest_gap, clearest_ratio, few_ratio, thresholds, clarities)
        filled, best_steady = 0.0, 0.0
        for way in range(ways):
            parts = _cut_at(gaps, places, long, thresholds[way], cuts)
            cuts[parts] = size
            count = _between(cuts, parts, starts, latest, moved, burst_starts, burst_ends, burst_bytes)
            period, mean, duration = rhythm(
                burst_starts,
                burst_ends,
                burst_bytes,
                count,
                clarities[way],
                byte_tolerance,
                pace_tolerance,
                few_ratio,
            )
            if np.isnan(period):
                continue
            steady, periods_seen = _steady(burst_ends, count, pace_tolerance), max(count - 1, 1)
            covered = max(period * count, steady) / (mean * periods_seen)
            if covered < persistence:
                continue
            inside = duration >= periods[s] and count - 2 > FEW
            of_parts = inside and periods[s] < NESTED * period and filled < NESTED
            if of_parts and periods[s] >= STEPS_APART:
                _number(starts, ends, sizes, best_thresholds[s], numbers)
                of_parts = not _composite(starts, ends, numbers)
            nested = period < NESTED * periods[s] and (covered >= NESTED or period >= STEPS_APART)
            if nested:
                _number(starts, ends, sizes, thresholds[way], numbers)
                nested = _composite(starts, ends, numbers)
            same = abs(period - periods[s]) <= pace_tolerance * periods[s]
            goes_on = same and steady - best_steady >= (FEW + 1) * period
            if counts[s] == 0 or nested or of_parts or goes_on:
                filled, best_steady = covered, steady
                best_thresholds[s], best_clarities[s], counts[s] = thresholds[way], clarities[way], count
                periods[s], means[s], durations[s] = period, mean, duration
    return best_thresholds, periods, means, durations, best_clarities, counts


@compiled
def _burst_numbers(starts: Integers, ends: Integers, sizes: Integers, offsets: Integers, threshold: Floats) -> Integers:
    numbers = np.full(starts.size, -1, np.int64)
    for s in range(offsets.size - 1):
        low, high = offsets[s], offsets[s + 1]
        if low < high and not np.isnan(threshold[s]):
            _number(starts[low:high], ends[low:high], sizes[low:high], threshold[s], numbers[low:high])
    return numbers


@compiled
def _longest_gaps(starts: Integers, ends: Integers, offsets: Integers) -> Floats:
    longest = np.zeros(offsets.size - 1)
    for s in range(longest.size):
        if offsets[s] == offsets[s + 1]:
            continue
        latest = ends[offsets[s]]
        for i in range(offsets[s] + 1, offsets[s + 1]):
            longest[s] = max(longest[s], starts[i] - latest)
            latest = max(latest, ends[i])
    return longest
