"""Fingerprints: whether two series of transfers are the same, known without keeping them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.jit import INT64S, kernel
from llmprism_tasks.numerics.robust import Integers

Fingerprints = npt.NDArray[np.uint64]

# Odd numbers of 64 random bits (splitmix64, S. Vigna), by which products take each bit to all those above it.
MIXING = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def of_series(starts: Integers, ends: Integers, sizes: Integers, offsets: Integers) -> Fingerprints:
    """Return two independent hashes of each series.

    Parameters
    ----------
    starts, ends, sizes : transfers of all series one after another
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`

    Returns
    -------
    shape (2, series): of different series both are equal by chance once in 10^38 times
    """
    return _of_series(starts, ends, sizes, offsets)


@kernel(INT64S, INT64S, INT64S, INT64S)
def _of_series(starts: Integers, ends: Integers, sizes: Integers, offsets: Integers) -> Fingerprints:
    found = np.empty((2, offsets.size - 1), np.uint64)
    half, (one, other, third) = np.uint64(32), MIXING
    for series in range(offsets.size - 1):
        first, second = one, other
        for i in range(offsets[series], offsets[series + 1]):
            start, end, size = np.uint64(starts[i]), np.uint64(ends[i]), np.uint64(sizes[i])
            first = (first ^ (start * other + end * third + size)) * one
            second = (second ^ (start + end * one + size * third)) * other
            first, second = first ^ (first >> half), second ^ (second >> half)
        found[0, series], found[1, series] = first, second
    return found
