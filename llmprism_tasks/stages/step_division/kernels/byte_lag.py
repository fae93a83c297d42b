"""Steps as what comes again after the same bytes, where no silence and no size tells them.

Sharded parameters are gathered and reduced layer by layer, in the forward pass and in the backward pass, and between
two steps it is no quieter than between two layers. But after the bytes of one step all that is sent comes again: the
same bytes between the same silences, whatever time the step takes. The lag in bytes at which a series is most like
itself is found as the pitch of speech is (de Cheveigne and Kawahara 2002, YIN, section II): the difference of the
series and its shifted self, over the mean difference at all shorter lags. Layers that follow each other are alike, too,
but so are all lags of a few layers, which that mean tells.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import FLOAT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import median, quantile
from llmprism_tasks.stages.step_division.kernels.gap_segmentation import NEGLIGIBLE_BURST
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS, Rhythms, rhythm

MOST_CELLS = 2048
"""Places among a series' bytes at which it is compared with itself, at most: one and a half for a layer of forty, in
thirty steps."""

CELLS_PER_CHUNK = 4
"""Places for each chunk of a shorter series, so that a lag is known to a fraction of a chunk."""

RECURRENCE_DIP = 0.4
"""Difference at a lag over the mean difference at shorter ones, below which the series comes again. In training it is
0.02 to 0.2, lost records included; of series that do not repeat it is 0.7 and more."""

LEAST_PERIODS = 3
"""How often a series must come again."""

SILENCE_RATIO = 0.05
"""Ratio of the mean time from chunk to chunk below which a silence is none: queue pairs of one collective do not begin
at once."""

NEIGHBOUR_CHUNKS = 4
"""Chunks on either side that say what is sent before and after a place."""

MEETING_TOLERANCE = 1 / 24
"""Ratio of a period's bytes within which steps meet about the place where they meet on average: a layer or two."""


def repeating_bytes(
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    offsets: Integers,
    *,
    byte_tolerance: float,
    pace_tolerance: float,
    few_ratio: float,
) -> tuple[Rhythms, Integers]:
    """Cut each series where it begins anew after the same bytes.

    A step begins where large chunks end and small ones begin, or where the silence is longest: the backward pass
    reduces gradients beside the gathers, the forward pass gathers alone, and the optimizer works between the two.

    Parameters
    ----------
    starts, ends : ns, transfers of all series one after another, each series in order of its starts
    sizes : bytes
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    byte_tolerance, pace_tolerance, few_ratio : as for `gap_segmentation.quiet_gaps`

    Returns
    -------
    rhythms : NaN for series that do not come again; `threshold` is 0, and `clarity` by how many times the series is
        more like itself at this lag than at shorter ones
    numbers : the burst of each transfer, counted from 0 in each series; -1 throughout one that does not come again
    """
    tolerances = (float(byte_tolerance), float(pace_tolerance), float(few_ratio))
    found = _repeating_bytes(starts, ends, sizes, offsets, *tolerances)
    return Rhythms(*found[:-1]), found[-1]


@subroutine
def _split_into_chunks(
    starts: Integers, ends: Integers, sizes: Integers, least: float, first: Integers, carried: Floats, gaps: Floats
) -> int:
    """Write the first transfer, the bytes and the silence before (ns) of each chunk that no longer silence parts."""
    count, latest = 0, ends[0]
    first[0], carried[0], gaps[0] = 0, sizes[0], 0.0
    for i in range(1, starts.size):
        gap = starts[i] - latest
        if gap > least:
            count += 1
            first[count], carried[count], gaps[count] = i, 0.0, gap
        carried[count] += sizes[i]
        latest = max(latest, ends[i])
    return count + 1


@subroutine
def _join_negligible_chunks(first: Integers, carried: Floats, gaps: Floats, count: int) -> int:
    """Join negligible chunks with the next, the silences before both added up, and return how many are left."""
    least, left = NEGLIGIBLE_BURST * quantile(carried[:count].copy(), count, 0.75), 0
    early, silence = 0.0, 0.0
    begin = first[0]
    for j in range(count):
        early, silence = early + carried[j], silence + gaps[j]
        if carried[j] < least and j + 1 < count:
            continue
        first[left], carried[left], gaps[left] = begin, early, silence
        left += 1
        early, silence = 0.0, 0.0
        if j + 1 < count:
            begin = first[j + 1]
    return left


@subroutine
def _recurrence_lag(look: Floats, cells: int) -> tuple[float, float]:
    """Return the lag, in cells, at which the series comes again, and the difference there; 0 if it does not."""
    longest = cells // LEAST_PERIODS
    difference, total, within = np.ones(longest + 1), 0.0, False
    best = 0
    for lag in range(1, longest + 1):
        apart = 0.0
        for i in range(cells - lag):
            apart += abs(look[0, i] - look[0, i + lag]) + abs(look[1, i] - look[1, i + lag])
        apart /= cells - lag
        total += apart
        difference[lag] = apart * lag / total if total > 0 else 1.0
        if difference[lag] < RECURRENCE_DIP:
            within = True
            if best == 0 or difference[lag] < difference[best]:
                best = lag
        elif within:
            break
    if best == 0:
        return 0.0, 1.0
    exact, times = float(best), 1
    # Each multiple of the lag tells it more exactly.
    while (times + 1) * exact + 0.1 * exact < longest:
        times += 1
        low, high = int((times - 0.1) * exact), int((times + 0.1) * exact) + 1
        least, place = np.inf, 0
        for lag in range(low, high):
            apart = 0.0
            for i in range(cells - lag):
                apart += abs(look[0, i] - look[0, i + lag]) + abs(look[1, i] - look[1, i + lag])
            apart /= cells - lag
            if apart < least:
                least, place = apart, lag
        exact = place / times
    return exact, difference[best]


@subroutine
def _contrast(levels: Floats, silences: Floats, count: int, at: int) -> float:
    """Return how much larger the chunks before a place are than those after it, and how long the silence there is."""
    low, high = max(at - NEIGHBOUR_CHUNKS, 0), min(at + NEIGHBOUR_CHUNKS, count)
    before, after = 0.0, 0.0
    for j in range(low, at):
        before += levels[j] / (at - low)
    for j in range(at, high):
        after += levels[j] / (high - at)
    return float(before - after + silences[at])


@subroutine
def _find_step_beginnings(
    moved: Floats, levels: Floats, silences: Floats, count: int, each: float, begins: Integers
) -> int:
    """Write the chunks that steps begin with, the first of all among them, and return how many there are."""
    bins = int(1 / MEETING_TOLERANCE)
    scores, held = np.zeros(bins), np.zeros(bins)
    contrast = np.zeros(count)
    for j in range(1, count):
        contrast[j] = _contrast(levels, silences, count, j)
    periods = int(moved[count - 1] / each) + 1
    for period in range(periods):
        most = np.full(bins, -np.inf)
        for j in range(1, count):
            place = moved[j] / each - period
            if 0 <= place < 1:
                most[int(place * bins)] = max(most[int(place * bins)], contrast[j])
        for k in range(bins):
            if most[k] > -np.inf:
                scores[k] += most[k]
                held[k] += 1
    best = 0
    for k in range(bins):
        if held[k] > 0 and (held[best] == 0 or scores[k] / held[k] > scores[best] / held[best]):
            best = k
    begins[0], bursts = 0, 1
    target = (best + 0.5) / bins * each
    while target < moved[count - 1] + each * MEETING_TOLERANCE:
        place = -1
        for j in range(1, count):
            if abs(moved[j] - target) <= MEETING_TOLERANCE * each and (place < 0 or contrast[j] > contrast[place]):
                place = j
        if place < 0:
            target += each
            continue
        begins[bursts] = place
        bursts += 1
        target = moved[place] + each  # lost bytes do not add up
    return bursts


@kernel(INT64S, INT64S, INT64S, INT64S, FLOAT64, FLOAT64, FLOAT64)
def _repeating_bytes(
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    offsets: Integers,
    byte_tolerance: float,
    pace_tolerance: float,
    few_ratio: float,
) -> tuple[Floats, Floats, Floats, Floats, Floats, Integers, Integers]:
    series, n = offsets.size - 1, starts.size
    thresholds, clarities = np.full(series, np.nan), np.zeros(series)
    periods, means, durations = np.full(series, np.nan), np.full(series, np.nan), np.full(series, np.nan)
    counts, numbers = np.zeros(series, np.int64), np.full(n, -1, np.int64)
    for s in range(series):
        low, high = offsets[s], offsets[s + 1]
        size = high - low
        if size <= LEAST_PERIODS * FEW_BURSTS:
            continue
        first, carried, gaps = np.empty(size, np.int64), np.empty(size), np.empty(size)
        own_starts, own_ends, own_sizes = starts[low:high], ends[low:high], sizes[low:high]
        count = _split_into_chunks(own_starts, own_ends, own_sizes, 0.0, first, carried, gaps)
        along = SILENCE_RATIO * (own_starts[size - 1] - own_starts[0]) / count
        count = _split_into_chunks(own_starts, own_ends, own_sizes, along, first, carried, gaps)
        count = _join_negligible_chunks(first, carried, gaps, count)
        if count <= LEAST_PERIODS * FEW_BURSTS:
            continue
        moved, levels, silences = np.zeros(count + 1), np.empty(count), np.empty(count)
        for j in range(count):
            moved[j + 1] = moved[j] + carried[j]
            levels[j], silences[j] = np.log(carried[j]), np.log(max(gaps[j], along) + 1.0)
        usual = median(silences.copy(), count)
        silences[0] = usual
        for j in range(count):
            silences[j] -= usual
        cells = min(MOST_CELLS, CELLS_PER_CHUNK * count)
        look, j = np.empty((2, cells)), 0
        for cell in range(cells):
            at = (cell + 0.5) / cells * moved[count]
            while moved[j + 1] <= at:
                j += 1
            look[0, cell], look[1, cell] = levels[j], silences[j]
        lag, apart = _recurrence_lag(look, cells)
        if lag == 0.0:
            continue
        begins = np.empty(count + 1, np.int64)
        bursts = _find_step_beginnings(moved, levels, silences, count, lag / cells * moved[count], begins)
        if bursts <= FEW_BURSTS:
            continue
        begins[bursts] = count
        firsts, lasts, total = np.empty(bursts), np.zeros(bursts), np.zeros(bursts)
        for burst in range(bursts):
            begin = first[begins[burst]]
            end = first[begins[burst + 1]] if burst + 1 < bursts else size
            firsts[burst] = own_starts[begin] - own_starts[0]
            for i in range(begin, end):
                lasts[burst] = max(lasts[burst], own_ends[i] - own_starts[0])
                total[burst] += own_sizes[i]
                numbers[low + i] = burst
        clarity = 1.0 / max(apart, 1e-3)
        period, mean, duration = rhythm(
            firsts, lasts, total, bursts, clarity, byte_tolerance, pace_tolerance, pace_tolerance, few_ratio
        )
        if np.isnan(period):
            numbers[low:high] = -1
            continue
        thresholds[s], periods[s], means[s], durations[s] = 0.0, period, mean, duration
        clarities[s], counts[s] = clarity, bursts
    return thresholds, periods, means, durations, clarities, counts, numbers
