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
from llmprism_tasks.numerics.robust import LEAST_RECURRENCES, Floats, Integers
from llmprism_tasks.numerics.sorting import median, quantile
from llmprism_tasks.stages.step_division.kernels.gap_segmentation import NEGLIGIBLE_BURST
from llmprism_tasks.stages.step_division.kernels.regularity import (
    FEW_BURSTS,
    Rhythms,
    burst_extents,
    burst_numbers,
    no_rhythms,
    rhythm,
)

MOST_CELLS = 2048
"""Places among a series' bytes at which it is compared with itself, at most: one and a half for a layer of forty, in
thirty steps."""

CELLS_PER_CHUNK = 4
"""Places for each chunk of a shorter series, so that a lag is known to a fraction of a chunk."""

RECURRENCE_DIP = 0.4
"""Difference at a lag over the mean difference at shorter ones, below which the series comes again. In training it is
0.02 to 0.2, lost records included; of series that do not repeat it is 0.7 and more."""


SILENCE_RATIO = 0.05
"""Ratio of the mean time from chunk to chunk below which a silence is none: queue pairs of one collective do not begin
at once."""

NEIGHBOUR_CHUNKS = 4
"""Chunks on either side that say what is sent before and after a place."""

MEETING_TOLERANCE = 1 / 24
"""Ratio of a period's bytes within which steps meet about the place where they meet on average: a layer or two."""


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
def _chunks(starts: Integers, ends: Integers, sizes: Integers) -> tuple[Integers, Floats, Floats, float]:
    """Return the first transfer, the bytes and the silence before (ns) of each chunk of a series, and below which
    length a silence is none."""
    size = starts.size
    first, carried, gaps = np.empty(size, np.int64), np.empty(size), np.empty(size)
    count = _split_into_chunks(starts, ends, sizes, 0.0, first, carried, gaps)
    along = SILENCE_RATIO * (starts[size - 1] - starts[0]) / count
    count = _split_into_chunks(starts, ends, sizes, along, first, carried, gaps)
    count = _join_negligible_chunks(first, carried, gaps, count)
    return first[:count], carried[:count], gaps[:count], along


@subroutine
def _logarithms(carried: Floats, gaps: Floats, along: float) -> tuple[Floats, Floats, Floats]:
    """Return the bytes before each chunk, and all bytes; and the logarithms of each chunk's bytes, and of the silence
    before it over the usual one."""
    count = carried.size
    moved, levels, silences = np.zeros(count + 1), np.empty(count), np.empty(count)
    for j in range(count):
        moved[j + 1] = moved[j] + carried[j]
        levels[j], silences[j] = np.log(carried[j]), np.log(max(gaps[j], along) + 1.0)
    usual = median(silences.copy(), count)
    silences[0] = usual
    for j in range(count):
        silences[j] -= usual
    return moved, levels, silences


@subroutine
def _look_along_bytes(moved: Floats, levels: Floats, silences: Floats) -> Floats:
    """Return the level and the silence of the chunk at each of many places, which are equally many bytes apart.

    Parameters
    ----------
    moved : shape (chunks + 1,): bytes before each chunk, and all bytes
    """
    count = levels.size
    cells = min(MOST_CELLS, CELLS_PER_CHUNK * count)
    look, j = np.empty((2, cells)), 0
    for cell in range(cells):
        at = (cell + 0.5) / cells * moved[count]
        while moved[j + 1] <= at:
            j += 1
        look[0, cell], look[1, cell] = levels[j], silences[j]
    return look


@subroutine
def _difference_at(lag: int, levels: Floats, silences: Floats) -> float:
    """Return by how much a series and itself, shifted by a lag, differ on average."""
    apart, later_levels, later_silences = 0.0, levels[lag:], silences[lag:]
    for i in range(later_levels.size):
        apart += abs(levels[i] - later_levels[i]) + abs(silences[i] - later_silences[i])
    return apart / later_levels.size


@subroutine
def _recurrence_lag(look: Floats) -> tuple[float, float]:
    """Return the lag, in places, at which a series comes again, and the difference there; 0 if it does not."""
    levels, silences = look
    longest = levels.size // LEAST_RECURRENCES
    difference, total, within = np.ones(longest + 1), 0.0, False
    best = 0
    for lag in range(1, longest + 1):
        apart = _difference_at(lag, levels, silences)
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
            apart = _difference_at(lag, levels, silences)
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
def repeating_bytes(
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    offsets: Integers,
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
    found, numbers = no_rhythms(offsets.size - 1), np.full(starts.size, -1, np.int64)
    for s in range(offsets.size - 1):
        low, high = offsets[s], offsets[s + 1]
        size = high - low
        if size <= LEAST_RECURRENCES * FEW_BURSTS:
            continue
        own_starts, own_ends, own_sizes = starts[low:high], ends[low:high], sizes[low:high]
        first, carried, gaps, along = _chunks(own_starts, own_ends, own_sizes)
        count = first.size
        if count <= LEAST_RECURRENCES * FEW_BURSTS:
            continue
        moved, levels, silences = _logarithms(carried, gaps, along)
        look = _look_along_bytes(moved, levels, silences)
        lag, apart = _recurrence_lag(look)
        if lag == 0.0:
            continue
        begins = np.empty(count + 1, np.int64)
        each = lag / look.shape[1] * moved[count]
        bursts = _find_step_beginnings(moved, levels, silences, count, each, begins)
        if bursts <= FEW_BURSTS:
            continue
        own_numbers = burst_numbers(first[begins[:bursts]], size)
        firsts, lasts, total = burst_extents(own_numbers, bursts, own_starts, own_ends, own_sizes)
        clarity = 1.0 / max(apart, 1e-3)
        period, mean, duration = rhythm(
            firsts, lasts, total, bursts, clarity, byte_tolerance, pace_tolerance, pace_tolerance, few_ratio
        )
        if np.isnan(period):
            continue
        found.threshold[s], found.clarity[s], found.bursts[s] = 0.0, clarity, bursts
        found.period[s], found.mean_period[s], found.duration[s] = period, mean, duration
        numbers[low:high] = own_numbers
    return found, numbers
