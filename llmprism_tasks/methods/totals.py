"""Totals: what the transfers of each series with one number have in common: when they begin, end, what they carry."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers


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


def of_numbers(
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
    table, rows = _of_numbers(numbers, offsets, starts, ends, sizes, edge)
    return Totals(*table), rows


@compiled
def _of_numbers(
    numbers: Integers, offsets: Integers, starts: Integers, ends: Integers, sizes: Integers, edge: int
) -> tuple[Integers, Integers]:
    most, total = 0, 0
    for s in range(offsets.size - 1):
        highest = -1
        for i in range(offsets[s], offsets[s + 1]):
            highest = max(highest, numbers[i])
        most, total = max(most, highest + 1), total + highest + 1
    table = np.zeros((8, total), np.int64)
    rows, row_of, count = np.full(numbers.size, -1, np.int64), np.full(most, -1, np.int64), 0
    for s in range(offsets.size - 1):
        first_row = count
        for i in range(offsets[s], offsets[s + 1]):
            number = numbers[i]
            if number < 0:
                continue
            if row_of[number] < 0:
                row_of[number] = count
                table[0, count], table[1, count], table[2, count], table[3, count] = s, number, i, starts[i]
                count += 1
            row = rows[i] = row_of[number]
            table[4, row] = max(table[4, row], ends[i])
            table[5, row] += sizes[i]
            if starts[i] < edge:
                table[6, row] = max(table[6, row], ends[i])
                table[7, row] += sizes[i]
        for row in range(first_row, count):
            row_of[table[1, row]] = -1
    return table[:, :count], rows
