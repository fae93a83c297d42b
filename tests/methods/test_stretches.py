"""What overlaps is one stretch, and gaps are where nothing goes on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.methods.stretches import (
    GAP,
    MARKED_GAP,
    NEVER,
    Rows,
    Stretches,
    lasting,
    latest_before,
    merged,
    with_gaps,
)

Row = tuple[int, int, int, int, bool]
"""Kind, start, end, size, mark."""

INTERVAL = st.tuples(st.integers(0, 30), st.integers(0, 6))
ROW = st.tuples(st.integers(0, 2), INTERVAL, st.integers(1, 9), st.booleans()).map(
    lambda drawn: (drawn[0], drawn[1][0], sum(drawn[1]), drawn[2], drawn[3])
)
SEGMENTS = st.lists(st.lists(ROW, max_size=8), max_size=4)
NONE_WHOLE, LAST_WHOLE = [False] * 3, [False, False, True]


def offsets_of(segments: list[list[Row]]) -> np.ndarray:
    return np.cumsum([0, *map(len, segments)]).astype(np.int64)


def columns_of(segments: list[list[Row]]) -> list[np.ndarray]:
    types = (np.int32, np.int64, np.int64, np.int64, np.bool_)
    return [np.array([row[i] for rows in segments for row in rows], dtype=kind) for i, kind in enumerate(types)]


def stretches(segments: list[list[Row]]) -> Stretches:
    return Stretches(offsets_of(segments), *columns_of(segments))


def merging(segments: list[list[Row]], whole: list[bool], *, shortest: int = 0, left_out: int = -1) -> Stretches:
    """Merge rows, each a transfer and a series of its own."""
    kinds, starts, ends, sizes, marks = columns_of(segments)
    each = np.arange(kinds.size, dtype=np.int32)
    kinds = np.where(kinds == left_out, -1, kinds).astype(np.int64)
    rows = Rows(offsets_of(segments), each, each, starts, ends)
    return merged(rows, kinds, marks, sizes, np.array(whole), shortest=shortest)


def rows_of(found: Stretches) -> list[list[Row]]:
    rows = list(zip(*(column.tolist() for column in found[1:]), strict=True))
    return [rows[begin:end] for begin, end in pairwise(found.offsets.tolist())]


def one(*rows: tuple[int, int]) -> list[list[Row]]:
    return [[(0, start, end, 1, False) for start, end in rows]]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([(0, 2), (1, 3)], [(0, 3)]),
        ([(0, 2), (2, 3)], [(0, 3)]),
        ([(0, 2), (3, 4)], [(0, 2), (3, 4)]),
        ([(0, 9), (1, 2), (5, 6)], [(0, 9)]),
        ([(5, 6), (0, 2)], [(0, 2), (5, 6)]),
        ([(1, 1)], [(1, 1)]),
        ([], []),
    ],
)
def test_what_overlaps_or_touches_is_one(rows: list[tuple[int, int]], found: list[tuple[int, int]]) -> None:
    assert [row[1:3] for row in rows_of(merging(one(*rows), NONE_WHOLE))[0]] == found


@given(SEGMENTS)
def test_stretches_cover_what_their_rows_did_kind_by_kind(segments: list[list[Row]]) -> None:
    segments = [sorted(rows, key=lambda row: row[0]) for rows in segments]
    found = rows_of(merging(segments, LAST_WHOLE))
    for rows, mine in zip(segments, found, strict=True):
        assert [row[0] for row in mine] == sorted(row[0] for row in mine)
        for kind in range(3):
            of_kind, told = ([row for row in some if row[0] == kind] for some in (rows, mine))
            if kind == 2 and of_kind:
                assert [row[1:3] for row in told] == [(min(r[1] for r in of_kind), max(r[2] for r in of_kind))]
            assert all(before[2] < after[1] for before, after in pairwise(told))
            for _, start, end, size, mark in told:
                inside = [row for row in of_kind if start <= row[1] <= row[2] <= end]
                assert size == sum(row[3] for row in inside)
                assert mark == any(row[4] for row in inside)
            assert sum(row[3] for row in told) == sum(row[3] for row in of_kind)


@given(SEGMENTS)
def test_what_is_left_out_or_too_short_is_as_if_it_were_not_there(segments: list[list[Row]]) -> None:
    segments = [sorted(rows, key=lambda row: row[0]) for rows in segments]
    kept = [[row for row in rows if row[0] != 1 and row[2] > row[1]] for rows in segments]
    assert rows_of(merging(segments, LAST_WHOLE, shortest=1, left_out=1)) == rows_of(merging(kept, LAST_WHOLE))


def told(opens: int, *rows: tuple[int, int, bool]) -> list[tuple[int, int, int]]:
    """Return what is told of a segment: the kind, which is the number of the row, or the sort of gap; start and end."""
    table = stretches([[(number, start, end, 1, mark) for number, (start, end, mark) in enumerate(rows)]])
    found = with_gaps(table, np.array([opens]))
    return list(zip(found.kinds.tolist(), found.starts.tolist(), found.ends.tolist(), strict=True))


def test_gaps_lie_before_the_first_row_and_where_nothing_goes_on() -> None:
    rows = [(3, 9, True), (4, 5, False), (12, 13, False)]
    assert told(0, *rows) == [(MARKED_GAP, 0, 3), (0, 3, 9), (1, 4, 5), (GAP, 9, 12), (2, 12, 13)]


def test_without_a_gap_there_is_none() -> None:
    assert told(3, (3, 5, True), (5, 6, False)) == [(0, 3, 5), (1, 5, 6)]
    assert told(3) == []


def test_of_rows_that_begin_at_once_one_marked_one_is_enough() -> None:
    assert told(0, (3, 5, False), (3, 4, True))[0] == (MARKED_GAP, 0, 3)
    assert told(0, (3, 5, False), (4, 5, True))[0] == (GAP, 0, 3)


@given(SEGMENTS)
def test_rows_are_told_in_order_of_start_kind_and_end_and_leave_nothing_open(segments: list[list[Row]]) -> None:
    found = with_gaps(stretches(segments), np.zeros(len(segments), dtype=np.int64))
    for number, rows in enumerate(segments):
        mine = [row[1:] for row in zip(*(column.tolist() for column in found), strict=True) if row[0] == number]
        assert [row for row in mine if row[0] >= 0] == sorted(
            (row[:4] for row in rows), key=lambda row: (row[1], row[0], row[2])
        )
        free = 0
        for kind, start, end, size in mine:
            if kind < 0:
                assert free == start < end
                assert size == 0
            assert start <= free
            free = max(free, end)


@given(SEGMENTS, SEGMENTS)
def test_the_latest_before_a_moment_is_the_largest_that_is_no_later(
    segments: list[list[Row]], moments: list[list[Row]]
) -> None:
    """Of kind 0, and of what takes time."""
    number = min(len(segments), len(moments))
    segments, times = segments[:number], [sorted(row[2] for row in rows) for rows in moments[:number]]
    kinds, starts, ends, *_ = columns_of(segments)
    rows = Rows(offsets_of(segments), kinds, kinds, starts, ends)
    expected = [
        max((end for kind, start, end, *_ in some if kind == 0 and start < end <= moment), default=NEVER)
        for mine, some in zip(times, segments, strict=True)
        for moment in mine
    ]
    offsets = np.cumsum([0, *map(len, times)]).astype(np.int64)
    flat = np.array([moment for mine in times for moment in mine], dtype=np.int64)
    assert latest_before(offsets, flat, rows, np.array([True, False, False])).tolist() == expected


def test_a_series_lasts_of_which_any_row_takes_time() -> None:
    series = np.array([0, 1, 1], dtype=np.int32)
    rows = Rows(np.array([0, 3]), series, series, np.array([3, 3, 5]), np.array([3, 3, 6]))
    assert lasting(rows, 3).tolist() == [False, True, False]
