"""The parts of each whole ranked by their share of it, and sums over them in that order."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics import grouped_sort
from llmprism_tasks.numerics.jit import FLOAT64S, INT64S, kernel
from llmprism_tasks.numerics.robust import Floats, Integers


def ranked(wholes: Integers, number: int, shares: Floats) -> tuple[Integers, Integers]:
    """Return the places of the parts of each whole, the smallest share first, of equal ones the first place first.

    Parameters
    ----------
    wholes : shape (parts,), the whole of each, from 0 to `number` - 1
    shares : shape (parts,)

    Returns
    -------
    places, shape (parts,), and offsets, shape (number + 1,): whole i has the places `offsets[i]` to `offsets[i + 1]`
    """
    places, offsets = grouped_sort.collected(wholes, number)
    return _ranked(places, offsets, shares), offsets


@kernel(INT64S, INT64S, FLOAT64S)
def _ranked(places: Integers, offsets: Integers, shares: Floats) -> Integers:
    ranks = places.copy()
    for whole in range(offsets.size - 1):
        for i in range(offsets[whole], offsets[whole + 1]):  # each has few
            place, to = places[i], i
            while to > offsets[whole] and shares[ranks[to - 1]] > shares[place]:
                ranks[to] = ranks[to - 1]
                to -= 1
            ranks[to] = place
    return ranks


@kernel(FLOAT64S, INT64S, INT64S)
def sums(values: Floats, places: Integers, offsets: Integers) -> Floats:
    """Return the sum of the values of each whole's parts, added in this order."""
    found = np.zeros(offsets.size - 1)
    for whole in range(offsets.size - 1):
        for i in range(offsets[whole], offsets[whole + 1]):
            found[whole] += values[places[i]]
    return found


@kernel(FLOAT64S, INT64S, INT64S)
def of_largest(values: Floats, places: Integers, offsets: Integers) -> Floats:
    """Return for each whole the value of the last of its parts that has one (others NaN); NaN where none has."""
    found = np.full(offsets.size - 1, np.nan)
    for whole in range(offsets.size - 1):
        for i in range(offsets[whole], offsets[whole + 1]):
            if not np.isnan(values[places[i]]):
                found[whole] = values[places[i]]
    return found
