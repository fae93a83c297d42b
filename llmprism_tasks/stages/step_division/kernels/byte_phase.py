"""Step boundaries at a fixed byte offset: the longest gap of each period falls after the same number of bytes.

No single gap separates the steps of some series: on busy hosts the gaps between buckets vary as much as the one between
steps, and blocks of context fill it but for a moment. But once one size is known to come once a period, it says how
many bytes a period moves, and in each of them the longest silence has a place among the bytes. Where that is the same
in most periods, and what goes before it always the same tensor, steps meet there: after the last gradient, when the
optimizer works and nothing is sent. Bytes say it also where records are split or merged, where steps slow down, and
where the size that marks them is missing.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import FLOAT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import median, sort
from llmprism_tasks.stages.step_division.kernels.regularity import (
    FEW_BURSTS,
    Rhythms,
    burst_extents,
    burst_numbers,
    no_rhythms,
    rhythm,
)

SAME_PLACE = 0.05
"""Ratio of a period's bytes within which two silences are at the same place: a lost record moves it by as much as it
held, one of twenty and more."""

AGREEING_PERIODS = 0.7
"""Ratio of the periods that must move as many bytes, have their longest silence at the same place, and end with the
same tensor. By chance as many silences are there as `SAME_PLACE` holds, a tenth; in captured jobs that send throughout
the step, whose ranks pause for a moment now and then, four fifths."""

RARE_TRANSFERS = 3
"""How many transfers of one size a period may have, so that it can end with one of them. What is sent in each layer
comes more often; after it a step is quiet where the forward pass ends, too, or between two layers."""

EXACT_BYTES = 0.005
"""Ratio of a period's bytes by which neighbouring periods differ at most where no record is lost: headers, and what is
sent again."""

NEIGHBOUR_PERIODS = 4
"""Periods on either side that say how many bytes had been moved when one began."""


@subroutine
def _write_bytes_and_gaps(
    starts: Integers, ends: Integers, sizes: Integers, low: int, high: int, before: Floats, gaps: Floats
) -> None:
    """Write the bytes moved before each transfer of a series, and the silence before it, ns; endless for the first."""
    latest, moved = ends[low], 0.0
    for i in range(low, high):
        before[i - low], gaps[i - low] = moved, max(starts[i] - latest, 0)
        moved += sizes[i]
        latest = max(latest, ends[i])
    gaps[0] = np.inf


@subroutine
def _longest_silence_places(
    before: Floats, gaps: Floats, marks: Integers, count: int, tolerance: float, places: Floats
) -> tuple[float, int]:
    """Write where the longest silence after each mark is, a ratio of a period's bytes; return these, and how many are.

    Those of the periods between two of the marks, two at least, that moved as much as others, within a tolerance.
    """
    for k in range(count - 1):
        places[k] = before[marks[k + 1]] - before[marks[k]]
    each, whole = median(places, count - 1), 0
    for k in range(count - 1):
        since = before[marks[k]]
        if abs(before[marks[k + 1]] - since - each) > tolerance * each:
            continue
        longest = marks[k + 1]
        for i in range(marks[k] + 1, marks[k + 1]):
            if gaps[i] > gaps[longest]:
                longest = i
        places[whole] = 0.0 if longest == marks[k + 1] else (before[longest] - since) / each % 1.0
        whole += 1
    return each, whole


@subroutine
def _densest_place(places: Floats, count: int) -> tuple[float, float]:
    """Return the place in the middle of those most of which lie together, and the ratio that do.

    Parameters
    ----------
    places : ratios of a turn, one at least; twice as many as `count`, of which the second half is overwritten
    """
    sort(places, np.empty(count, np.int64), count)
    for k in range(count):
        places[count + k] = places[k] + 1.0
    first, most, end = 0, 0, 0
    for k in range(count):
        while end < k + count and places[end] - places[k] <= 2 * SAME_PLACE:
            end += 1
        if end - k > most:
            first, most = k, end - k
    return places[first + most // 2] % 1.0, most / count


@subroutine
def _cut_at_place(
    before: Floats, gaps: Floats, marks: Integers, count: int, each: float, place: float, begins: Integers
) -> int:
    """Write which transfers a burst begins with, the first of all among them, and return how many there are.

    Those are it that follow the longest silence near the place, which is counted from the mark before; ahead of the
    first mark, back from that. Just before a mark it is the same place as just after it.
    """
    begins[0], bursts, mark = 0, 1, 0
    for i in range(1, before.size):
        while mark + 1 < count and marks[mark + 1] <= i:
            mark += 1
        at = (before[i] - before[marks[mark]]) / each - place
        if abs(at - np.floor(at + 0.5)) > SAME_PLACE:
            continue
        last = begins[bursts - 1]
        if before[i] - before[last] <= 2 * SAME_PLACE * each:
            begins[bursts - 1] = i if gaps[i] > gaps[last] else last
        else:
            begins[bursts] = i
            bursts += 1
    return bursts


@subroutine
def _align_with_neighbours(before: Floats, gaps: Floats, begins: Integers, bursts: int, each: float) -> None:
    """Move the bursts that do not begin where their neighbours' bytes say, if something begins there.

    What comes once a period may begin some blocks of other traffic earlier or later, and so may the longest silence
    near a place that is counted from it. From one step to the next it is always the same bytes, but for lost records;
    where these are many, a burst is as far from where it should be as its neighbours, and stays.
    """
    moved, room = np.zeros(bursts), np.empty(2 * NEIGHBOUR_PERIODS + 1)
    for k in range(2, bursts):
        periods = (before[begins[k]] - before[begins[k - 1]]) / each
        moved[k] = moved[k - 1] + periods - np.floor(periods + 0.5)
    for k in range(1, bursts):
        low, high = max(k - NEIGHBOUR_PERIODS, 1), min(k + NEIGHBOUR_PERIODS + 1, bursts)
        for other in range(low, high):
            room[other - low] = moved[other]
        off = moved[k] - median(room, high - low)
        if abs(off) <= EXACT_BYTES:
            continue
        there, best = before[begins[k]] - off * each, -1
        end = begins[k + 1] if k + 1 < bursts else before.size
        for i in range(begins[k - 1] + 1, end):
            if abs(before[i] - there) <= EXACT_BYTES * each and (best < 0 or gaps[i] > gaps[best]):
                best = i
        if best >= 0:
            begins[k] = best


@subroutine
def _quiet_bursts(
    before: Floats, gaps: Floats, marks: Integers, count: int, tolerance: float, begins: Integers
) -> tuple[int, float]:
    """Write which transfers the bursts begin with, and behind them how many transfers there are.

    Returns
    -------
    how many bursts there are, and the ratio of the periods that agree on the place; zeros where too few do
    """
    places = np.empty(2 * before.size)
    each, whole = _longest_silence_places(before, gaps, marks, count, tolerance, places)
    if whole <= FEW_BURSTS or whole < AGREEING_PERIODS * (count - 1):  # the size comes several times a period
        return 0, 0.0
    place, agreed = _densest_place(places, whole)
    if agreed < AGREEING_PERIODS or min(place, 1.0 - place) <= SAME_PLACE:
        return 0, 0.0
    bursts = _cut_at_place(before, gaps, marks, count, each, place, begins)
    _align_with_neighbours(before, gaps, begins, bursts, each)
    begins[bursts] = before.size
    return bursts, agreed


@subroutine
def _has_rare_closing_size(ends: Integers, sizes: Integers, begins: Integers, bursts: int, same_size: float) -> bool:
    """Return whether most bursts end with a transfer of one size that is rare otherwise.

    Parameters
    ----------
    ends, sizes : of one series
    """
    closing, room = np.empty(bursts), np.empty(bursts)
    last = 0
    for burst in range(1, bursts):
        for i in range(begins[burst - 1], begins[burst]):
            if ends[i] >= ends[last]:
                last = i
        closing[burst - 1], room[burst - 1] = sizes[last], sizes[last]
    usual, alike, others = median(room, bursts - 1), 0, 0
    for burst in range(bursts - 1):
        alike += abs(closing[burst] / usual - 1) <= same_size
    for i in range(sizes.size):
        others += abs(sizes[i] / usual - 1) <= same_size
    return bool(alike >= AGREEING_PERIODS * (bursts - 1) and others <= RARE_TRANSFERS * bursts)


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, FLOAT64, FLOAT64, FLOAT64, FLOAT64)
def quiet_places(
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    marked: Integers,
    offsets: Integers,
    same_size: float,
    byte_tolerance: float,
    pace_tolerance: float,
    few_ratio: float,
) -> tuple[Rhythms, Integers]:
    """Cut each series at the byte offset after which the longest gap of most periods falls.

    What is quiet just before a mark needs no cutting: there the mark itself tells where steps meet.

    Parameters
    ----------
    starts, ends : ns, transfers of all series one after another, each series in order of its starts
    sizes : bytes
    marked : shape (transfers,); 1 for those that come once a period, 0 for all others
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    same_size : ratio by which sizes of one tensor may differ
    byte_tolerance, pace_tolerance, few_ratio : as for `gap_segmentation.quiet_gaps`

    Returns
    -------
    rhythms : NaN for series that do not agree on a place; `threshold` is the typical silence there, ns, and `clarity`
        the ratio of the periods that agree on it
    numbers : the burst of each transfer, counted from 0 in each series; -1 throughout one that does not agree
    """
    found, numbers = no_rhythms(offsets.size - 1), np.full(starts.size, -1, np.int64)
    for s in range(offsets.size - 1):
        low, high = offsets[s], offsets[s + 1]
        own_starts, own_ends, own_sizes, total = starts[low:high], ends[low:high], sizes[low:high], high - low
        before, gaps = np.empty(total), np.empty(total)
        marks, begins, count = np.empty(total, np.int64), np.empty(total + 1, np.int64), 0
        for i in range(total):
            if marked[low + i]:
                marks[count] = i
                count += 1
        if count <= FEW_BURSTS:
            continue
        _write_bytes_and_gaps(starts, ends, sizes, low, low + total, before, gaps)
        bursts, agreed = _quiet_bursts(before, gaps, marks, count, byte_tolerance, begins)
        if bursts <= FEW_BURSTS or not _has_rare_closing_size(own_ends, own_sizes, begins, bursts, same_size):
            continue
        own_numbers = burst_numbers(begins[:bursts], total)
        firsts, lasts, carried = burst_extents(own_numbers, bursts, own_starts, own_ends, own_sizes)
        period, mean, duration = rhythm(
            firsts, lasts, carried, bursts, agreed, byte_tolerance, pace_tolerance, pace_tolerance, few_ratio
        )
        if np.isnan(period):
            continue
        found.threshold[s], found.clarity[s], found.bursts[s] = median(gaps[begins[:bursts]], bursts), agreed, bursts
        found.period[s], found.mean_period[s], found.duration[s] = period, mean, duration
        numbers[low:high] = own_numbers
    return found, numbers
