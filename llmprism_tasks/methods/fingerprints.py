"""Fingerprints: whether two series of transfers are the same, known without keeping them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers

Fingerprints = npt.NDArray[np.uint64]

# Odd numbers of 64 random bits (splitmix64, S. Vigna), by which products take each bit to all those above it.
MIXING = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9))


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
    return np.stack([_of_series(starts, ends, sizes, offsets, odd) for odd in MIXING])


@compiled
def _of_series(
    starts: Integers, ends: Integers, sizes: Integers, offsets: Integers, odd: np.uint64
) -> npt.NDArray[np.uint64]:
    found = np.empty(offsets.size - 1, np.uint64)
    half = np.uint64(32)
    for series in range(offsets.size - 1):
        mixed = odd
        for i in range(offsets[series], offsets[series + 1]):
            for number in (starts[i], ends[i], sizes[i]):
                mixed = (mixed ^ np.uint64(number)) * odd
                mixed ^= mixed >> half
        found[series] = mixed
    return found
