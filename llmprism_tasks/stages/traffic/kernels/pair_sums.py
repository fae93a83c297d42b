"""Sums per series and step: transfers, bytes and sizes, for transfers in any order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.grouped_sort import Places
from llmprism_tasks.numerics.jit import BOOLEANS, INT32S, INT64, INT64S, kernel
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import median


class Tallies(NamedTuple):
    """What series send in their steps: segment by segment of their transfers.

    Attributes
    ----------
    offsets : shape (segments + 1,): where each segment begins in the order of transfers
    series : shape (series + 1,): series i holds the segments `series[i]` to `series[i + 1]`
    first, last : shape (segments,), the places of its first and its last transfer
    total, fresh : shape (segments,), bytes, and how many of its transfers are marked
    """

    offsets: Integers
    series: Integers
    first: Integers
    last: Integers
    total: Integers
    fresh: Integers


def tally_steps(
    order: Integers, offsets: Integers, steps: Integers, sizes: Integers, fresh: npt.NDArray[np.bool_]
) -> Tallies:
    """Sum up what series send in each of their steps.

    Parameters
    ----------
    order : places of transfers, shape (transfers,), each series in order of its steps
    offsets : shape (series + 1,): series i has the places `order[offsets[i]]` to `order[offsets[i + 1] - 1]`
    steps, sizes, fresh : of each transfer: its step, its bytes, and a mark to count
    """
    table, series, total, marked = _tally_steps(order, offsets, steps, sizes, fresh)
    return Tallies(table, series, order[table[:-1]], order[table[1:] - 1], total, marked)


def at_time(offsets: Integers, times: Integers, sizes: Integers, time: int, least: int) -> tuple[Integers, ...]:
    """Count what each series sends at one of several times: all transfers and their bytes, and those of larger ones.

    Parameters
    ----------
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    times : of each transfer
    sizes : bytes
    least : bytes that a larger one has more than

    Returns
    -------
    transfers, bytes, larger transfers and their bytes, each of shape (series,)
    """
    return tuple(_at_time(offsets, times, sizes, time, least))


class Sent(NamedTuple):
    """What series send in their steps; arrays of shape (segments,), each series in the order of its transfers.

    Attributes
    ----------
    series, step : whose it is
    start, end : ns, of the first transfer and the latest end
    transfers, total : how many, and their bytes
    kinds : how many different kinds of them
    """

    series: Integers
    step: Integers
    start: Integers
    end: Integers
    transfers: Integers
    total: Integers
    kinds: Integers


def step_sums(
    offsets: Integers, steps: Integers, starts: Integers, ends: Integers, sizes: Integers, kinds: Integers
) -> Sent:
    """Sum up what series send from the beginning of each of their steps to its end.

    Parameters
    ----------
    offsets : shape (series + 1,): series i holds the transfers `offsets[i]` to `offsets[i + 1]`
    steps : of each transfer, ascending in its series
    starts, ends, sizes : ns, ns and bytes
    kinds : small numbers; negative ones are of no kind
    """
    return Sent(*_step_sums(offsets, steps, starts, ends, sizes, kinds, int(kinds.max(initial=0)) + 1))


@kernel(INT32S, INT64, INT64S)
def of_groups(groups: Places, number: int, sizes: Integers) -> tuple[Integers, Integers]:
    """Return how many transfers each group has, and how large the largest of them is; 0 for none.

    Parameters
    ----------
    groups : shape (transfers,): the group of each, from 0 to `number` - 1
    sizes : shape (transfers,), > 0, any unit

    Returns
    -------
    counts and sizes, shape (number,) each
    """
    counts, largest = np.zeros(number, np.int64), np.zeros(number, np.int64)
    for i in range(groups.size):
        counts[groups[i]] += 1
        largest[groups[i]] = max(largest[groups[i]], sizes[i])
    return counts, largest


@kernel(INT64S, INT64S, INT64S, INT64, INT64)
def _at_time(offsets: Integers, times: Integers, sizes: Integers, time: int, least: int) -> Integers:
    table = np.zeros((4, offsets.size - 1), np.int64)
    for series in range(offsets.size - 1):
        for i in range(offsets[series], offsets[series + 1]):
            if times[i] == time:
                table[0, series] += 1
                table[1, series] += sizes[i]
                if sizes[i] > least:
                    table[2, series] += 1
                    table[3, series] += sizes[i]
    return table


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, INT64S, INT64)
def _step_sums(
    offsets: Integers,
    steps: Integers,
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    kinds: Integers,
    limit: int,
) -> Integers:
    count = 0
    for series in range(offsets.size - 1):
        for i in range(offsets[series], offsets[series + 1]):
            count += i == offsets[series] or steps[i] != steps[i - 1]
    table, met_in, row = np.zeros((7, count), np.int64), np.full(limit, -1, np.int64), -1
    for series in range(offsets.size - 1):
        for i in range(offsets[series], offsets[series + 1]):
            if i == offsets[series] or steps[i] != steps[i - 1]:
                row += 1
                table[0, row], table[1, row], table[2, row] = series, steps[i], starts[i]
            table[3, row] = max(table[3, row], ends[i])
            table[4, row] += 1
            table[5, row] += sizes[i]
            if kinds[i] >= 0 and met_in[kinds[i]] != row:
                met_in[kinds[i]] = row
                table[6, row] += 1
    return table


@kernel(INT64S, INT64S, INT64S, INT64S, BOOLEANS)
def _tally_steps(
    order: Integers, offsets: Integers, steps: Integers, sizes: Integers, fresh: npt.NDArray[np.bool_]
) -> tuple[Integers, Integers, Integers, Integers]:
    table, count = np.empty((3, order.size + 1), np.int64), 0  # mostly unused: so no memory is taken for it
    series = np.zeros(offsets.size, np.int64)
    for one in range(offsets.size - 1):
        begin = offsets[one]
        while begin < offsets[one + 1]:
            step, end, total, marked = steps[order[begin]], begin, 0, 0
            while end < offsets[one + 1] and steps[order[end]] == step:
                total += sizes[order[end]]
                marked += fresh[order[end]]
                end += 1
            table[0, count], table[1, count], table[2, count] = begin, total, marked
            begin, count = end, count + 1
        series[one + 1] = count
    table[0, count] = order.size
    return table[0, : count + 1].copy(), series, table[1, :count].copy(), table[2, :count].copy()


@kernel(INT64S, INT64S, INT64S, INT64S)
def medians(order: Integers, lows: Integers, highs: Integers, sizes: Integers) -> Floats:
    """Return the median size of transfers that lie together in an order.

    Parameters
    ----------
    order : places of transfers
    lows, highs : those at `order[lows[i]]` to `order[highs[i] - 1]` are together, one at least
    sizes : of each transfer, bytes
    """
    middles, room = np.empty(lows.size), np.empty(order.size)
    for segment in range(lows.size):
        low, count, ascending = lows[segment], highs[segment] - lows[segment], True
        for i in range(count):
            room[i] = sizes[order[low + i]]
            ascending &= i == 0 or room[i] >= room[i - 1]
        if ascending:  # most rows are all equal
            middles[segment] = (room[(count - 1) // 2] + room[count // 2]) / 2
        else:
            middles[segment] = median(room, count)
    return middles
