"""Pace: how long work takes that is done again and again, by who does it alike.

Work is of kinds, numbered from 0; -1 is work of which nothing is known. Segments are laid end to end: segment i holds
the rows `offsets[i]` to `offsets[i + 1]`.
"""

from __future__ import annotations

import numpy as np

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.ordering import collected
from llmprism_tasks.methods.series import Floats, Integers
from llmprism_tasks.methods.sorting import lower_median

NONE = -1
"""In the place of a length that is not known."""


def shortest(offsets: Integers, lengths: Integers, works: Integers, kinds: int) -> Integers:
    """Return the shortest length of each segment's work of each kind, shape (segments, kinds); `NONE` without any.

    Parameters
    ----------
    lengths, works : shape (n,)
    """
    return _shortest(offsets, lengths, works, kinds)


def lower_medians(values: Integers, groups: Integers, number: int) -> Floats:
    """Return the lower median of each group's values: of two, the smaller shows what is usual. NaN without any.

    Parameters
    ----------
    values, groups : shape (n,), and the group of each, from 0 to `number` - 1
    """
    places, offsets = collected(groups, number)
    return _lower_medians(values, places, offsets)


def at_pace(
    offsets: Integers, lengths: Integers, works: Integers, usual: Floats, places: Integers, *, as_usual: float
) -> Integers:
    """Return how much of each length is work: as much as is usual, at the segment's own pace.

    That is its shortest ratio to what is usual, for who works slowly does so always, and never below 1.

    Parameters
    ----------
    lengths, works : shape (n,)
    usual : shape (places, kinds), NaN where it is not known
    places : shape (segments,), the row of `usual` that is theirs; -1 for none
    as_usual : ratio to the usual work, at its pace, up to which a length is all work

    Returns
    -------
    shape (n,); `NONE` where nothing is known of it
    """
    return _at_pace(offsets, lengths, works, usual, places, as_usual)


def numbered_in_turn(groups: Integers, turns: Integers, number: int) -> tuple[Integers, int]:
    """Number what is of one group and has the same turn in it, from 0; and return how many numbers there are.

    Parameters
    ----------
    groups, turns : shape (n,), the group from 0 to `number` - 1, and which of it, counted from 0 without a break
    """
    return _numbered_in_turn(groups, turns, number)


@compiled
def _shortest(offsets: Integers, lengths: Integers, works: Integers, kinds: int) -> Integers:
    least = np.full((len(offsets) - 1, kinds), NONE, np.int64)
    for segment in range(len(offsets) - 1):
        for i in range(offsets[segment], offsets[segment + 1]):
            work = works[i]
            if work >= 0 and (least[segment, work] == NONE or lengths[i] < least[segment, work]):
                least[segment, work] = lengths[i]
    return least


@compiled
def _lower_medians(values: Integers, places: Integers, offsets: Integers) -> Floats:
    medians, room = np.full(len(offsets) - 1, np.nan), np.empty(len(values))
    for group in range(len(offsets) - 1):
        begin, count = offsets[group], offsets[group + 1] - offsets[group]
        alike = True
        for i in range(count):
            room[i] = values[places[begin + i]]
            alike &= room[i] == room[0]
        if count:
            medians[group] = room[0] if alike else lower_median(room, count)
    return medians


@compiled
def _at_pace(
    offsets: Integers, lengths: Integers, works: Integers, usual: Floats, places: Integers, as_usual: float
) -> Integers:
    worked = np.full(len(lengths), NONE, np.int64)
    for segment in range(len(offsets) - 1):
        place, pace = places[segment], np.inf
        if place < 0:
            continue
        for i in range(offsets[segment], offsets[segment + 1]):
            if works[i] >= 0 and not np.isnan(usual[place, works[i]]):
                pace = min(pace, lengths[i] / usual[place, works[i]])
        for i in range(offsets[segment], offsets[segment + 1]):
            if works[i] >= 0 and not np.isnan(usual[place, works[i]]):
                paced = usual[place, works[i]] * max(pace, 1.0)
                # Where nothing is usual, no time is known to be too long.
                worked[i] = np.int64(paced) if lengths[i] > as_usual * paced else lengths[i]
    return worked


@compiled
def _numbered_in_turn(groups: Integers, turns: Integers, number: int) -> tuple[Integers, int]:
    firsts, numbers = np.zeros(number + 1, np.int64), np.empty(len(groups), np.int64)
    for i in range(len(groups)):
        firsts[groups[i] + 1] = max(firsts[groups[i] + 1], turns[i] + 1)
    for group in range(number):
        firsts[group + 1] += firsts[group]
    for i in range(len(groups)):
        numbers[i] = firsts[groups[i]] + turns[i]
    return numbers, firsts[number]
