"""Numbering: the distinct values among many, known by their fingerprints."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers

Fingerprints = npt.NDArray[np.uint64]

ROOM = 2
"""Places of the table per value: fuller, searches grow long; emptier, it leaves the processor's caches."""

ODD = np.uint64(0x9E3779B97F4A7C15)
"""64 random bits (splitmix64, S. Vigna), by which products take each bit to all those above it."""


def numbered(first: Fingerprints, second: Fingerprints) -> tuple[npt.NDArray[np.int32], Integers]:
    """Number the distinct values, in the order in which they appear.

    Parameters
    ----------
    first, second : shape (n,): two independent hashes of each value; both are equal only where values are (64 bits
        twice: among a million values, by chance once in 10^26 times)

    Returns
    -------
    the number of each, shape (n,), and where each number appears first, shape (numbers,)
    """
    numbers, rows, count = _numbered(first, second)
    return numbers, rows[:count].copy()


def numbered_lists(items: npt.NDArray[np.int32], offsets: Integers) -> tuple[npt.NDArray[np.int32], Integers]:
    """Number the distinct lists of whole numbers, in the order in which they appear; as `numbered` returns.

    Parameters
    ----------
    items : the numbers of all lists one after another
    offsets : shape (n + 1,): list i holds the items `offsets[i]` to `offsets[i + 1]`
    """
    numbers, rows, count = _numbered_lists(items, offsets)
    return numbers, rows[:count].copy()


@compiled
def _numbered_lists(items: npt.NDArray[np.int32], offsets: Integers) -> tuple[npt.NDArray[np.int32], Integers, int]:
    numbers, rows = np.empty(offsets.size - 1, np.int32), np.empty(offsets.size - 1, np.int64)
    hashes, table, count = np.empty(1024, np.uint64), np.full(2048, -1, np.int32), 0
    for i in range(offsets.size - 1):
        mixed = ODD
        for at in range(offsets[i], offsets[i + 1]):
            mixed = (mixed ^ np.uint64(items[at])) * ODD
            mixed ^= mixed >> np.uint64(32)
        mask = np.uint64(table.size - 1)
        place = mixed & mask
        while table[place] >= 0:
            if hashes[table[place]] == mixed and _same(items, offsets, rows[table[place]], i):
                break
            place = (place + np.uint64(1)) & mask
        numbers[i] = table[place]
        if numbers[i] < 0:
            numbers[i] = table[place] = count
            rows[count], hashes[count] = i, mixed
            count += 1
            if count == hashes.size:
                hashes = np.append(hashes, hashes)
                table = _table(hashes, np.arange(count), count, ROOM * hashes.size)
    return numbers, rows, count


@compiled
def _same(items: npt.NDArray[np.int32], offsets: Integers, one: int, other: int) -> bool:
    length, at = offsets[one + 1] - offsets[one], 0
    if offsets[other + 1] - offsets[other] != length:
        return False
    while at < length and items[offsets[one] + at] == items[offsets[other] + at]:
        at += 1
    return bool(at == length)


@compiled
def _table(first: Fingerprints, rows: Integers, count: int, size: int) -> npt.NDArray[np.int32]:
    """Return a table of places, with the number of each distinct value at its own or the next free one.

    Parameters
    ----------
    rows : where each of them is first; as many as `count`, from the beginning
    """
    table, mask = np.full(size, -1, np.int32), np.uint64(size - 1)
    for number in range(count):
        place = first[rows[number]] & mask
        while table[place] >= 0:
            place = (place + np.uint64(1)) & mask
        table[place] = number
    return table


@compiled
def _numbered(first: Fingerprints, second: Fingerprints) -> tuple[npt.NDArray[np.int32], Integers, int]:
    numbers, rows = np.empty(first.size, np.int32), np.empty(first.size, np.int64)
    table, count = _table(first, rows, 0, 1024), 0
    for i in range(first.size):
        mask = np.uint64(table.size - 1)
        place = first[i] & mask
        while table[place] >= 0:
            row = rows[table[place]]
            if first[row] == first[i] and second[row] == second[i]:
                break
            place = (place + np.uint64(1)) & mask
        numbers[i] = table[place]
        if numbers[i] < 0:
            numbers[i] = table[place] = count
            rows[count] = i
            count += 1
            if ROOM * count > table.size:
                table = _table(first, rows, count, 2 * table.size)
    return numbers, rows, count
