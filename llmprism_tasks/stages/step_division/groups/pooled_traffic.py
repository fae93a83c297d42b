"""Traffic of a group as one: the records of some of its senders, in order of time, and when none of them sends."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics import grouped_sort, ragged
from llmprism_tasks.numerics.robust import Flags, Floats, Integers, self_weighted_median

BRIEF_PAUSE = 0.25
"""Ratio of the typical pause of a group's pairs below which a pause is none."""

LONGEST_BURST_PAUSES = 10
"""Typical pauses of a group's pairs that what one of them sends without a pause may last: gradients and blocks are
sent between computing, and last about as long as that; through a NIC at an eighth of its rate a few times as long.
Copies of files go on for tens of seconds."""

Times = tuple[Integers, Integers, Integers]
"""Starts and ends, ns, and bytes of flows."""


class Silences(NamedTuple):
    """Silences of a group, in order of time: the records that begin after each, and the logarithm of its length over
    the shortest that counts."""

    at: Integers
    length: Floats

    def longest_of_each(self, portion: Integers, count: int) -> Silences:
        """Return some of them, the longest ones of each portion.

        Parameters
        ----------
        portion : of each, ascending
        """
        order = np.lexsort((-self.length, portion))
        rank = np.arange(order.size) - np.searchsorted(portion, portion)  # in each portion: `order` keeps portions
        chosen = np.sort(order[rank < count])
        return Silences(self.at[chosen], self.length[chosen])


class Traffic(NamedTuple):
    """Records of several senders in order of their starts.

    Attributes
    ----------
    stream, pair : the sender and the pair of each, from 0. What a sender moves to all its peers is the same in every
        step also where experts' shares differ
    starts, ends, latest, sizes : ns and bytes; `latest` is the last end of each and all before it
    """

    stream: Integers
    pair: Integers
    starts: Integers
    latest: Integers
    ends: Integers
    sizes: Integers

    def of(self, kept: Flags) -> Traffic:
        """Return some of the records."""
        stream, pair = (np.unique(which[kept], return_inverse=True)[1] for which in (self.stream, self.pair))
        ends = self.ends[kept]
        return Traffic(stream, pair, self.starts[kept], np.maximum.accumulate(ends), ends, self.sizes[kept])

    @property
    def sent(self) -> Floats:
        """Return what all of them together sent before each record, and in all, shape (records + 1,)."""
        before: Floats = np.append(0, np.cumsum(self.sizes)).astype(np.float64)
        return before

    @property
    def senders(self) -> Integers:
        """Return the sender of each pair, shape (pairs,)."""
        senders = np.zeros(int(self.pair.max()) + 1, np.int64)
        senders[self.pair] = self.stream
        return senders

    def silences(self, shortest_ns: float) -> Silences:
        """Return when none of the streams sends for longer than that."""
        silence = np.append(0, self.starts[1:] - self.latest[:-1])
        at = np.flatnonzero(silence > shortest_ns)
        return Silences(at, np.log(silence[at] / shortest_ns))

    def moved(self, at: Integers) -> Floats:
        """Return what each stream moved before the first record, before some others and in all, shape (places,
        streams)."""
        places = np.concatenate([[0], at, [self.stream.size]])
        return moved_before(self.stream, self.sizes, places, int(self.stream.max()) + 1)


def moved_before(series: Integers, sizes: Integers, at: Integers, count: int) -> Floats:
    """Return what each of `count` series moved before some records, shape (at, count).

    Parameters
    ----------
    series, sizes : of all records, in order of time: whose each is, from 0, and its bytes
    at : of the records, ascending
    """
    part = np.repeat(np.arange(at.size + 1), np.diff(np.concatenate([[0], at, [series.size]])))
    each = np.bincount(part * count + series, sizes, (at.size + 1) * count).astype(np.float64)
    moved: Floats = np.cumsum(each.reshape(-1, count), axis=0)[:-1]
    return moved


def pooled(times: Times, offsets: Integers, places: Integers, senders: Integers) -> Traffic:
    """Return the records of some pairs as one.

    Parameters
    ----------
    times : of all flows, pair by pair
    offsets : shape (all pairs + 1,): pair i has the flows `offsets[i]` to `offsets[i + 1]`
    places, senders : shape (pairs,): which pairs, and the number of each one's sender
    """
    rows, within = grouped_sort.spread(offsets, places)
    starts, ends, sizes = (one[rows] for one in times)
    order = grouped_sort.time_order(starts)
    pair = np.repeat(np.arange(places.size), np.diff(within))[order]
    stream = np.unique(senders, return_inverse=True)[1][pair]
    return Traffic(stream, pair, starts[order], np.maximum.accumulate(ends[order]), ends[order], sizes[order])


def pausing(traffic: Traffic) -> Flags:
    """Say which records are of what pauses now and then, as all traffic of training does, and no copy of files."""
    order = np.argsort(traffic.pair, kind="stable")
    pair, starts, ends = traffic.pair[order], traffic.starts[order], traffic.ends[order]
    offsets = ragged.bounds(pair)
    ends = np.concatenate([np.maximum.accumulate(ends[low:high]) for low, high in pairwise(offsets)])
    pauses = np.maximum(np.append(starts[1:] - ends[:-1], 0), 0)
    pauses[offsets[1:] - 1] = 0
    typical = float(np.median([self_weighted_median(pauses[low:high]) for low, high in pairwise(offsets)]))
    begins = np.zeros(pair.size, np.bool_)
    begins[offsets[:-1]] = True
    begins[1:] |= pauses[:-1] >= BRIEF_PAUSE * typical
    run = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    lasts = ends[np.append(first[1:], pair.size) - 1] - starts[first]
    pausing = np.empty(pair.size, np.bool_)
    pausing[order] = (lasts <= LONGEST_BURST_PAUSES * typical)[run] if typical else True
    return pausing
