"""Unions of intervals that overlap or follow each other at once, and the gaps between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.asof import lower_bound
from llmprism_tasks.numerics.intervals import ROWS, Numbers, Rows, extend_union, most_rows
from llmprism_tasks.numerics.jit import FLOAT64, INT32S, INT64, INT64S, kernel, named_tuple, subroutine
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.numerics.sorting import sort_by

Bits = npt.NDArray[np.int32]

NO_SEGMENT = -1
"""In the place of a segment that is not known."""


class Counterparts(NamedTuple):
    """The segments at the other end of each series: its owner's segment of the same number.

    Attributes
    ----------
    owners : shape (series,), who that is; -1 for nobody that has segments
    numbers : shape (segments,), ascending among those of one owner
    offsets : shape (owners + 1,): owner i has the segments `offsets[i]` to `offsets[i + 1]`
    """

    owners: Integers
    numbers: Integers
    offsets: Integers


COUNTERPARTS = named_tuple(Counterparts, INT64S, INT64S, INT64S)


class Intervals(NamedTuple):
    """Intervals of many segments laid end to end.

    Attributes
    ----------
    offsets : shape (segments + 1,): segment i holds the rows `offsets[i]` to `offsets[i + 1]`
    starts, ends : ns, shape (n,)
    bits : shape (n,), what each of them is
    peers : shape (n,), the segment of the other end, or `NO_SEGMENT`
    """

    offsets: Integers
    starts: Integers
    ends: Integers
    bits: Bits
    peers: Integers


INTERVALS = named_tuple(Intervals, INT64S, INT64S, INT64S, INT32S, INT64S)


class Gaps(NamedTuple):
    """Gaps between intervals, before the first and after the last one of each segment; empty gaps are left out.

    Attributes
    ----------
    offsets : shape (segments + 1,)
    starts, ends : ns, shape (m,)
    brought, took : shape (m,), the bits of the intervals around it, 0 where there is none
    peers : shape (m,), of the one after it
    """

    offsets: Integers
    starts: Integers
    ends: Integers
    brought: Bits
    took: Bits
    peers: Integers

    @property
    def lengths(self) -> Integers:
        """Return how long they are, ns."""
        return self.ends - self.starts

    @property
    def segments(self) -> Numbers:
        """Return the segment of each."""
        return np.repeat(np.arange(self.offsets.size - 1, dtype=np.int32), np.diff(self.offsets))


GAPS = named_tuple(Gaps, INT64S, INT64S, INT64S, INT32S, INT32S, INT64S)


def joined(rows: Rows, bits: Bits, others: Counterparts, beside: Intervals, *, quick: int, at_once: float) -> Intervals:
    """Unite intervals that overlap or touch, and quick ones that follow each other at once.

    Parameters
    ----------
    rows : those that take no time are left out
    bits : shape (series,), what its transfers are; 0 for those to be left out
    beside : more intervals of the same segments; they may take no time
    quick : bits: an interval with one of them is quick
    at_once : ratio of the length of a quick one, within which a quick one that comes next begins at once

    Returns
    -------
    in order; `bits` are those of all that were joined, `peers` that of the first by start, end and peer
    """
    offsets, starts, ends, of, peers = _joined(rows, bits, others, beside, quick, at_once)
    n = offsets[-1]
    return Intervals(offsets, starts[:n], ends[:n], of[:n], peers[:n])


def gaps_between(rows: Intervals, opens: Integers, closes: Integers) -> Gaps:
    """Return the gaps between intervals.

    Parameters
    ----------
    rows : apart from each other and in order, within each segment
    opens, closes : ns, shape (segments,): where segments begin and end
    """
    offsets, starts, ends, brought, took, peers = _gaps_between(rows, opens, closes)
    n = offsets[-1]
    return Gaps(offsets, starts[:n], ends[:n], brought[:n], took[:n], peers[:n])


def sorts(rows: Gaps, segments: Integers, bits: int) -> tuple[Numbers, Integers]:
    """Number the sorts of gaps: those with the same bits around them in segments of one sort.

    Parameters
    ----------
    segments : shape (segments,), the sort of each, from 0; few
    bits : above all bits of the gaps

    Returns
    -------
    shape (m,), from 0, and of each sort `(segment * bits + brought) * bits + took`
    """
    return _sorts(rows, segments, bits, int(segments.max(initial=0)) + 1)


@subroutine
def _counterpart(owner: int, number: int, others: Counterparts) -> int:
    if owner < 0:
        return NO_SEGMENT
    until = others.offsets[owner + 1]
    found = lower_bound(others.numbers, others.offsets[owner], until, number)
    return found if found < until and others.numbers[found] == number else NO_SEGMENT


@kernel(ROWS, INT32S, COUNTERPARTS, INTERVALS, INT64, FLOAT64)
def _joined(
    rows: Rows, bits: Bits, others: Counterparts, beside: Intervals, quick: int, at_once: float
) -> tuple[Integers, Integers, Integers, Bits, Integers]:
    offsets, (total, room) = rows.offsets, most_rows(rows, bits != 0)
    most, room = total + len(beside.starts), room + len(beside.starts)
    bounds, bit = np.zeros(len(offsets), np.int64), np.empty(most, np.int32)
    start, end, peer = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    keys, order, until = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    with_, is_ = np.empty(room, np.int64), np.empty(room, np.int32)  # of one segment, as the three before
    n = 0
    for segment in range(len(offsets) - 1):
        count = 0
        for run in range(offsets[segment], offsets[segment + 1]):
            of = rows.series[run]
            if not bits[of]:
                continue
            other = _counterpart(others.owners[of], others.numbers[segment], others)
            for i in range(rows.begins[run], rows.untils[run]):
                keys[count] = max(rows.starts[i], rows.opens[segment])
                until[count] = min(rows.ends[i], rows.closes[segment])
                order[count], is_[count], with_[count] = count, bits[of], other
                count += until[count] > keys[count]
        for row in range(beside.offsets[segment], beside.offsets[segment + 1]):
            keys[count], until[count] = beside.starts[row], beside.ends[row]
            order[count], is_[count], with_[count] = count, beside.bits[row], beside.peers[row]
            count += 1
        sort_by(keys, order, count, until, with_)
        first = n
        for place in range(count):
            i, slack = order[place], 0.0
            before = order[max(place - 1, 0)]
            if is_[i] & quick and is_[before] & quick:
                slack = (until[before] - keys[max(place - 1, 0)]) * at_once
            unions = extend_union(start, end, first, n, keys[place], until[i], slack)
            if unions > n:
                bit[n], peer[n] = 0, with_[i]
            n = unions
            bit[n - 1] |= is_[i]
        bounds[segment + 1] = n
    return bounds, start, end, bit, peer


@kernel(INTERVALS, INT64S, INT64S)
def _gaps_between(
    rows: Intervals, opens: Integers, closes: Integers
) -> tuple[Integers, Integers, Integers, Bits, Bits, Integers]:
    offsets, starts = rows.offsets, rows.starts
    most = len(starts) + len(opens)
    bounds, start, end = np.zeros(len(offsets), np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    brought, took, peer = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int64)
    n = 0
    for segment in range(len(offsets) - 1):
        free, last = opens[segment], 0
        for row in range(offsets[segment], offsets[segment + 1] + 1):
            closing = row == offsets[segment + 1]
            until = closes[segment] if closing else starts[row]
            if until > free:
                start[n], end[n], brought[n] = free, until, last
                took[n], peer[n] = 0 if closing else rows.bits[row], NO_SEGMENT if closing else rows.peers[row]
                n += 1
            if not closing:
                free, last = rows.ends[row], rows.bits[row]
        bounds[segment + 1] = n
    return bounds, start, end, brought, took, peer


@kernel(GAPS, INT64S, INT64, INT64)
def _sorts(rows: Gaps, segments: Integers, bits: int, kinds: int) -> tuple[Numbers, Integers]:
    number_of, numbers = np.full(kinds * bits * bits, -1, np.int32), np.empty(len(rows.took), np.int32)
    codes, count = np.empty(kinds * bits * bits, np.int64), 0
    for segment in range(len(rows.offsets) - 1):
        for i in range(rows.offsets[segment], rows.offsets[segment + 1]):
            code = (segments[segment] * bits + rows.brought[i]) * bits + rows.took[i]
            if number_of[code] < 0:
                number_of[code], codes[count] = count, code
                count += 1
            numbers[i] = number_of[code]
    return numbers, codes[:count].copy()
