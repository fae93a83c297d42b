"""The rounds of a collective: a round is complete once every member has sent, for the last one starts the transfer.

A group's transfers make bursts: a burst ends when all transfers that began in it have ended. One collective is as many
whole bursts as it takes until every member has taken part. What follows the last complete collective belongs to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.asof import BEFORE_ALL
from llmprism_tasks.numerics.grouped_sort import collected
from llmprism_tasks.numerics.intervals import ROWS, Booleans, Rows, extend_union, most_rows
from llmprism_tasks.numerics.jit import BOOLEANS, INT64S, kernel, named_tuple, subroutine
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.numerics.sorting import sort


class Attendances(NamedTuple):
    """The members of each collective, one row for each member.

    Attributes
    ----------
    groups, numbers : shape (collectives,), which collective of which group, from 0; in order
    latest, last : shape (collectives,), the last member's first start, and that member (of several, the lowest number)
    offsets : shape (collectives + 1,): collective i holds the rows `offsets[i]` to `offsets[i + 1]`
    members : shape (rows,)
    starts, ends, sizes : shape (rows,), from the member's first to its last in the collective, and their sum
    """

    groups: Integers
    numbers: Integers
    latest: Integers
    last: Integers
    offsets: Integers
    members: Integers
    starts: Integers
    ends: Integers
    sizes: Integers


ATTENDANCES = named_tuple(Attendances, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64S)


def attendances(rows: Rows, chosen: Booleans, sizes: Integers, groups: Integers, number: int) -> Attendances:
    """Divide the transfers of each group's members into collectives, with start, end and bytes of each member.

    Parameters
    ----------
    rows : of segments, the members; those that take no time are not looked at
    chosen : shape (series,), those to look at
    sizes : shape (transfers,)
    groups : shape (members,), the group of each, from 0 to `number` - 1; -1 for none
    """
    members, of_groups = collected(groups + 1, number + 1)
    columns, (met, told) = _attendances(members[of_groups[1] :], of_groups[1:] - of_groups[1], rows, chosen, sizes)
    kept = [met] * 4 + [met + 1] + [told] * 4
    return Attendances(*(column[:n] for column, n in zip(columns, kept, strict=True)))


class Summaries(NamedTuple):
    """Sums over the collectives of each member; arrays of shape (n,).

    Attributes
    ----------
    first, last : rows of the attendances, the first and the last of them
    of_last, of_most : collectives, the last of them and the first to which the member came earliest before the last one
    leads : ns, by how much that was
    ends : ns, the latest
    """

    first: Integers
    last: Integers
    of_last: Integers
    of_most: Integers
    leads: Integers
    ends: Integers


def summaries(met: Attendances, kinds: Booleans, apart: Booleans) -> Summaries:
    """Sum up the collectives of each member, those of either kind together, in order of members and kinds; and after
    them, each by itself, the collectives of the members that are apart.

    Parameters
    ----------
    kinds : shape (collectives,)
    apart : shape (members,)
    """
    columns, n = _summaries(met, kinds, apart)
    return Summaries(*(column[:n] for column in columns))


class _Flights(NamedTuple):
    """The times in which members had transfers in flight; is written to."""

    starts: Integers
    ends: Integers
    sizes: Integers


@subroutine
def _write_flights(
    rows: Rows,
    member: int,
    chosen: Booleans,
    sizes: Integers,
    heads: Integers,
    tails: Integers,
    made: _Flights,
    n: int,
) -> int:
    """Write, from a row on, when a member had chosen transfers in flight, and how much these came to; return the row
    after.

    Which transfer is next is looked up among the first ones of the runs, for these are few: in a ring two.

    Parameters
    ----------
    heads, tails : room for as many runs as the member has
    made : what is written
    """
    opens, closes, starts, ends = rows.opens[member], rows.closes[member], rows.starts, rows.ends
    before, runs = n, 0
    for run in range(rows.offsets[member], rows.offsets[member + 1]):
        if chosen[rows.series[run]]:
            heads[runs], tails[runs] = rows.begins[run], rows.untils[run]
            runs += 1
    while runs:
        run, begin = 0, starts[heads[0]]
        for other in range(1, runs):
            run = other if starts[heads[other]] < begin else run
            begin = min(begin, starts[heads[other]])
        i, begin = heads[run], max(begin, opens)
        over = min(ends[i], closes)
        heads[run] += 1
        if heads[run] == tails[run]:
            runs -= 1
            heads[run], tails[run] = heads[runs], tails[runs]
        if over <= begin:
            continue
        unions = extend_union(made.starts, made.ends, before, n, begin, over, 0)
        if unions > n:
            made.sizes[n] = 0
        n = unions
        made.sizes[n - 1] += sizes[i]
    return n


@subroutine
def _cut_into_collectives(
    keys: Integers,
    order: Integers,
    count: int,
    owners: Integers,
    ends: Integers,
    expected: int,
    seen: Integers,
    cuts: Integers,
) -> int:
    """Write where in order each collective of a group begins, and after them the count; return how many there are.

    Parameters
    ----------
    keys, order : starts and rows, in order of the starts, the first so many of them
    owners, ends : of rows
    expected : how many members there are
    seen : shape (members,): the collective that each was in last, -1 for none
    cuts : what is written
    """
    number, come, over = 0, expected, BEFORE_ALL
    for place in range(count):
        row = order[place]
        if keys[place] > over and come == expected:
            cuts[number], come = place, 0
            number += 1
        over = max(over, ends[row])
        if seen[owners[row]] != number - 1:
            seen[owners[row]] = number - 1
            come += 1
    if come < expected and number > 1:
        number -= 1
    cuts[number] = count
    return number


@subroutine
def _last_arrivals(offsets: Integers, count: int, who: Integers, came: Integers) -> tuple[Integers, Integers]:
    latest, last = np.empty(count, np.int64), np.empty(count, np.int64)
    for collective in range(count):
        of = offsets[collective]
        for row in range(of + 1, offsets[collective + 1]):
            if came[row] > came[of] or (came[row] == came[of] and who[row] < who[of]):
                of = row
        latest[collective], last[collective] = came[of], who[of]
    return latest, last


@subroutine
def _most_transfers(members: Integers, of_groups: Integers, rows: Rows, chosen: Booleans) -> int:
    """Return how many chosen transfers the group with most has."""
    most = 0
    for group in range(len(of_groups) - 1):
        count = 0
        for member in members[of_groups[group] : of_groups[group + 1]]:
            for run in range(rows.offsets[member], rows.offsets[member + 1]):
                count += rows.untils[run] - rows.begins[run] if chosen[rows.series[run]] else 0
        most = max(most, count)
    return most


@kernel(INT64S, INT64S, ROWS, BOOLEANS, INT64S)
def _attendances(
    members: Integers, of_groups: Integers, rows: Rows, chosen: Booleans, sizes: Integers
) -> tuple[tuple[Integers, ...], tuple[int, int]]:
    most, _ = most_rows(rows, chosen)
    largest = _most_transfers(members, of_groups, rows, chosen)
    keys, order, owner = np.empty(largest, np.int64), np.empty(largest, np.int64), np.empty(largest, np.int64)
    begin, over, carried = np.empty(largest, np.int64), np.empty(largest, np.int64), np.empty(largest, np.int64)
    in_flight = _Flights(begin, over, carried)
    cuts, seen, row_of = np.empty(largest + 1, np.int64), np.full(rows.opens.size, -1), np.full(rows.opens.size, -1)
    of_group, number, bounds = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most + 1, np.int64)
    who, start = np.empty(most, np.int64), np.empty(most, np.int64)
    end, size = np.empty(most, np.int64), np.empty(most, np.int64)
    n, met = 0, 0
    for group in range(len(of_groups) - 1):
        count, expected = 0, 0
        for place in range(of_groups[group], of_groups[group + 1]):
            member, before = members[place], count
            count = _write_flights(rows, member, chosen, sizes, keys, order, in_flight, count)
            owner[before:count] = member
            expected += count > before
        for row in range(count):
            keys[row], order[row] = begin[row], row
        sort(keys, order, count)
        for collective in range(_cut_into_collectives(keys, order, count, owner, over, expected, seen, cuts)):
            of_group[met], number[met], bounds[met] = group, collective, n
            for place in range(cuts[collective], cuts[collective + 1]):
                one, member = order[place], owner[order[place]]
                row = row_of[member]
                if row < bounds[met]:
                    row_of[member] = n
                    who[n], start[n], end[n], size[n] = member, begin[one], over[one], carried[one]
                    n += 1
                else:
                    end[row] = max(end[row], over[one])
                    size[row] += carried[one]
            met += 1
    bounds[met] = n
    latest, last = _last_arrivals(bounds, met, who, start)
    return (of_group, number, latest, last, bounds, who, start, end, size), (met, n)


@kernel(ATTENDANCES, BOOLEANS, BOOLEANS)
def _summaries(met: Attendances, kinds: Booleans, apart: Booleans) -> tuple[tuple[Integers, ...], int]:
    members, starts, ends = met.members, met.starts, met.ends
    keys, most = 2 * len(apart), 2 * len(apart) + len(members)
    first, last = np.full(most, -1, np.int64), np.empty(most, np.int64)
    of_last, of_most = np.empty(most, np.int64), np.empty(most, np.int64)
    leads, over = np.empty(most, np.int64), np.empty(most, np.int64)
    n = keys
    for collective in range(len(kinds)):
        for row in range(met.offsets[collective], met.offsets[collective + 1]):
            lead, key = met.latest[collective] - starts[row], 2 * members[row] + kinds[collective]
            if apart[members[row]]:
                key = n
                n += 1
            if first[key] < 0:
                first[key], leads[key], over[key] = row, BEFORE_ALL, ends[row]
            if lead > leads[key]:
                leads[key], of_most[key] = lead, collective
            last[key], of_last[key], over[key] = row, collective, max(over[key], ends[row])
    columns, there = (first, last, of_last, of_most, leads, over), 0
    for key in range(n):
        if first[key] >= 0:
            for column in columns:
                column[there] = column[key]
            there += 1
    return columns, there
