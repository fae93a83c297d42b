"""Distinct: the different numbers of a series, found without sorting all of them."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import subroutine
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import sort

SPREADING = np.uint64(0x9E3779B97F4A7C15)
"""An odd number of 64 random bits (splitmix64, S. Vigna): products with it differ in the bits that choose a place."""

ROOM = 2
"""Places of the table per number: fuller, searches grow long."""


@subroutine
def distinct(values: Floats | Integers, numbers: Integers, different: Floats) -> int:
    """Write the different values, ascending, and for each value its place among them; return how many there are.

    Parameters
    ----------
    values : shape (n,), below 2^53, so that floats hold them
    numbers, different : shape (n,) or longer, to be written
    """
    bits = 1
    while (1 << bits) < ROOM * values.size:
        bits += 1
    table, mask, shift, count = np.full(1 << bits, -1, np.int32), (1 << bits) - 1, np.uint64(64 - bits), 0
    for i in range(values.size):
        place = np.int64((np.uint64(np.int64(values[i])) * SPREADING) >> shift)
        while table[place] >= 0 and different[table[place]] != values[i]:
            place = (place + 1) & mask
        if table[place] < 0:
            different[count] = values[i]
            table[place] = count
            count += 1
        numbers[i] = table[place]
    if count == 1:
        return 1
    order, rank = np.arange(count), np.empty(count, np.int64)
    sort(different, order, count)
    for k in range(count):
        rank[order[k]] = k
    for i in range(values.size):
        numbers[i] = rank[numbers[i]]
    return count
