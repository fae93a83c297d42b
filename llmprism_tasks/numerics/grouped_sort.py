"""Grouped sort: rows brought into groups, each in order of time, without sorting all rows together."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.jit import BOOLEANS, INT32S, INT64, INT64S, UINT32S, kernel
from llmprism_tasks.numerics.robust import Floats, Integers

KEY_BITS = 63
"""Bits of a number that holds a time and a place: such are sorted ten times as fast as places are by their times."""

Places = npt.NDArray[np.int32]
Groups = Integers | Places
Value = TypeVar("Value", bound=np.generic)


def grouped(groups: Groups, number: int, starts: Integers, ends: Integers, sizes: Integers) -> Places:
    """Return the places of transfers, group by group, each in order of start, end and size.

    Parameters
    ----------
    groups : shape (transfers,): the group of each, from 0 to `number` - 1
    starts, ends, sizes : shape (transfers,); nothing is quicker than what comes in order of the starts

    Returns
    -------
    shape (transfers,): a permutation; what is equal keeps its order
    """
    return _grouped(np.argsort(starts, kind="stable"), groups, number, starts, ends, sizes)


def ascending(groups: Groups, starts: Integers, ends: Integers, sizes: Integers) -> bool:
    """Whether transfers lie group by group, each in order of start, end and size: as `grouped` orders them."""
    return bool(_ascending(groups, starts, ends, sizes))


@kernel(INT64S, INT32S, also=[(INT32S, INT32S), (UINT32S, INT32S), (BOOLEANS, INT32S), (INT32S, UINT32S)])
def taken(values: npt.NDArray[Value], places: Places) -> npt.NDArray[Value]:
    """Return the values at some places: `values[places]`, for which NumPy would make each place twice as wide first."""
    found = np.empty(places.size, values.dtype)
    for i in range(places.size):
        found[i] = values[places[i]]
    return found


@kernel(INT32S, INT64S, INT64S, INT64S, also=[(INT64S, INT64S, INT64S, INT64S)])
def _ascending(groups: Groups, starts: Integers, ends: Integers, sizes: Integers) -> bool:
    for i in range(1, groups.size):
        if groups[i - 1] == groups[i] and starts[i - 1] < starts[i]:  # nearly all
            continue
        before = (groups[i - 1], starts[i - 1], ends[i - 1], sizes[i - 1])
        if before > (groups[i], starts[i], ends[i], sizes[i]):
            return False
    return True


@kernel(INT64S, INT32S, INT64, INT64S, INT64S, INT64S, also=[(INT64S, INT64S, INT64, INT64S, INT64S, INT64S)])
def _grouped(rows: Integers, groups: Groups, number: int, starts: Integers, ends: Integers, sizes: Integers) -> Places:
    counts = np.zeros(number + 1, np.int64)
    for group in groups:
        counts[group + 1] += 1
    begins = np.cumsum(counts)
    following, latest = begins.copy(), np.empty(number, np.int64)
    places = np.empty(groups.size, np.int32)
    for i in rows:
        group, start = groups[i], starts[i]
        place = following[group]
        following[group] += 1
        while place > begins[group] and latest[group] == start:
            before = places[place - 1]
            if starts[before] != start or (ends[before], sizes[before]) <= (ends[i], sizes[i]):
                break
            places[place] = before
            place -= 1
        places[place], latest[group] = i, start
    return places


def collected(groups: Integers, number: int) -> tuple[Integers, Integers]:
    """Return the places of each group's members, group by group, each in the order in which they come; and offsets.

    Parameters
    ----------
    groups : shape (members,): the group of each, from 0 to `number` - 1

    Returns
    -------
    places, shape (members,), and offsets, shape (number + 1,): group i has the places `offsets[i]` to `offsets[i + 1]`
    """
    return _collected(groups, number)


def collected_narrow(groups: Places, number: int) -> tuple[Places, Integers]:
    """Return the same as `collected`, with 32-bit groups and places."""
    return _collected(groups, number)


def ascending_times(groups: Integers, number: int, times: Integers) -> tuple[Integers, Integers]:
    """Return the times of each group's members, group by group, ascending; and offsets, as `collected` does.

    Parameters
    ----------
    groups : shape (members,): the group of each, from 0 to `number` - 1
    times : shape (members,), any unit
    """
    first, last = (int(times.min()), int(times.max())) if times.size else (0, 0)
    bits = (last - first).bit_length()
    if number.bit_length() + bits > KEY_BITS:
        return times[np.lexsort((times, groups))], np.searchsorted(np.sort(groups), np.arange(number + 1))
    keys = groups << bits
    keys |= times - first
    keys.sort()
    offsets = np.searchsorted(keys, np.arange(number + 1) << bits)
    keys &= (1 << bits) - 1
    keys += first
    return keys, offsets


def time_order(times: Integers) -> Integers:
    """Return the places of members in order of time, of equal times the first place first."""
    bits = times.size.bit_length()
    if not times.size or (int(times.max()) - int(times.min())).bit_length() + bits > KEY_BITS:
        return np.argsort(times, kind="stable")
    keys: Integers = times - times.min()
    keys <<= bits
    keys |= np.arange(times.size)
    keys.sort()
    keys &= (1 << bits) - 1
    return keys


def moment_order(moments: Floats) -> Integers:
    """Return the places of numbers that are not NaN in ascending order, of equal ones the first place first.

    Their bits are whole numbers in the same order, those of negative ones backwards.
    """
    bits = (moments + 0.0).view(np.int64)  # of the two zeros it makes one
    return time_order(np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits))


def spread(offsets: Integers, chosen: Integers) -> tuple[Integers, Integers]:
    """Return the places of the members of chosen series, series by series, and the offsets of these."""
    counts = (offsets[1:] - offsets[:-1])[chosen]
    within = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return np.arange(within[-1]) + np.repeat(offsets[:-1][chosen] - within[:-1], counts), within


@kernel(INT64S, INT64, also=[(INT32S, INT64)])
def _collected(groups: npt.NDArray[Value], number: int) -> tuple[npt.NDArray[Value], Integers]:
    offsets = np.zeros(number + 1, np.int64)
    for group in groups:
        offsets[group + 1] += 1
    offsets = np.cumsum(offsets)
    following, places = offsets.copy(), np.empty(groups.size, groups.dtype)
    for i in range(groups.size):
        places[following[groups[i]]] = i
        following[groups[i]] += 1
    return places, offsets


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S)
def merged(
    offsets: Integers, one: Integers, other: Integers, starts: Integers, ends: Integers
) -> tuple[Integers, Integers, Integers]:
    """Return the places of the members of two series each, in order of start and end, and whose each is.

    Parameters
    ----------
    one, other : shape (couples,): the two series of each couple; -1 for none
    starts, ends : shape (members,), each series in this order

    Returns
    -------
    places and sides (1 for those of `one`, 0 for the other's; of equals, 1 is first), shape (places,), and the offsets
    of couples, shape (couples + 1,)
    """
    within = np.zeros(one.size + 1, np.int64)
    for couple in range(one.size):
        within[couple + 1] = within[couple]
        for series in (one[couple], other[couple]):
            if series >= 0:
                within[couple + 1] += offsets[series + 1] - offsets[series]
    places, sides = np.empty(within[-1], np.int64), np.empty(within[-1], np.int64)
    for couple in range(one.size):
        i = stop = j = limit = 0
        if one[couple] >= 0:
            i, stop = offsets[one[couple]], offsets[one[couple] + 1]
        if other[couple] >= 0:
            j, limit = offsets[other[couple]], offsets[other[couple] + 1]
        for place in range(within[couple], within[couple + 1]):
            if j >= limit or (i < stop and (starts[i], ends[i]) <= (starts[j], ends[j])):
                places[place], sides[place] = i, 1
                i += 1
            else:
                places[place], sides[place] = j, 0
                j += 1
    return places, sides, within
