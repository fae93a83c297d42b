"""Joining: intervals that overlap, and those that follow each other at once, made one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers

Bits = npt.NDArray[np.int32]


class Intervals(NamedTuple):
    """Intervals of many segments laid end to end.

    Attributes
    ----------
    offsets : shape (segments + 1,): segment i holds the rows `offsets[i]` to `offsets[i + 1]`
    starts, ends : ns, shape (n,)
    bits : shape (n,), what each of them is
    peers : shape (n,), numbers
    """

    offsets: Integers
    starts: Integers
    ends: Integers
    bits: Bits
    peers: Integers


def joined(rows: Intervals, order: Integers, quick: int, at_once: float) -> Intervals:
    """Join intervals that overlap or touch, and quick ones that follow each other at once.

    Parameters
    ----------
    order : shape (n,), the places of the rows, segment by segment in order of their starts
    quick : bits: who has one of them is quick
    at_once : ratio of the length of a quick one, within which a quick one that comes next begins at once

    Returns
    -------
    in order; `bits` are those of all that were joined, `peers` that of the first
    """
    offsets, starts, ends, bits, peers = _joined(*rows, order, quick, at_once)
    n = offsets[-1]
    return Intervals(offsets, starts[:n].copy(), ends[:n].copy(), bits[:n].copy(), peers[:n].copy())


@compiled
def _joined(
    offsets: Integers,
    starts: Integers,
    ends: Integers,
    bits: Bits,
    peers: Integers,
    order: Integers,
    quick: int,
    at_once: float,
) -> tuple[Integers, Integers, Integers, Bits, Integers]:
    rows = len(starts)
    bounds, bit = np.zeros(len(offsets), np.int64), np.empty(rows, bits.dtype)
    start, end, peer = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    n = 0
    for segment in range(len(offsets) - 1):
        for place in range(offsets[segment], offsets[segment + 1]):
            i, slack, begins = order[place], 0.0, place == offsets[segment]
            if not begins:
                before = order[place - 1]
                if bits[i] & quick and bits[before] & quick:
                    slack = (ends[before] - starts[before]) * at_once
                begins = starts[i] > end[n - 1] + slack
            if begins:
                start[n], end[n], bit[n], peer[n] = starts[i], ends[i], bits[i], peers[i]
                n += 1
            else:
                end[n - 1] = max(end[n - 1], ends[i])
                bit[n - 1] |= bits[i]
        bounds[segment + 1] = n
    return bounds, start, end, bit, peer
