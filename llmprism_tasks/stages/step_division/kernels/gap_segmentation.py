"""Periodic bursts: the gap length that separates them, and their period.

A training step repeats: it moves the same bytes every time, however long it takes. So a way to cut a series of
transfers at its long gaps is right when the bursts between the cuts carry equal bytes at a steady pace; of the ways
that are, the one with the clearest difference between the gaps that cut and those that do not is taken. Bytes stay
equal where records are split or merged by the collector and where steps slow down, which makes them a surer sign than
times or counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.jit import BOOLEANS, FLOAT64, FLOAT64S, INT64, INT64S, kernel, named_tuple, subroutine
from llmprism_tasks.numerics.robust import Flags, Floats, Integers
from llmprism_tasks.numerics.sorting import median, quantile
from llmprism_tasks.stages.step_division.kernels.gap_thresholds import MOST_CANDIDATES, long_gaps, ways_to_cut
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS, Rhythms, no_rhythms, rhythm

NEGLIGIBLE_BURST = 0.1
"""Ratio of a large burst's bytes below which a burst is only the next one's beginning: a rank that comes early to a
collective pushes a few megabytes, stalls until the last one comes, and leaves a record of its own. The smallest part of
a step that counts, a gather beside its reduce-scatter, has a third of the bytes."""

NESTED_BURSTS_SHARE = 0.7
"""Ratio of the time that bursts must go on for to be steps between checkpoints rather than the buckets of a step: those
are reduced in the backward pass, two thirds of it at most. Bursts of single transfers may be the layers of a step. It
is asked whichever of the two ways of cutting is the clearer; if that is the shorter one, more than a few of the longer
bursts must lie inside, and typically be of several of the others."""

ROUNDING = 1 + 1e-9
"""Times the least that counts from which on no rounding makes a burst negligible."""

STEPS_APART = 1e9
"""Time, in ns, from one to the next, from which on bursts of several transfers are steps, not the buckets of one: these
are cut to come every few tens of milliseconds in the backward pass (PyTorch: 25 MB, Megatron-LM: 40 million
parameters)."""


class Limits(NamedTuple):
    """The conditions on which a way to cut a series is accepted; the parameters of `quiet_gaps`."""

    shortest_gap: float
    clearest_ratio: float
    byte_tolerance: float
    pace_tolerance: float
    uneven_tolerance: float
    persistence: float
    few_ratio: float


LIMITS = named_tuple(Limits, FLOAT64, FLOAT64, FLOAT64, FLOAT64, FLOAT64, FLOAT64, FLOAT64)


class Way(NamedTuple):
    """A way to cut a series into bursts, and what repeats then.

    Attributes
    ----------
    threshold, clarity, bursts, period, mean, duration : as in `Rhythms`; no bursts where nothing repeats
    covered : ratio of the series' time that the periods fill
    steady : ns, the time in which a period is about as long as one beside it
    unlike : how many whole bursts carry other bytes than most
    """

    threshold: float
    clarity: float
    bursts: int
    period: float
    mean: float
    duration: float
    covered: float
    steady: float
    unlike: int


NO_WAY = Way(np.nan, 0.0, 0, np.nan, np.nan, np.nan, 0.0, 0.0, 0)


def quiet_gaps(
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    offsets: Integers,
    answered: Flags,
    *,
    shortest_gap: float,
    clearest_ratio: float,
    byte_tolerance: float,
    pace_tolerance: float,
    uneven_tolerance: float,
    persistence: float,
    few_ratio: float,
) -> Rhythms:
    """Find for each series the gap that separates its periodic bursts.

    Parameters
    ----------
    starts, ends : ns, transfers of all series one after another, each series in order of its starts
    sizes : bytes
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    answered : shape (series,), whether as many bytes come back: then equal bursts may be micro-batches of a pipeline
    shortest_gap : ns; shorter gaps are all alike
    clearest_ratio : a gap cuts only if it is this many times longer than the longest that does not
    byte_tolerance : relative difference that neighbouring bursts' bytes may typically have
    pace_tolerance : relative difference that neighbouring periods may typically have
    uneven_tolerance : the same where equal bytes tell enough: not in series of one size, whose bytes cannot differ
    persistence : ratio of the series' time that its periods must fill: the parts of one burst are as regular as bursts
    few_ratio : two or three bursts, too few to be typical of anything, must all be alike and the gaps between them this
        many times longer than any other
    """
    given = (shortest_gap, clearest_ratio, byte_tolerance, pace_tolerance, uneven_tolerance, persistence, few_ratio)
    longest = int(np.diff(offsets).max(initial=0))
    return _quiet_gaps(starts, ends, sizes, offsets, answered, longest, Limits(*map(float, given)))


@subroutine
def _join_negligible_bursts(carried: Floats, count: int, joined: Integers) -> int:
    """Number bursts by their bytes, negligible ones with the next, and return how many are left."""
    smallest, largest = carried[0], carried[0]
    for i in range(count):
        joined[i] = i
        smallest, largest = min(smallest, carried[i]), max(largest, carried[i])
    if smallest > NEGLIGIBLE_BURST * ROUNDING * largest:
        return count
    room, number = carried[:count].copy(), 0
    least = NEGLIGIBLE_BURST * quantile(room, count, 0.75)  # half of the bursts may be early records
    for burst in range(count):
        if burst and carried[burst - 1] >= least:
            number += 1
        joined[burst] = number
    return number + 1


@subroutine
def _number_bursts(starts: Integers, ends: Integers, sizes: Integers, threshold: float, numbers: Integers) -> None:
    """Number the bursts of one series between the gaps above a threshold, negligible ones with the next."""
    carried, joined = np.zeros(starts.size), np.empty(starts.size, np.int64)
    latest, burst = ends[0], 0
    for i in range(starts.size):
        if max(starts[i] - latest, 0) > threshold:
            burst += 1
        latest = max(latest, ends[i])
        numbers[i] = burst
        carried[burst] += sizes[i]
    if _join_negligible_bursts(carried, burst + 1, joined) <= burst:
        for i in range(starts.size):
            numbers[i] = joined[numbers[i]]


@subroutine
def _has_composite_bursts(
    starts: Integers, ends: Integers, sizes: Integers, threshold: float, numbers: Integers
) -> bool:
    """Whether most bursts of one series between the gaps above a threshold are of several transfers, one after the
    other."""
    _number_bursts(starts, ends, sizes, threshold, numbers)
    several, last, latest = 0, -1, ends[0]
    for i in range(1, starts.size):
        if starts[i] > latest and numbers[i] == numbers[i - 1] and numbers[i] != last:
            last = numbers[i]
            several += 1
        latest = max(latest, ends[i])
    return bool(2 * several > numbers[starts.size - 1] + 1)


@subroutine
def _steady_time(burst_ends: Floats, count: int, pace_tolerance: float) -> float:
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


@subroutine
def _bursts_between_cuts(
    cuts: Integers,
    parts: int,
    starts: Integers,
    latest: Integers,
    moved: Integers,
    joined: Integers,
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
    joined : space for the burst of each part
    """
    for part in range(parts):
        burst_bytes[part] = moved[cuts[part + 1]] - moved[cuts[part]]
    count, last = _join_negligible_bursts(burst_bytes, parts, joined), -1
    for part in range(parts):
        burst, carried = joined[part], burst_bytes[part]  # no burst has a higher number than its first part
        if burst != last:
            burst_starts[burst], burst_bytes[burst] = starts[cuts[part]] - starts[0], 0.0
        burst_ends[burst] = latest[cuts[part + 1] - 1] - starts[0]
        burst_bytes[burst] += carried
        last = burst
    return count


@subroutine
def _cut_at_gaps(gaps: Floats, places: Integers, long: int, threshold: float, cuts: Integers) -> int:
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


@subroutine
def _write_ends_and_bytes(ends: Integers, sizes: Integers, latest: Integers, moved: Integers) -> None:
    """Write the last end up to each transfer of a series, and the bytes of all before each, and of all."""
    last, total = ends[0], 0
    for i in range(ends.size):
        last = max(last, ends[i])
        latest[i], moved[i] = last, total
        total += sizes[i]
    moved[ends.size] = total


@subroutine
def _evaluate_threshold(
    threshold: float,
    clarity: float,
    burst_starts: Floats,
    burst_ends: Floats,
    burst_bytes: Floats,
    count: int,
    limits: Limits,
) -> Way:
    """Return what repeats in the bursts that a threshold makes; `NO_WAY` if nothing does for as long as it must."""
    _, _, byte_tolerance, pace_tolerance, uneven_tolerance, persistence, few_ratio = limits
    tolerances = byte_tolerance, pace_tolerance, uneven_tolerance
    period, mean, duration = rhythm(burst_starts, burst_ends, burst_bytes, count, clarity, *tolerances, few_ratio)
    if np.isnan(period):
        return NO_WAY
    steady = _steady_time(burst_ends, count, pace_tolerance)
    covered = max(period * count, steady) / (mean * max(count - 1, 1))
    if covered < persistence:
        return NO_WAY
    unlike, middle = 0, median(burst_bytes[:count].copy(), count)
    for i in range(1, count - 1):
        unlike += abs(burst_bytes[i] - middle) > byte_tolerance * middle
    return Way(threshold, clarity, count, period, mean, duration, covered, steady, unlike)


@subroutine
def _is_better_way(
    way: Way,
    best: Way,
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    numbers: Integers,
    answered: bool,
    pace_tolerance: float,
) -> bool:
    """Whether a way makes steps of a series rather than a clearer one.

    The clearer one may have cut it between checkpoints, or into the parts of steps, or only where steps had one of two
    paces. Where a pair sends one burst of the same bytes after the other for most of the time, nothing comes once in
    the longer ones, and what comes back is not the same (a pipeline's gradients), the longer ones are steps between
    pauses.
    """
    same = abs(way.period - best.period) <= pace_tolerance * best.period
    if same and way.steady - best.steady >= (FEW_BURSTS + 1) * way.period:
        return True
    if way.period < NESTED_BURSTS_SHARE * best.period and (
        way.covered >= NESTED_BURSTS_SHARE or way.period >= STEPS_APART
    ):
        alike = way.covered >= NESTED_BURSTS_SHARE and not answered and 2 * way.unlike < best.bursts
        return alike or _has_composite_bursts(starts, ends, sizes, way.threshold, numbers)
    inside = way.duration >= best.period and way.bursts - 2 > FEW_BURSTS
    if inside and best.period < NESTED_BURSTS_SHARE * way.period and best.covered < NESTED_BURSTS_SHARE:
        return best.period < STEPS_APART or not _has_composite_bursts(starts, ends, sizes, best.threshold, numbers)
    return False


@kernel(INT64S, INT64S, INT64S, INT64S, BOOLEANS, INT64, LIMITS)
def _quiet_gaps(
    all_starts: Integers,
    all_ends: Integers,
    all_sizes: Integers,
    offsets: Integers,
    answered: Flags,
    longest: int,
    limits: Limits,
) -> Rhythms:
    n, found = longest, no_rhythms(offsets.size - 1)
    latest, moved, places, gaps = np.empty(n, np.int64), np.zeros(n + 1, np.int64), np.empty(n, np.int64), np.empty(n)
    cuts, numbers = np.empty(n + 1, np.int64), np.empty(n, np.int64)
    burst_starts, burst_ends, burst_bytes = np.empty(n), np.empty(n), np.empty(n)
    thresholds, clarities = np.empty(MOST_CANDIDATES + 1), np.empty(MOST_CANDIDATES + 1)
    shortest_gap, clearest_ratio, _, pace_tolerance, _, _, few_ratio = limits
    for s in range(offsets.size - 1):
        low, high = offsets[s], offsets[s + 1]
        starts, ends, sizes, size = all_starts[low:high], all_ends[low:high], all_sizes[low:high], high - low
        if size < 2:
            continue
        _write_ends_and_bytes(ends, sizes, latest, moved)
        long, best = long_gaps(starts, latest, shortest_gap, places, gaps), NO_WAY
        others = long < size - 1
        ways = ways_to_cut(gaps, long, others, shortest_gap, clearest_ratio, few_ratio, thresholds, clarities)
        for i in range(ways):
            parts = _cut_at_gaps(gaps, places, long, thresholds[i], cuts)
            cuts[parts] = size
            count = _bursts_between_cuts(
                cuts, parts, starts, latest, moved, numbers, burst_starts, burst_ends, burst_bytes
            )
            way = _evaluate_threshold(thresholds[i], clarities[i], burst_starts, burst_ends, burst_bytes, count, limits)
            if way.bursts == 0:
                continue
            if best.bursts == 0 or _is_better_way(way, best, starts, ends, sizes, numbers, answered[s], pace_tolerance):
                best = way
        found.threshold[s], found.clarity[s], found.bursts[s] = best.threshold, best.clarity, best.bursts
        found.period[s], found.mean_period[s], found.duration[s] = best.period, best.mean, best.duration
    return found


@kernel(INT64S, INT64S, INT64S, INT64S, FLOAT64S)
def burst_numbers(starts: Integers, ends: Integers, sizes: Integers, offsets: Integers, threshold: Floats) -> Integers:
    """Number the bursts of each series from 0: a transfer after a gap above the series' threshold begins the next.

    What is negligible beside the series' bursts belongs to the burst that follows it.

    Returns shape (transfers,); -1 throughout a series whose threshold is NaN.
    """
    numbers = np.full(starts.size, -1, np.int64)
    for s in range(offsets.size - 1):
        low, high = offsets[s], offsets[s + 1]
        if low < high and not np.isnan(threshold[s]):
            _number_bursts(starts[low:high], ends[low:high], sizes[low:high], threshold[s], numbers[low:high])
    return numbers
