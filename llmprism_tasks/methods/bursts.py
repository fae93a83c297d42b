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
from llmprism_tasks.methods.steadiness import FEW, Rhythms, rhythm

NEGLIGIBLE = 0.1
"""Ratio of a large burst's bytes below which a burst is only the next one's beginning: a rank that comes early to a
collective pushes a few megabytes, stalls until the last one comes, and leaves a record of its own. The smallest part of
a step that counts, a gather beside its reduce-scatter, has a third of the bytes."""

NESTED = 0.7
"""Ratio of the time that bursts must go on for to be steps between checkpoints rather than the buckets of a step: those
are reduced in the backward pass, two thirds of it at most. Bursts of single transfers may be the layers of a step. It
is asked whichever of the two ways of cutting is the clearer; if that is the shorter one, more than a few of the longer
bursts must lie inside, and typically be of several of the others."""

MOST_CANDIDATES = 24
"""Ways of cutting looked at in one series, the clearest first; a series of steps has a handful."""


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
def _gaps(starts: Integers, ends: Integers) -> Floats:
    gaps = np.zeros(starts.size, dtype=np.float64)
    latest = ends[0]
    for i in range(1, starts.size):
        gaps[i] = max(starts[i] - latest, 0)
        latest = max(latest, ends[i])
    return gaps


@compiled
def _cut(sizes: Integers, gaps: Floats, threshold: float) -> Integers:
    """Number the bursts between the gaps above a threshold, negligible ones with the next."""
    numbers = np.cumsum(gaps > threshold)
    burst_bytes = np.zeros(numbers[-1] + 1, dtype=np.float64)
    for i in range(gaps.size):
        burst_bytes[numbers[i]] += sizes[i]
    large = np.quantile(burst_bytes, 0.75)  # half of the bursts may be early records
    joined = np.zeros(burst_bytes.size, dtype=np.int64)
    for burst in range(1, burst_bytes.size):
        joined[burst] = joined[burst - 1] + (burst_bytes[burst - 1] >= NEGLIGIBLE * large)
    return joined[numbers]


@compiled
def _composite(numbers: Integers, gaps: Floats) -> bool:
    """Whether most bursts are of several transfers, one after the other."""
    several = np.zeros(numbers[-1] + 1, dtype=np.int64)
    for i in range(1, gaps.size):
        if gaps[i] > 0 and numbers[i] == numbers[i - 1]:
            several[numbers[i]] = 1
    return bool(np.median(several) > 0.5)


@compiled
def _long_gaps(starts: Integers, latest: Integers, shortest_gap: float) -> tuple[Integers, Floats]:
    """Return the transfers that begin after a gap that is not among the shortest, and how long it is.

    Parameters
    ----------
    latest : ns, the last end of this and all earlier transfers
    """
    places, gaps, count = np.empty(starts.size, np.int64), np.empty(starts.size), 0
    for i in range(1, starts.size):
        if starts[i] - latest[i - 1] > shortest_gap:
            places[count], gaps[count] = i, starts[i] - latest[i - 1]
            count += 1
    return places[:count], gaps[:count]


@compiled
def _between(
    places: Integers, gaps: Floats, threshold: float, starts: Integers, latest: Integers, moved: Integers
) -> tuple[Floats, Floats, Floats]:
    """Return start, end and bytes of the bursts between the gaps above a threshold, negligible ones with the next.

    Parameters
    ----------
    places, gaps : as `_long_gaps` returns
    moved : bytes of all transfers before each, and of all
    """
    cuts = places[gaps > threshold]
    parts = moved[np.append(cuts, starts.size)] - moved[np.append(np.array([0]), cuts)]
    burst_starts, burst_ends, burst_bytes = np.empty(parts.size), np.empty(parts.size), np.zeros(parts.size)
    large, burst = np.quantile(parts, 0.75), -1  # half of the bursts may be early records
    for part in range(parts.size):
        if part == 0 or parts[part - 1] >= NEGLIGIBLE * large:
            burst += 1
            burst_starts[burst] = 0 if part == 0 else starts[cuts[part - 1]] - starts[0]
        burst_ends[burst] = latest[cuts[part] - 1 if part < cuts.size else starts.size - 1] - starts[0]
        burst_bytes[burst] += parts[part]
    return burst_starts[: burst + 1], burst_ends[: burst + 1], burst_bytes[: burst + 1]


@compiled
def _ways(
    gaps: Floats, others: bool, shortest_gap: float, clearest_ratio: float, few_ratio: float
) -> list[tuple[float, float]]:
    """Return the thresholds that may cut a series, each with its clarity, the clearest first.

    Parameters
    ----------
    gaps : those longer than the shortest
    others : whether there are shorter ones, which all are alike
    """
    ordered = np.sort(gaps)[::-1]
    if others:
        ordered = np.append(ordered, shortest_gap)
    ways = [(0.0, 0.0)][1:]
    ratios = ordered[:-1] / ordered[1:]
    clear = np.flatnonzero(ratios >= min(clearest_ratio, few_ratio))
    for rank in clear[np.argsort(-ratios[clear], kind="mergesort")][:MOST_CANDIDATES]:
        if ratios[rank] >= (clearest_ratio if rank >= FEW - 1 else few_ratio):
            ways.append((np.sqrt(ordered[rank] * ordered[rank + 1]), ratios[rank]))
    if not others:  # perhaps no gap stands out because every transfer is a burst of its own
        ways.append((ordered[-1] / 2, ordered[-1] / shortest_gap))
    return ways


@compiled
def _quiet_gaps(
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    offsets: Integers,
    shortest_gap: float,
    clearest_ratio: float,
    byte_tolerance: float,
    pace_tolerance: float,
    persistence: float,
    few_ratio: float,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Integers]:
    series = offsets.size - 1
    thresholds = np.full(series, np.nan)
    periods = np.full(series, np.nan)
    means = np.full(series, np.nan)
    durations = np.full(series, np.nan)
    clarities = np.zeros(series)
    counts = np.zeros(series, dtype=np.int64)
    for s in range(series):
        low, high = offsets[s], offsets[s + 1]
        if high - low < 2:
            continue
        own, latest, moved = starts[low:high], np.empty(high - low, np.int64), np.zeros(high - low + 1, np.int64)
        for i in range(high - low):
            latest[i] = max(ends[low + i], latest[i - 1]) if i else ends[low]
            moved[i + 1] = moved[i] + sizes[low + i]
        places, gaps = _long_gaps(own, latest, shortest_gap)
        filled = 0.0
        for threshold, clarity in _ways(gaps, gaps.size < own.size - 1, shortest_gap, clearest_ratio, few_ratio):
            first, last, carried = _between(places, gaps, threshold, own, latest, moved)
            period, mean, duration = rhythm(first, last, carried, clarity, byte_tolerance, pace_tolerance, few_ratio)
            covered = period / mean * last.size / max(last.size - 1, 1)
            if np.isnan(period) or covered < persistence:
                continue
            inside = duration >= periods[s] and first.size - 2 > FEW
            parts = inside and periods[s] < NESTED * period and filled < NESTED
            nested = period < NESTED * periods[s] and covered >= NESTED
            if nested:
                every = _gaps(own, ends[low:high])
                nested = _composite(_cut(sizes[low:high], every, threshold), every)
            if counts[s] == 0 or nested or parts:
                filled = covered
                thresholds[s], clarities[s], counts[s] = threshold, clarity, last.size
                periods[s], means[s], durations[s] = period, mean, duration
    return thresholds, periods, means, durations, clarities, counts


@compiled
def _burst_numbers(starts: Integers, ends: Integers, sizes: Integers, offsets: Integers, threshold: Floats) -> Integers:
    numbers = np.full(starts.size, -1, dtype=np.int64)
    for s in range(offsets.size - 1):
        low, high = offsets[s], offsets[s + 1]
        if high == low or np.isnan(threshold[s]):
            continue
        numbers[low:high] = _cut(sizes[low:high], _gaps(starts[low:high], ends[low:high]), threshold[s])
    return numbers


@compiled
def _longest_gaps(starts: Integers, ends: Integers, offsets: Integers) -> Floats:
    longest = np.zeros(offsets.size - 1)
    for s in range(longest.size):
        longest[s] = _gaps(starts[offsets[s] : offsets[s + 1]], ends[offsets[s] : offsets[s + 1]]).max()
    return longest
