"""Start, end and bytes of each burst: of the transfers of a series that have the same burst number."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics import grouped_sort
from llmprism_tasks.numerics.jit import INT64, INT64S, array, kernel
from llmprism_tasks.numerics.robust import Integers


class Totals(NamedTuple):
    """A row for each number that transfers of a series have: series by series, each in the order of first starts.

    Attributes
    ----------
    series, number : whose they are
    position : of the first of them
    first, last : ns, the first start and the last end
    total : bytes
    last_before, total_before : the same of those that began before an edge; 0 if none did
    """

    series: Integers
    number: Integers
    position: Integers
    first: Integers
    last: Integers
    total: Integers
    last_before: Integers
    total_before: Integers


def totals_by_number(
    numbers: Integers, offsets: Integers, starts: Integers, ends: Integers, sizes: Integers, *, edge: int = 0
) -> tuple[Totals, Integers]:
    """Sum up the transfers of each series that have one number.

    Parameters
    ----------
    numbers : shape (transfers,), from 0 in each series; negative ones take no part
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    starts, ends : ns, > 0, each series in order of its starts
    sizes : bytes
    edge : ns

    Returns
    -------
    the totals, and for each transfer the row of them that it is part of; -1 for none
    """
    table, rows = _totals_by_number(numbers, offsets, starts, ends, sizes, edge)
    return Totals(*table), rows


def totals_by_owner(found: Totals, owners: Integers, number: int) -> Totals:
    """Put the totals of all series of an owner together: its own series, and each in order of numbers.

    Parameters
    ----------
    found : of series
    owners : shape (series, any), the owners of each, from 0 to `number` - 1: each of them gets all that is its

    Returns
    -------
    `position` is that of the first of the series that has the number
    """
    each = owners[found.series]
    places, offsets = grouped_sort.collected(each.ravel(), number)
    return Totals(*_totals_by_owner(np.stack(found), places // max(each.shape[1], 1), offsets))


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, INT64)
def _totals_by_number(
    numbers: Integers, offsets: Integers, starts: Integers, ends: Integers, sizes: Integers, edge: int
) -> tuple[Integers, Integers]:
    most, total = 0, 0
    for s in range(offsets.size - 1):
        highest = -1
        for i in range(offsets[s], offsets[s + 1]):
            highest = max(highest, numbers[i])
        most, total = max(most, highest + 1), total + highest + 1
    table = np.zeros((8, total), np.int64)
    rows, row_of, count = np.empty(numbers.size, np.int64), np.full(most, -1, np.int64), 0
    for s in range(offsets.size - 1):
        first_row, i = count, offsets[s]
        while i < offsets[s + 1]:
            number, begin = numbers[i], i
            if number >= 0 and row_of[number] < 0:
                row_of[number] = count
                table[0, count], table[1, count], table[2, count], table[3, count] = s, number, i, starts[i]
                count += 1
            row = row_of[number] if number >= 0 else -1
            last = total_bytes = last_before = before = 0
            while i < offsets[s + 1] and numbers[i] == number:  # most lie together
                last, total_bytes = max(last, ends[i]), total_bytes + sizes[i]
                if starts[i] < edge:
                    last_before, before = last, total_bytes
                i += 1
            rows[begin:i] = row
            if row >= 0:
                table[4, row], table[6, row] = max(table[4, row], last), max(table[6, row], last_before)
                table[5, row] += total_bytes
                table[7, row] += before
        for row in range(first_row, count):
            row_of[table[1, row]] = -1
    return table[:, :count], rows


@kernel(array(INT64, 2), INT64S, INT64S)
def _totals_by_owner(found: Integers, rows: Integers, offsets: Integers) -> Integers:
    numbers = found[1]
    most = 0
    for row in rows:
        most = max(most, numbers[row] + 1)
    table, row_of, count = np.zeros((8, rows.size), np.int64), np.full(most, -1, np.int64), 0
    for owner in range(offsets.size - 1):
        own, before = rows[offsets[owner] : offsets[owner + 1]], count
        for row in own:
            row_of[numbers[row]] = 0
        for number in range(most):
            if row_of[number] == 0:
                row_of[number], table[0, count], table[1, count] = count, owner, number
                count += 1
        for row in own[::-1]:  # so that the first is the last to say where it is
            to = row_of[numbers[row]]
            table[2, to] = found[2, row]
            table[3, to] = min(table[3, to], found[3, row]) if table[3, to] else found[3, row]
            for last, total in ((4, 5), (6, 7)):
                table[last, to] = max(table[last, to], found[last, row])
                table[total, to] += found[total, row]
        for to in range(before, count):
            row_of[table[1, to]] = -1
    return table[:, :count]
