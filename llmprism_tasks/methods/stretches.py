"""Stretches: what overlaps in time made one, put in order, and what lies between.

Many segments laid end to end: segment i of an array holds the rows `offsets[i]` to `offsets[i + 1]`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers
from llmprism_tasks.methods.sorting import first_from, sort

GAP, MARKED_GAP = -2, -1
"""What stands for gaps in the place of a row."""

NEVER = np.iinfo(np.int64).min
"""Before all times."""

Booleans = npt.NDArray[np.bool_]


class Stretches(NamedTuple):
    """Intervals of many segments.

    Attributes
    ----------
    offsets : shape (segments + 1,)
    kinds : shape (n,), of what kind each is
    starts, ends : ns, shape (n,)
    sizes : shape (n,), of all that each was made of
    marked : shape (n,), whether any of that was
    """

    offsets: Integers
    kinds: Integers
    starts: Integers
    ends: Integers
    sizes: Integers
    marked: Booleans

    def at(self, places: Integers) -> Stretches:
        """Return those at these places, which are a permutation within each segment."""
        return Stretches(self.offsets, *(column[places] for column in self[1:]))  # type: ignore[arg-type]


def merged(rows: Stretches, whole: Booleans) -> Stretches:
    """Make one of intervals of one kind that overlap or touch.

    Parameters
    ----------
    rows : those of one kind lie together within a segment; quickest where they are in order of their starts
    whole : shape (kinds,), of which kinds all of a segment's are one, gaps or no gaps

    Returns
    -------
    in the order of the rows: kind by kind, each in order of time
    """
    offsets, kinds, starts, ends, sizes, marked = _merged(*rows, whole)
    n = offsets[-1]
    return Stretches(offsets, kinds[:n], starts[:n], ends[:n], sizes[:n], marked[:n])


def in_order(offsets: Integers, starts: Integers, second: Integers, third: Integers) -> Integers:
    """Return the places of rows, segment by segment, each in order of start, of the second key and of the third."""
    return _in_order(offsets, starts, second, third)


def beginnings(offsets: Integers, starts: Integers, ends: Integers) -> Booleans:
    """Mark the rows that begin a new stretch: later than all before them in their segment have ended.

    Parameters
    ----------
    starts : in order within each segment
    """
    return _beginnings(offsets, starts, ends)


def with_gaps(rows: Stretches, opens: Integers) -> tuple[Integers, Integers, Integers, Integers]:
    """Put gaps before rows among them: from a segment's opening to its first row, and wherever nothing goes on.

    Parameters
    ----------
    rows : in order of their starts within each segment
    opens : shape (segments,), ns

    Returns
    -------
    places : shape (m,): the row, or `MARKED_GAP` before one that is marked (where several begin at once, one of them is
        enough), or `GAP` before others
    segments, starts, ends : shape (m,)
    """
    places, segments, starts, ends, count = _with_gaps(rows.offsets, rows.starts, rows.ends, rows.marked, opens)
    return places[:count], segments[:count], starts[:count], ends[:count]


def latest_before(offsets: Integers, moments: Integers, value_offsets: Integers, values: Integers) -> Integers:
    """Return for each moment the latest value of the same segment that is no later, or `NEVER`.

    Parameters
    ----------
    offsets, moments : ns, in order within each segment
    value_offsets, values : ns, of as many segments, in any order
    """
    return _latest_before(offsets, moments, value_offsets, values)


@compiled
def _merged(
    offsets: Integers,
    kinds: Integers,
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    marked: Booleans,
    whole: Booleans,
) -> tuple[Integers, Integers, Integers, Integers, Integers, Booleans]:
    n = len(starts)
    bounds, mark = np.zeros(len(offsets), np.int64), np.empty(n, np.bool_)
    kind, start, end, size = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    keys, order = np.empty(n, np.int64), np.empty(n, np.int64)
    n = 0
    for segment in range(len(offsets) - 1):
        begin, until = offsets[segment], offsets[segment]
        while begin < offsets[segment + 1]:
            ordered = True
            while until < offsets[segment + 1] and kinds[until] == kinds[begin]:
                ordered &= until == begin or starts[until] >= starts[until - 1]
                until += 1
            fresh, joined = True, whole[kinds[begin]]
            for place in range(begin, until):
                keys[place - begin], order[place - begin] = starts[place], place
            if not (ordered or joined):
                sort(keys, order, until - begin)
            for place in range(until - begin):
                i = order[place]
                if not fresh and not joined and starts[i] > end[n - 1]:
                    fresh = True
                if fresh:
                    kind[n], start[n], end[n], size[n], mark[n] = kinds[i], starts[i], ends[i], sizes[i], marked[i]
                    n, fresh = n + 1, False
                    continue
                start[n - 1], end[n - 1] = min(start[n - 1], starts[i]), max(end[n - 1], ends[i])
                size[n - 1] += sizes[i]
                mark[n - 1] |= marked[i]
            begin = until
        bounds[segment + 1] = n
    return bounds, kind, start, end, size, mark


@compiled
def _in_order(offsets: Integers, starts: Integers, second: Integers, third: Integers) -> Integers:
    places, keys, order = (
        np.empty(len(starts), np.int64),
        np.empty(len(starts), np.int64),
        np.empty(len(starts), np.int64),
    )
    for segment in range(len(offsets) - 1):
        begin, until = offsets[segment], offsets[segment + 1]
        for row in range(begin, until):
            keys[row - begin], order[row - begin] = starts[row], row
        sort(keys, order, until - begin)
        for row in range(begin, until):
            places[row] = order[row - begin]
        for row in range(begin + 1, until):
            i, place = places[row], row
            while place > begin and starts[places[place - 1]] == starts[i]:
                before = places[place - 1]
                if second[before] < second[i] or (second[before] == second[i] and third[before] <= third[i]):
                    break
                places[place] = before
                place -= 1
            places[place] = i
    return places


@compiled
def _beginnings(offsets: Integers, starts: Integers, ends: Integers) -> Booleans:
    begins = np.zeros(len(starts), np.bool_)
    for segment in range(len(offsets) - 1):
        latest = 0
        for row in range(offsets[segment], offsets[segment + 1]):
            first = row == offsets[segment]
            begins[row] = first or starts[row] > latest
            latest = ends[row] if first else max(latest, ends[row])
    return begins


@compiled
def _with_gaps(
    offsets: Integers, starts: Integers, ends: Integers, marked: Booleans, opens: Integers
) -> tuple[Integers, Integers, Integers, Integers, int]:
    most = 2 * len(starts)
    places, segments = np.empty(most, np.int64), np.empty(most, np.int64)
    begin, end = np.empty(most, np.int64), np.empty(most, np.int64)
    n = 0
    for segment in range(len(offsets) - 1):
        free = opens[segment]
        for row in range(offsets[segment], offsets[segment + 1]):
            if free < starts[row]:
                mark, other = False, row
                while other < offsets[segment + 1] and starts[other] == starts[row]:
                    mark |= marked[other]
                    other += 1
                places[n], segments[n] = MARKED_GAP if mark else GAP, segment
                begin[n], end[n] = free, starts[row]
                n += 1
            places[n], segments[n], begin[n], end[n] = row, segment, starts[row], ends[row]
            free = max(free, ends[row])
            n += 1
    return places, segments, begin, end, n


@compiled
def _latest_before(offsets: Integers, moments: Integers, value_offsets: Integers, values: Integers) -> Integers:
    latest = np.full(len(moments), NEVER, np.int64)
    for segment in range(len(offsets) - 1):
        begin, end = offsets[segment], offsets[segment + 1]
        if begin == end:
            continue
        for i in range(value_offsets[segment], value_offsets[segment + 1]):
            row = first_from(moments, begin, end, values[i])
            if row < end:
                latest[row] = max(latest[row], values[i])
        for row in range(begin + 1, end):
            latest[row] = max(latest[row], latest[row - 1])
    return latest
