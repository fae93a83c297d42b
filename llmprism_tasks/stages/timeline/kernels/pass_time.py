"""The usual duration of work that is repeated, compared among segments that do the same work.

Work is of kinds, numbered from 0; -1 is work of which nothing is known. Segments are laid end to end: segment i holds
the rows `offsets[i]` to `offsets[i + 1]`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.grouped_sort import collected
from llmprism_tasks.numerics.jit import BOOLEANS, FLOAT64, INT32S, INT64, INT64S, array, kernel, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import lower_median

Booleans = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]

NO_LENGTH = -1
"""In the place of a length that is not known."""


class Stints(NamedTuple):
    """What was done from when to when.

    Attributes
    ----------
    offsets : shape (segments + 1,)
    starts, ends : ns, shape (n,)
    sorts : shape (n,), of which sort each is, from 0
    """

    offsets: Integers
    starts: Integers
    ends: Integers
    sorts: Numbers


def shortest(stints: Stints, works: Numbers, kinds: int) -> Integers:
    """Return the shortest length of each segment's work of each kind, ns, shape (segments, kinds); `NO_LENGTH` without
    any.

    Parameters
    ----------
    works : shape (sorts,), the kind of work of each sort
    """
    return _shortest(*stints, works, kinds)


def lower_medians(values: Integers, groups: Integers, number: int) -> Floats:
    """Return the lower median of each group's values: of two, the smaller shows what is usual. NaN without any.

    Parameters
    ----------
    values, groups : shape (n,), and the group of each, from 0 to `number` - 1
    """
    places, offsets = collected(groups, number)
    return _lower_medians(values, places, offsets)


class Sorts(NamedTuple):
    """What is known of sorts of stints; arrays of shape (sorts,).

    Attributes
    ----------
    works : the kind of work
    whole : whether all of a stint is work in any case
    unknown : whether all of it is where nothing is known of the kind; else nothing
    rests : whether what is not work is told
    """

    works: Numbers
    whole: Booleans
    unknown: Booleans
    rests: Booleans


def at_pace(
    stints: Stints, sorts: Sorts, usual: Floats, places: Integers, *, as_usual: float
) -> tuple[Integers, Integers]:
    """Return how much of each stint is work: as much as is usual, at the segment's own pace; and the rest.

    That is its shortest ratio to what is usual, for who works slowly does so always, and never below 1.

    Parameters
    ----------
    usual : ns, shape (places, kinds), NaN where it is not known
    places : shape (segments,), the row of `usual` that is theirs; -1 for none
    as_usual : ratio to the usual work, at its pace, up to which a stint is all work

    Returns
    -------
    ns, shape (n,) both
    """
    return _at_pace(*stints, *sorts, usual, places, as_usual)


class Idled(NamedTuple):
    """How long each stint was idle; arrays of shape (n,).

    Attributes
    ----------
    turns : how often the same kind came before in the segment
    usual, beyond : ns, what is usual of it in that turn among segments that are alike, and what exceeds that
    """

    turns: Integers
    usual: Integers
    beyond: Integers


def idle_times(offsets: Integers, idle: Integers, kinds: Numbers, alike: Integers, number: int) -> Idled:
    """Compare how long stints of one kind and turn were idle in segments that are alike, by the lower median.

    Parameters
    ----------
    idle : ns, shape (n,)
    kinds : shape (n,), from 0 to `number` - 1
    alike : shape (segments,), the same for those that are alike, from 0
    """
    return Idled(*_idle_times(offsets, idle, kinds, alike, int(alike.max(initial=-1)) + 1, number))


@kernel(INT64S, INT64S, INT64S, INT32S, INT32S, INT64)
def _shortest(
    offsets: Integers, starts: Integers, ends: Integers, sorts: Numbers, works: Numbers, kinds: int
) -> Integers:
    least = np.full((len(offsets) - 1, kinds), NO_LENGTH, np.int64)
    for segment in range(len(offsets) - 1):
        for i in range(offsets[segment], offsets[segment + 1]):
            work, length = works[sorts[i]], ends[i] - starts[i]
            if work >= 0 and (least[segment, work] == NO_LENGTH or length < least[segment, work]):
                least[segment, work] = length
    return least


@kernel(INT64S, INT64S, INT64S)
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


@kernel(INT64S, INT64S, INT64S, INT32S, INT32S, BOOLEANS, BOOLEANS, BOOLEANS, array(FLOAT64, 2), INT64S, FLOAT64)
def _at_pace(
    offsets: Integers,
    starts: Integers,
    ends: Integers,
    sorts: Numbers,
    works: Numbers,
    whole: Booleans,
    unknown: Booleans,
    rests: Booleans,
    usual: Floats,
    places: Integers,
    as_usual: float,
) -> tuple[Integers, Integers]:
    worked, rest = np.empty(len(sorts), np.int64), np.empty(len(sorts), np.int64)
    for segment in range(len(offsets) - 1):
        place, pace = places[segment], np.inf
        for i in range(offsets[segment], offsets[segment + 1]):
            work = works[sorts[i]]
            if place >= 0 and work >= 0 and not np.isnan(usual[place, work]):
                pace = min(pace, (ends[i] - starts[i]) / usual[place, work])
        for i in range(offsets[segment], offsets[segment + 1]):
            sort, length = sorts[i], ends[i] - starts[i]
            work = works[sort]
            worked[i] = length if unknown[sort] else 0
            if place >= 0 and work >= 0 and not (whole[sort] or np.isnan(usual[place, work])):
                paced = usual[place, work] * max(pace, 1.0)
                # Where nothing is usual, no time is known to be too long.
                worked[i] = np.int64(paced) if length > as_usual * paced else length
            rest[i] = length - worked[i] if rests[sort] else 0
    return worked, rest


@subroutine
def _number_turns(
    offsets: Integers, kinds: Numbers, alike: Integers, groups: int, number: int
) -> tuple[Integers, Numbers, Integers]:
    """Return the turn of each row, a number for what is of one kind and turn among those that are alike, and how many
    rows of each number or a lower one there are, after a 0."""
    turns, numbers = np.empty(len(kinds), np.int64), np.empty(len(kinds), np.int32)
    count, segment_of = np.zeros(number, np.int64), np.full(number, -1, np.int64)
    firsts = np.zeros(groups * number + 1, np.int64)
    for segment in range(len(offsets) - 1):
        for i in range(offsets[segment], offsets[segment + 1]):
            kind = kinds[i]
            if segment_of[kind] != segment:
                segment_of[kind], count[kind] = segment, 0
            turns[i] = count[kind]
            count[kind] += 1
            group = alike[segment] * number + kind
            firsts[group + 1] = max(firsts[group + 1], count[kind])
    for group in range(groups * number):
        firsts[group + 1] += firsts[group]
    bounds = np.zeros(firsts[-1] + 1, np.int64)
    for segment in range(len(offsets) - 1):
        for i in range(offsets[segment], offsets[segment + 1]):
            numbers[i] = firsts[alike[segment] * number + kinds[i]] + turns[i]
            bounds[numbers[i] + 1] += 1
    for one in range(firsts[-1]):
        bounds[one + 1] += bounds[one]
    return turns, numbers, bounds


@kernel(INT64S, INT64S, INT32S, INT64S, INT64, INT64)
def _idle_times(
    offsets: Integers, idle: Integers, kinds: Numbers, alike: Integers, groups: int, number: int
) -> tuple[Integers, Integers, Integers]:
    turns, numbers, bounds = _number_turns(offsets, kinds, alike, groups, number)
    following, values = bounds.copy(), np.empty(len(idle))
    for i in range(len(idle)):
        values[following[numbers[i]]] = idle[i]
        following[numbers[i]] += 1
    medians = np.empty(len(bounds) - 1, np.int64)
    for one in range(len(bounds) - 1):
        medians[one] = np.int64(lower_median(values[bounds[one] : bounds[one + 1]], bounds[one + 1] - bounds[one]))
    usual, beyond = np.empty(len(idle), np.int64), np.empty(len(idle), np.int64)
    for i in range(len(idle)):
        usual[i] = min(idle[i], medians[numbers[i]])
        beyond[i] = idle[i] - usual[i]
    return turns, usual, beyond
