"""Stretches: what overlaps in time made one, put in order, and what lies between.

Many segments laid end to end: segment i of an array holds the rows `offsets[i]` to `offsets[i + 1]`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.methods.compiled import compiled
from llmprism_tasks.methods.series import Integers
from llmprism_tasks.methods.sorting import first_from, sort, sort_by

GAP, MARKED_GAP = -2, -1
"""What stands for gaps in the place of a kind."""

NEVER = np.iinfo(np.int64).min
"""Before all times."""

Booleans = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]


class Rows(NamedTuple):
    """Intervals of many segments, that belong to series of transfers.

    Attributes
    ----------
    offsets : shape (segments + 1,)
    transfers, series : shape (n,), which transfer of which series each is; those of a series lie together in a segment
    starts, ends : ns, shape (n,); quickest where those of a series are in order of their starts
    """

    offsets: Integers
    transfers: Numbers
    series: Numbers
    starts: Integers
    ends: Integers


class Stretches(NamedTuple):
    """What became of intervals of many segments.

    Attributes
    ----------
    offsets : shape (segments + 1,)
    kinds : shape (n,), of what kind each is
    starts, ends : ns, shape (n,)
    sizes : shape (n,), of all that each was made of
    marked : shape (n,), whether any of that was
    """

    offsets: Integers
    kinds: Numbers
    starts: Integers
    ends: Integers
    sizes: Integers
    marked: Booleans


class Told(NamedTuple):
    """Stretches and the gaps between them, segment by segment; arrays of shape (m,).

    Attributes
    ----------
    segments : of which segment each is
    kinds : of what kind; for a gap `MARKED_GAP` or `GAP`
    starts, ends : ns
    sizes : 0 for a gap
    """

    segments: Numbers
    kinds: Numbers
    starts: Integers
    ends: Integers
    sizes: Integers


def merged(
    rows: Rows, kinds: Integers, marked: Booleans, sizes: Integers, whole: Booleans, *, shortest: int = 0
) -> Stretches:
    """Make one of intervals of one kind that overlap or touch.

    Parameters
    ----------
    rows : those of one kind lie together within a segment
    kinds, marked : shape (series,), of what kind each is, -1 for those to be left out, and whether it is marked
    sizes : shape (transfers,)
    whole : shape (kinds,), of which kinds all of a segment's are one, gaps or no gaps
    shortest : ns, shorter ones are left out

    Returns
    -------
    in the order of the rows: kind by kind, each in order of time
    """
    offsets, of, starts, ends, total, marks = _merged(*rows, kinds, marked, sizes, whole, shortest)
    n = offsets[-1]
    return Stretches(offsets, of[:n], starts[:n], ends[:n], total[:n], marks[:n])


def with_gaps(rows: Stretches, opens: Integers) -> Told:
    """Put stretches in order of start, kind and end, and gaps among them: from a segment's opening to its first one,
    and wherever nothing goes on.

    A gap is marked if what begins at its end is; where several begin at once, one of them is enough.

    Parameters
    ----------
    opens : shape (segments,), ns
    """
    segments, kinds, starts, ends, sizes, n = _with_gaps(*rows, opens)
    return Told(segments[:n], kinds[:n], starts[:n], ends[:n], sizes[:n])


def latest_before(offsets: Integers, moments: Integers, rows: Rows, counted: Booleans) -> Integers:
    """Return for each moment the latest end of a row of the same segment that is no later, or `NEVER`.

    Parameters
    ----------
    offsets, moments : ns, in order within each segment
    rows : of as many segments; those that take no time are not looked at
    counted : shape (series,), those to look at
    """
    return _latest_before(offsets, moments, *rows, counted)


def lasting(rows: Rows, series: int) -> Booleans:
    """Mark the series, numbered up to so many, that have rows that take time."""
    return _lasting(rows.series, rows.starts, rows.ends, series)


@compiled
def _merged(
    offsets: Integers,
    transfers: Numbers,
    series: Numbers,
    starts: Integers,
    ends: Integers,
    kinds: Integers,
    marked: Booleans,
    sizes: Integers,
    whole: Booleans,
    shortest: int,
) -> tuple[Integers, Numbers, Integers, Integers, Integers, Booleans]:
    n = len(starts)
    bounds, kind, mark = np.zeros(len(offsets), np.int64), np.empty(n, np.int32), np.empty(n, np.bool_)
    start, end, size = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    keys, order = np.empty(n, np.int64), np.empty(n, np.int64)
    n = 0
    for segment in range(len(offsets) - 1):
        row = offsets[segment]
        while row < offsets[segment + 1]:
            of, count, ordered = kinds[series[row]], 0, True
            while row < offsets[segment + 1] and kinds[series[row]] == of:
                if of >= 0 and ends[row] - starts[row] >= shortest:
                    keys[count], order[count] = starts[row], row
                    ordered &= count == 0 or keys[count] >= keys[count - 1]
                    count += 1
                row += 1
            joined = of >= 0 and whole[of]
            if not (ordered or joined):
                sort(keys, order, count)
            for place in range(count):
                i = order[place]
                if place == 0 or not (joined or starts[i] <= end[n - 1]):
                    kind[n], start[n], end[n] = of, starts[i], ends[i]
                    size[n], mark[n] = sizes[transfers[i]], marked[series[i]]
                    n += 1
                    continue
                start[n - 1], end[n - 1] = min(start[n - 1], starts[i]), max(end[n - 1], ends[i])
                size[n - 1] += sizes[transfers[i]]
                mark[n - 1] |= marked[series[i]]
        bounds[segment + 1] = n
    return bounds, kind, start, end, size, mark


@compiled
def _with_gaps(
    offsets: Integers,
    kinds: Numbers,
    starts: Integers,
    ends: Integers,
    sizes: Integers,
    marked: Booleans,
    opens: Integers,
) -> tuple[Numbers, Numbers, Integers, Integers, Integers, int]:
    most = 2 * len(starts)
    segments, kind = np.empty(most, np.int32), np.empty(most, np.int32)
    begin, end, size = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    keys, order = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)
    n = 0
    for segment in range(len(offsets) - 1):
        first, free = offsets[segment], opens[segment]
        count = offsets[segment + 1] - first
        for place in range(count):
            keys[place], order[place] = starts[first + place], first + place
        sort_by(keys, order, count, kinds, ends)
        for place in range(count):
            row, other, mark = order[place], place, False
            if free < starts[row]:
                while other < count and keys[other] == keys[place]:
                    mark |= marked[order[other]]
                    other += 1
                segments[n], kind[n] = segment, MARKED_GAP if mark else GAP
                begin[n], end[n], size[n] = free, starts[row], 0
                n += 1
            segments[n], kind[n] = segment, kinds[row]
            begin[n], end[n], size[n] = starts[row], ends[row], sizes[row]
            free = max(free, ends[row])
            n += 1
    return segments, kind, begin, end, size, n


@compiled
def _latest_before(
    offsets: Integers,
    moments: Integers,
    row_offsets: Integers,
    transfers: Numbers,
    series: Numbers,
    starts: Integers,
    ends: Integers,
    counted: Booleans,
) -> Integers:
    latest = np.full(len(moments), NEVER, np.int64)
    for segment in range(len(offsets) - 1):
        begin, end = offsets[segment], offsets[segment + 1]
        if begin == end:
            continue
        for i in range(row_offsets[segment], row_offsets[segment + 1]):
            if not counted[series[i]] or ends[i] <= starts[i]:
                continue
            row = first_from(moments, begin, end, ends[i])
            if row < end:
                latest[row] = max(latest[row], ends[i])
        for row in range(begin + 1, end):
            latest[row] = max(latest[row], latest[row - 1])
    return latest


@compiled
def _lasting(series: Numbers, starts: Integers, ends: Integers, number: int) -> Booleans:
    found = np.zeros(number, np.bool_)
    for row in range(len(series)):
        if ends[row] > starts[row]:
            found[series[row]] = True
    return found
