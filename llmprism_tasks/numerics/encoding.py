"""Encoding: the distinct values among many, numbered, found with hash tables instead of sorting all of them.

`numbered` numbers values of two halves in order of appearance, for Python; `distinct` numbers whole numbers in
ascending order, for kernels.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.jit import INT32S, INT64, INT64S, UINT32S, UINT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import sort

Halves = npt.NDArray[np.uint64] | npt.NDArray[np.uint32]

SPREADING = np.uint64(0x9E3779B97F4A7C15)
"""An odd number of 64 random bits (splitmix64, S. Vigna): products with it differ in the bits that choose a place."""

TOGETHER = np.uint64(0xBF58476D1CE4E5B9)
"""An odd number of 64 random bits (splitmix64, S. Vigna), by which the halves of a value are told apart."""

ROOM = 2
"""Places of the table per value: fuller, searches grow long."""

BITS = 16
"""Of the table's size at first: as much as the processor's nearer caches hold. What does not fit is begun again with
`MORE` of them, since a table that grows while it is read costs more than what it has read so far."""

MORE = 2


def numbered(first: Halves, second: Halves) -> tuple[npt.NDArray[np.int32], Integers]:
    """Number the distinct values, in the order in which they appear.

    Parameters
    ----------
    first, second : shape (n,): two halves of each value, both of which are equal only where values are: its codes, or
        two independent hashes (64 bits twice: among a million values, by chance once in 10^26 times)

    Returns
    -------
    the number of each, shape (n,), and where each number appears first, shape (numbers,)
    """
    bits = BITS
    while True:
        numbers, rows = _numbered(first, second, bits)
        if ROOM * rows.size <= 1 << bits:
            return numbers, rows
        bits += MORE


def numbered_lists(items: npt.NDArray[np.int32], offsets: Integers) -> tuple[npt.NDArray[np.int32], Integers]:
    """Number the distinct lists of whole numbers, in the order in which they appear; as `numbered` returns.

    Parameters
    ----------
    items : the numbers of all lists one after another
    offsets : shape (n + 1,): list i holds the items `offsets[i]` to `offsets[i + 1]`
    """
    return numbered(*_hashes(items, offsets))


def distinct_codes(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the distinct ones of many codes, which are below a number that fits into memory, ascending."""
    return np.flatnonzero(_met(codes)).astype(np.uint32)


@kernel(UINT32S)
def _met(codes: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    most = np.int64(-1)
    for code in codes:
        most = max(most, np.int64(code))
    met = np.zeros(most + 1, np.bool_)
    for code in codes:
        met[code] = True
    return met


@subroutine
def _place(
    key: np.uint64, other: np.uint64, table: npt.NDArray[np.int32], keys: npt.NDArray[np.uint64], bits: int
) -> np.uint64:
    """Return the place of a table of numbers that has a value's, or that is free for it."""
    mask, one = np.uint64((1 << bits) - 1), np.uint64(1)
    place = ((key + other * TOGETHER) * SPREADING) >> np.uint64(64 - bits)
    while table[place] >= 0 and (keys[table[place], 0] != key or keys[table[place], 1] != other):
        place = (place + one) & mask
    return place


@kernel(UINT64S, UINT64S, INT64, also=[(UINT32S, UINT32S, INT64)])
def _numbered(first: Halves, second: Halves, bits: int) -> tuple[npt.NDArray[np.int32], Integers]:
    """Number values as far as a table of so many bits has room for them."""
    most = 1 << bits
    numbers, rows, count = np.empty(first.size, np.int32), np.empty(most, np.int64), 0
    table, keys = np.full(most, -1, np.int32), np.empty((most, 2), np.uint64)
    for i in range(first.size):
        key, other = np.uint64(first[i]), np.uint64(second[i])
        place = _place(key, other, table, keys, bits)
        if table[place] < 0:
            if ROOM * count > most:
                break
            keys[count, 0], keys[count, 1], rows[count], table[place] = key, other, i, count
            count += 1
        numbers[i] = table[place]
    return numbers, rows[:count].copy()


@kernel(INT32S, INT64S)
def _hashes(items: npt.NDArray[np.int32], offsets: Integers) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return two independent hashes of each list."""
    lists = offsets.size - 1
    first, second = np.full(lists, SPREADING), np.full(lists, TOGETHER)
    for i in range(lists):
        for at in range(offsets[i], offsets[i + 1]):
            item = np.uint64(items[at]) + np.uint64(1)
            first[i] = (first[i] ^ item) * SPREADING
            first[i] ^= first[i] >> np.uint64(32)
            second[i] = (second[i] ^ item) * TOGETHER
            second[i] ^= second[i] >> np.uint64(29)
    return first, second


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
