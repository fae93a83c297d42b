"""Unions of intervals that overlap or touch, and the gaps between them.

All unions are made alike: intervals come in order of their starts, and one that starts after all earlier ones have
ended begins a new union, after a gap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from llmprism_tasks.numerics.asof import BEFORE_ALL, lower_bound
from llmprism_tasks.numerics.jit import BOOLEANS, INT32S, INT64, INT64S, kernel, named_tuple, subroutine
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.numerics.sorting import sort, sort_by

GAP, MARKED_GAP = -2, -1
"""What stands for gaps in the place of a kind."""

Booleans = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]


class Rows(NamedTuple):
    """Transfers of many segments, in runs of those that follow each other in a series.

    Attributes
    ----------
    offsets : shape (segments + 1,): segment i has the runs `offsets[i]` to `offsets[i + 1]`
    series, begins, untils : shape (runs,): run i holds the transfers `begins[i]` to `untils[i]` of a series, one at
        least, in order of their starts; the runs of a series lie together in a segment
    opens, closes : ns, shape (segments,): when segments begin and end; only what lies between is looked at
    starts, ends : ns, shape (transfers,)
    """

    offsets: Integers
    series: Numbers
    begins: Numbers
    untils: Numbers
    opens: Integers
    closes: Integers
    starts: Integers
    ends: Integers


ROWS = named_tuple(Rows, INT64S, INT32S, INT32S, INT32S, INT64S, INT64S, INT64S, INT64S)


class Unions(NamedTuple):
    """Unions of intervals and the gaps between them, segment by segment; arrays of shape (m,).

    Attributes
    ----------
    segments : of which segment each is
    kinds : of what kind; for a gap `MARKED_GAP` or `GAP`
    starts, ends : ns
    sizes : of all that each was made of; 0 for a gap
    """

    segments: Numbers
    kinds: Numbers
    starts: Integers
    ends: Integers
    sizes: Integers


def end_of_earlier(ends: str) -> pl.Expr:
    """Return when all earlier intervals of a group have ended; NULL for the first one.

    What lies between that time and a later start is a gap; what starts no later belongs to the same union.

    Parameters
    ----------
    ends : name of the column of ends; the rows are in order of the starts
    """
    return pl.col(ends).cum_max().shift()


def unions_and_gaps(rows: Rows, kinds: Integers, marked: Booleans, sizes: Integers, whole: Booleans) -> Unions:
    """Unite the transfers of one kind that overlap or touch, and put unions and gaps in order of start, kind and end.

    A gap is where no transfer of any kind is under way, from the segment's opening on. It is marked if a union that
    begins at its end is.

    Parameters
    ----------
    rows : those of one kind lie together within a segment
    kinds, marked : shape (series,), of what kind each is, from 0, and whether it is marked
    sizes : shape (transfers,)
    whole : shape (kinds,), of which kinds all of a segment's are one, gaps or no gaps
    """
    segments, of, starts, ends, total, n = _unions_and_gaps(rows, kinds, marked, sizes, whole)
    return Unions(segments[:n], of[:n], starts[:n], ends[:n], total[:n])


def lasting(rows: Rows, series: int) -> Booleans:
    """Mark the series, numbered up to so many, that have transfers that take time."""
    return _lasting(rows, series)


@subroutine
def extend_union(starts: Integers, ends: Integers, first: int, count: int, start: int, end: int, slack: float) -> int:
    """Add an interval to the unions that are written so far; return how many there are then.

    Parameters
    ----------
    starts, ends : the unions, in order, from row `first` to before row `count`; is written to
    start, end : no interval that was added before starts later
    slack : an interval that starts no later than so long after the last union's end belongs to it
    """
    if count == first or start > ends[count - 1] + slack:
        starts[count], ends[count] = start, end
        return count + 1
    ends[count - 1] = max(ends[count - 1], end)
    return count


@subroutine
def most_rows(rows: Rows, each: Booleans) -> tuple[int, int]:
    """Return how many rows all segments have, and how many the one with most has: one for each transfer, or run.

    Parameters
    ----------
    each : shape (series,), of which each transfer is one
    """
    total, most = 0, 0
    for segment in range(len(rows.offsets) - 1):
        before = total
        for run in range(rows.offsets[segment], rows.offsets[segment + 1]):
            total += rows.untils[run] - rows.begins[run] if each[rows.series[run]] else 1
        most = max(most, total - before)
    return total, most


class _Made(NamedTuple):
    """The unions of one segment; is written to."""

    kinds: Numbers
    starts: Integers
    ends: Integers
    sizes: Integers
    marks: Booleans


@subroutine
def _mixed(rows: Rows, first: int, last: int, marked: Booleans, keys: Integers, order: Integers) -> int:
    """Put the transfers of some runs in order of their starts, twice the number of each and its mark; return how many
    there are.

    Parameters
    ----------
    keys, order : what is written
    """
    count = 0
    for run in range(first, last):
        for i in range(rows.begins[run], rows.untils[run]):
            keys[count], order[count] = rows.starts[i], 2 * i + marked[rows.series[run]]
            count += 1
    sort(keys, order, count)
    return count


@subroutine
def _merged(
    rows: Rows,
    segment: int,
    kinds: Integers,
    marked: Booleans,
    sizes: Integers,
    whole: Booleans,
    keys: Integers,
    order: Integers,
    made: _Made,
) -> int:
    """Write the unions of a segment, kind by kind, each in order of time; return how many there are.

    Parameters
    ----------
    keys, order : room for as many transfers
    made : what is written
    """
    series, begins, untils, starts, ends = rows.series, rows.begins, rows.untils, rows.starts, rows.ends
    opens, closes, last = rows.opens[segment], rows.closes[segment], rows.offsets[segment + 1]
    n, run = 0, rows.offsets[segment]
    while run < last:
        of, since, begun, ordered = kinds[series[run]], run, n, True
        all_one = whole[of]
        while run < last and kinds[series[run]] == of:
            ordered &= all_one or run == since or starts[begins[run]] >= starts[untils[run - 1] - 1]
            run += 1
        mixed = 0 if ordered else _mixed(rows, since, run, marked, keys, order)
        for place in range(mixed):
            i = order[place] >> 1
            begin, over = max(starts[i], opens), min(ends[i], closes)
            unions = extend_union(made.starts, made.ends, begun, n, begin, over, 0)
            if unions > n:
                made.kinds[n], made.sizes[n], made.marks[n] = of, 0, False
            n = unions
            made.sizes[n - 1] += sizes[i]
            made.marks[n - 1] |= order[place] & 1
        for one in range(since, since if mixed else run):
            mark = marked[series[one]]
            for i in range(begins[one], untils[one]):
                begin, over, unions = max(starts[i], opens), min(ends[i], closes), n
                if all_one and n > begun:
                    made.starts[begun], made.ends[begun] = min(made.starts[begun], begin), max(made.ends[begun], over)
                else:
                    unions = extend_union(made.starts, made.ends, begun, n, begin, over, 0)
                if unions > n:
                    made.kinds[n], made.sizes[n], made.marks[n] = of, 0, False
                n = unions
                made.sizes[n - 1] += sizes[i]
                made.marks[n - 1] |= mark
    return n


@kernel(ROWS, INT64S, BOOLEANS, INT64S, BOOLEANS)
def _unions_and_gaps(
    rows: Rows, kinds: Integers, marked: Booleans, sizes: Integers, whole: Booleans
) -> tuple[Numbers, Numbers, Integers, Integers, Integers, int]:
    total, most = most_rows(rows, ~whole[kinds])
    segments, kind = np.empty(2 * total, np.int32), np.empty(2 * total, np.int32)
    begin, end, size = np.empty(2 * total, np.int64), np.empty(2 * total, np.int64), np.empty(2 * total, np.int64)
    keys, order, at = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)  # of one segment
    until, sum_, is_ = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int32)
    mark, n = np.empty(most, np.bool_), 0
    made = _Made(is_, at, until, sum_, mark)
    for segment in range(len(rows.offsets) - 1):
        count, free = _merged(rows, segment, kinds, marked, sizes, whole, keys, order, made), rows.opens[segment]
        for row in range(count):
            keys[row], order[row] = at[row], row
        sort_by(keys, order, count, is_, until)
        for place in range(count):
            row, other, marks = order[place], place, False
            if free < at[row]:
                while other < count and keys[other] == keys[place]:
                    marks |= mark[order[other]]
                    other += 1
                segments[n], kind[n] = segment, MARKED_GAP if marks else GAP
                begin[n], end[n], size[n] = free, at[row], 0
                n += 1
            segments[n], kind[n], begin[n], end[n], size[n] = segment, is_[row], at[row], until[row], sum_[row]
            free = max(free, until[row])
            n += 1
    return segments, kind, begin, end, size, n


@kernel(INT64S, INT64S, ROWS, BOOLEANS)
def latest_before(offsets: Integers, moments: Integers, rows: Rows, counted: Booleans) -> Integers:
    """Return for each moment the latest end of a transfer of the same segment that is no later, or `BEFORE_ALL`.

    Parameters
    ----------
    offsets, moments : ns, in order within each segment
    rows : of as many segments; those that take no time are not looked at
    counted : shape (series,), those to look at
    """
    latest = np.full(len(moments), BEFORE_ALL, np.int64)
    for segment in range(len(offsets) - 1):
        begin, until = offsets[segment], offsets[segment + 1]
        if begin == until:
            continue
        for run in range(rows.offsets[segment], rows.offsets[segment + 1]):
            if not counted[rows.series[run]]:
                continue
            for i in range(rows.begins[run], rows.untils[run]):
                over = min(rows.ends[i], rows.closes[segment])
                if over <= max(rows.starts[i], rows.opens[segment]):
                    continue
                row = lower_bound(moments, begin, until, over)
                if row < until:
                    latest[row] = max(latest[row], over)
        for row in range(begin + 1, until):
            latest[row] = max(latest[row], latest[row - 1])
    return latest


@kernel(ROWS, INT64)
def _lasting(rows: Rows, number: int) -> Booleans:
    found = np.zeros(number, np.bool_)
    for segment in range(len(rows.offsets) - 1):
        opens, closes = rows.opens[segment], rows.closes[segment]
        for run in range(rows.offsets[segment], rows.offsets[segment + 1]):
            series, i = rows.series[run], rows.begins[run]
            while i < rows.untils[run] and not found[series]:
                found[series] = min(rows.ends[i], closes) > max(rows.starts[i], opens)
                i += 1
    return found


@kernel(INT64S, INT64S, INT64S)
def longest_gaps(starts: Integers, ends: Integers, offsets: Integers) -> Floats:
    """Return the longest time between two intervals of each series in which there is none; 0 without such a time.

    Parameters
    ----------
    starts, ends : shape (intervals,), any unit, each series in order of the starts
    offsets : shape (series + 1,): series i holds the intervals `offsets[i]` to `offsets[i + 1]`
    """
    longest = np.zeros(offsets.size - 1)
    for s in range(longest.size):
        if offsets[s] == offsets[s + 1]:
            continue
        latest = ends[offsets[s]]
        for i in range(offsets[s] + 1, offsets[s + 1]):
            longest[s] = max(longest[s], starts[i] - latest)
            latest = max(latest, ends[i])
    return longest


@kernel(INT64S, INT64S, INT64S, INT64S)
def all_under_way(starts: Integers, ends: Integers, offsets: Integers, bounds: Integers) -> Integers:
    """Return since when, within each interval, all series of its group that have one at that time have begun theirs.

    Where a series has several intervals at that time, its first one counts. The time is the interval's own start where
    nobody begins later.

    Parameters
    ----------
    starts, ends : shape (intervals,), ns, each series in order of the starts
    offsets : shape (series + 1,): series i holds the intervals `offsets[i]` to `offsets[i + 1]`
    bounds : shape (groups + 1,): group i holds the series `bounds[i]` to `bounds[i + 1]`
    """
    since = starts.copy()
    for group in range(bounds.size - 1):
        for one in range(bounds[group], bounds[group + 1]):
            for other in range(bounds[group], bounds[group + 1]):
                place, until = offsets[other], offsets[other + 1]
                for i in range(offsets[one], offsets[one + 1]):
                    while place < until and ends[place] <= starts[i]:
                        place += 1
                    if place < until and starts[place] < ends[i]:
                        since[i] = max(since[i], starts[place])
    return since
