"""Gatherings: a stream of bursts cut where everybody has come, for a collective moves when the last member is there.

Series are laid end to end: series i holds the rows `offsets[i]` to `offsets[i + 1]`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.ordering import collected
from llmprism_tasks.methods.series import Integers
from llmprism_tasks.methods.sorting import sort


def gatherings(members: Integers, bursts: Integers, offsets: Integers) -> Integers:
    """Number the gatherings of each series from 0: consecutive bursts until all members have taken part.

    Parameters
    ----------
    members : shape (n,), >= 0, who takes part; many series laid end to end, each in order of time
    bursts : shape (n,), never falling within a series: in which burst that is
    offsets : shape (series + 1,): series i holds the rows `offsets[i]` to `offsets[i + 1]`

    Returns
    -------
    int64, shape (n,). A burst is never cut. What comes after the last complete gathering belongs to it.
    """
    return _gatherings(members, bursts, offsets, int(members.max(initial=-1)) + 1)


class Turns(NamedTuple):
    """What members did, of many groups one after another, each in order of time; arrays of shape (n,).

    Attributes
    ----------
    offsets : shape (groups + 1,): group i holds the rows `offsets[i]` to `offsets[i + 1]`
    members : who it was
    bursts : in which burst of the group: one ends when all that began in it has ended; counted through
    starts, ends, sizes : of each
    """

    offsets: Integers
    members: Integers
    bursts: Integers
    starts: Integers
    ends: Integers
    sizes: Integers


def in_turn(
    offsets: Integers, starts: Integers, ends: Integers, sizes: Integers, groups: Integers, number: int
) -> Turns:
    """Bring what members did into the order of their groups, and in these of time.

    Parameters
    ----------
    offsets : shape (members + 1,): member i did the rows `offsets[i]` to `offsets[i + 1]`
    starts, ends, sizes : shape (n,)
    groups : shape (members,), the group of each, from 0 to `number` - 1; -1 for none, whose rows are left out
    """
    members, of_groups = collected(groups + 1, number + 1)
    return Turns(*_in_turn(members[of_groups[1] :], of_groups[1:] - of_groups[1], offsets, starts, ends, sizes))


class Attendances(NamedTuple):
    """Who took part in which gathering, one row each.

    Attributes
    ----------
    series, numbers : shape (gatherings,), which gathering of which series; in order
    latest, last : shape (gatherings,), when the last member came, and who that was (of several the first in number)
    offsets : shape (gatherings + 1,): gathering i holds the rows `offsets[i]` to `offsets[i + 1]`
    members : shape (rows,)
    starts, ends, sizes : shape (rows,), from the member's first to its last in the gathering, and their sum
    """

    series: Integers
    numbers: Integers
    latest: Integers
    last: Integers
    offsets: Integers
    members: Integers
    starts: Integers
    ends: Integers
    sizes: Integers


def attendances(
    numbers: Integers, members: Integers, offsets: Integers, starts: Integers, ends: Integers, sizes: Integers
) -> Attendances:
    """Sum up what each member did in each gathering.

    Parameters
    ----------
    numbers : as `gatherings` returns them for `members` and `offsets`
    starts, ends, sizes : shape (n,), in order of the starts within each series
    """
    count = int(members.max(initial=-1)) + 1
    columns, (gathered, rows) = _attendances(numbers, members, offsets, starts, ends, sizes, count)
    kept = [gathered] * 4 + [gathered + 1] + [rows] * 4
    return Attendances(*(column[:n].copy() for column, n in zip(columns, kept, strict=True)))


class Summaries(NamedTuple):
    """What the rows of each key come to; keys without rows are absent.

    Attributes
    ----------
    first, last, most : shape (keys,), rows: the first and the last of the key, and the first with the largest value
    ends : shape (keys,), the largest
    """

    first: Integers
    last: Integers
    most: Integers
    ends: Integers


def summaries(keys: Integers, values: Integers, ends: Integers) -> Summaries:
    """Sum up the rows of each key, in the order of the keys.

    Parameters
    ----------
    keys : shape (n,), >= 0
    values, ends : shape (n,)
    """
    first, last, most, ends = _summaries(keys, values, ends, int(keys.max(initial=-1)) + 1)
    there = first >= 0
    return Summaries(first[there], last[there], most[there], ends[there])


@compiled
def _in_turn(
    members: Integers, of_groups: Integers, offsets: Integers, starts: Integers, ends: Integers, sizes: Integers
) -> tuple[Integers, Integers, Integers, Integers, Integers, Integers]:
    rows = 0
    for member in members:
        rows += offsets[member + 1] - offsets[member]
    bounds, who, bursts = np.zeros(len(of_groups), np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    start, end, size = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    keys, order = np.empty(rows, np.int64), np.empty(rows, np.int64)
    source, owner = np.empty(rows, np.int64), np.empty(rows, np.int64)  # of one group, as the two before
    n, burst = 0, -1
    for group in range(len(of_groups) - 1):
        count, over = 0, 0
        for place in range(of_groups[group], of_groups[group + 1]):
            for row in range(offsets[members[place]], offsets[members[place] + 1]):
                keys[count], order[count], source[count], owner[count] = starts[row], count, row, members[place]
                count += 1
        sort(keys, order, count)
        for place in range(count):
            row = source[order[place]]
            if place == 0 or keys[place] > over:
                burst, over = burst + 1, ends[row]
            over = max(over, ends[row])
            who[n], bursts[n] = owner[order[place]], burst
            start[n], end[n], size[n] = keys[place], ends[row], sizes[row]
            n += 1
        bounds[group + 1] = n
    return bounds, who, bursts, start, end, size


@compiled
def _gatherings(members: Integers, bursts: Integers, offsets: Integers, count: int) -> Integers:
    numbers = np.zeros(len(members), np.int64)
    last_seen = np.full(count, -1, np.int64)
    stamp = 0
    for series in range(len(offsets) - 1):
        begin, end = offsets[series], offsets[series + 1]
        expected = 0
        for i in range(begin, end):
            if last_seen[members[i]] != stamp:
                last_seen[members[i]] = stamp
                expected += 1
        stamp += 1
        number, come, complete = 0, 0, -1
        for i in range(begin, end):
            if i > begin and bursts[i] != bursts[i - 1] and come == expected:
                number, come = number + 1, 0
                stamp += 1
            if last_seen[members[i]] != stamp:
                last_seen[members[i]] = stamp
                come += 1
            if come == expected:
                complete = number
            numbers[i] = number
        stamp += 1
        for i in range(begin, end):
            numbers[i] = min(numbers[i], max(complete, 0))
    return numbers


@compiled
def _last_to_come(offsets: Integers, count: int, who: Integers, came: Integers) -> tuple[Integers, Integers]:
    latest, last = np.empty(count, np.int64), np.empty(count, np.int64)
    for gathering in range(count):
        of = offsets[gathering]
        for row in range(of + 1, offsets[gathering + 1]):
            if came[row] > came[of] or (came[row] == came[of] and who[row] < who[of]):
                of = row
        latest[gathering], last[gathering] = came[of], who[of]
    return latest, last


@compiled
def _attendances(
    numbers: Integers,
    members: Integers,
    offsets: Integers,
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    count: int,
) -> tuple[tuple[Integers, ...], tuple[int, int]]:
    n = len(members)
    of_series, number, begins = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n + 1, np.int64)
    who, start, end, size = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    row_of = np.full(count, -1, np.int64)
    rows, met = 0, 0
    for series in range(len(offsets) - 1):
        for i in range(offsets[series], offsets[series + 1]):
            if i == offsets[series] or numbers[i] != numbers[i - 1]:
                of_series[met], number[met], begins[met] = series, numbers[i], rows
                met += 1
            row = row_of[members[i]]
            if row < begins[met - 1]:
                row_of[members[i]] = rows
                who[rows], start[rows], end[rows], size[rows] = members[i], starts[i], ends[i], sizes[i]
                rows += 1
            else:
                end[row] = max(end[row], ends[i])
                size[row] += sizes[i]
    begins[met] = rows
    latest, last = _last_to_come(begins, met, who, start)
    return (of_series, number, latest, last, begins, who, start, end, size), (met, rows)


@compiled
def _summaries(
    keys: Integers, values: Integers, ends: Integers, number: int
) -> tuple[Integers, Integers, Integers, Integers]:
    first, last, most = np.full(number, -1, np.int64), np.full(number, -1, np.int64), np.full(number, -1, np.int64)
    latest = np.zeros(number, np.int64)
    for row in range(len(keys)):
        key = keys[row]
        if first[key] < 0:
            first[key], most[key], latest[key] = row, row, ends[row]
        if values[row] > values[most[key]]:
            most[key] = row
        last[key], latest[key] = row, max(latest[key], ends[row])
    return first, last, most, latest
