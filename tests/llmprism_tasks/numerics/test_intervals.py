"""What overlaps is one stretch, and gaps are where nothing goes on."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics import intervals
from llmprism_tasks.numerics.asof import BEFORE_ALL
from llmprism_tasks.numerics.intervals import (
    GAP,
    MARKED_GAP,
    Rows,
    Unions,
    all_under_way,
    lasting,
    latest_before,
    unions_and_gaps,
)
from llmprism_tasks.numerics.jit import subroutine
from llmprism_tasks.numerics.robust import Integers

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


def rows_of(segments: list[list[Row]], series: np.ndarray) -> Rows:
    """Return transfers each of which is a run of its own."""
    _, starts, ends, *_ = columns_of(segments)
    each = np.arange(starts.size, dtype=np.int32)
    opens, closes = np.zeros(len(segments), dtype=np.int64), np.full(len(segments), 99)
    return Rows(offsets_of(segments), series, each, each + np.int32(1), opens, closes, starts, ends)


def telling(segments: list[list[Row]], whole: list[bool], opens: int = 0) -> Unions:
    """Tell of rows, each a transfer of a series of its own."""
    kinds, _, _, sizes, marks = columns_of(segments)
    rows = rows_of(segments, np.arange(kinds.size, dtype=np.int32))
    rows = rows._replace(opens=rows.opens + opens)
    return unions_and_gaps(rows, kinds.astype(np.int64), marks, sizes, np.array(whole, dtype=np.bool_))


def stretches(found: Unions, segment: int = 0) -> list[Row]:
    """Return kind, start, end and size of what is no gap."""
    told = list(zip(*(column.tolist() for column in found), strict=True))
    return [row[1:] for row in told if row[0] == segment and row[1] >= 0]


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
    one = [[(0, start, end, 1, False) for start, end in rows]]
    assert [row[1:3] for row in stretches(telling(one, NONE_WHOLE))] == found


@given(SEGMENTS)
def test_stretches_cover_what_their_rows_did_kind_by_kind(segments: list[list[Row]]) -> None:
    segments = [sorted(rows, key=lambda row: row[0]) for rows in segments]
    found = telling(segments, LAST_WHOLE)
    for segment, rows in enumerate(segments):
        mine = stretches(found, segment)
        assert mine == sorted(mine, key=lambda row: (row[1], row[0], row[2]))
        for kind in range(3):
            of_kind, told = ([row for row in some if row[0] == kind] for some in (rows, mine))
            if kind == 2 and of_kind:
                assert [row[1:3] for row in told] == [(min(r[1] for r in of_kind), max(r[2] for r in of_kind))]
            assert all(before[2] < after[1] for before, after in pairwise(told))
            for _, start, end, size in told:
                assert size == sum(row[3] for row in of_kind if start <= row[1] <= row[2] <= end)
            assert sum(row[3] for row in told) == sum(row[3] for row in of_kind)


def told(opens: int, *rows: tuple[int, int, bool]) -> list[tuple[int, int, int]]:
    """Return what is told of a segment: the kind, which is the number of the row, or the sort of gap; start and end."""
    found = telling([[(kind, *row[:2], 1, row[2]) for kind, row in enumerate(rows)]], [False] * len(rows), opens)
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


def test_a_stretch_is_marked_if_any_of_it_is() -> None:
    for marks in ([True, False], [False, True]):
        for starts in ([3, 4], [4, 3]):
            rows = [(0, start, 9, 1, mark) for start, mark in zip(starts, marks, strict=True)]
            assert telling([rows], NONE_WHOLE).kinds.tolist() == [MARKED_GAP, 0]


def test_what_lies_outside_of_the_segment_is_cut_off() -> None:
    assert told(5, (3, 120, False), (7, 99, False)) == [(0, 5, 99), (1, 7, 99)]


@given(SEGMENTS)
def test_gaps_leave_nothing_open(segments: list[list[Row]]) -> None:
    segments = [sorted(rows, key=lambda row: row[0]) for rows in segments]
    found = telling(segments, LAST_WHOLE)
    for number in range(len(segments)):
        free = 0
        for row in zip(*(column.tolist() for column in found), strict=True):
            of, kind, start, end, size = row
            if of != number:
                continue
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
    rows = rows_of(segments, columns_of(segments)[0])
    expected = [
        max((end for kind, start, end, *_ in some if kind == 0 and start < end <= moment), default=BEFORE_ALL)
        for mine, some in zip(times, segments, strict=True)
        for moment in mine
    ]
    offsets = np.cumsum([0, *map(len, times)]).astype(np.int64)
    flat = np.array([moment for mine in times for moment in mine], dtype=np.int64)
    assert latest_before(offsets, flat, rows, np.array([True, False, False])).tolist() == expected


def test_a_series_lasts_of_which_any_row_takes_time() -> None:
    rows = rows_of(
        [[(0, 3, 3, 1, False), (1, 3, 3, 1, False), (1, 5, 6, 1, False), (2, 99, 120, 1, False)]], np.array([])
    )
    series = np.array([0, 1, 1, 2], dtype=np.int32)
    assert lasting(rows._replace(series=series), 3).tolist() == [False, True, False]


def test_the_longest_gap_is_between_the_last_end_of_all_before_and_the_next_start() -> None:
    starts, ends = np.array([0, 2, 30, 0, 5]), np.array([20, 9, 40, 9, 7])
    assert intervals.longest_gaps(starts, ends, np.array([0, 3, 5])).tolist() == [10, 0]


@subroutine
def _unions(starts: Integers, ends: Integers, slack: float) -> tuple[Integers, Integers]:
    begins, untils, count = np.empty(starts.size, np.int64), np.empty(starts.size, np.int64), 0
    for i in range(starts.size):
        count = intervals.extend_union(begins, untils, 0, count, starts[i], ends[i], slack)
    return begins[:count], untils[:count]


@given(st.lists(INTERVAL, max_size=12), st.integers(0, 2))
def test_unions_hold_all_moments_of_their_intervals_and_lie_apart(drawn: list[tuple[int, int]], slack: int) -> None:
    starts, lengths = np.array(sorted(drawn), np.int64).reshape(-1, 2).T
    begins, untils = _unions(starts.copy(), starts + lengths, slack)
    assert all(following - until > slack for until, following in zip(untils[:-1], begins[1:], strict=True))
    for start, length in drawn:
        assert any(begin <= start and start + length <= until for begin, until in zip(begins, untils, strict=True))
    assert set(begins.tolist()) <= set(starts.tolist())
    assert set(untils.tolist()) <= set((starts + lengths).tolist())


@given(st.lists(INTERVAL, max_size=12))
def test_a_union_begins_where_the_expression_finds_a_gap(drawn: list[tuple[int, int]]) -> None:
    starts, lengths = np.array(sorted(drawn), np.int64).reshape(-1, 2).T
    rows = pl.DataFrame({"start": starts.copy(), "end": starts + lengths})
    apart = (pl.col("start") > intervals.end_of_earlier("end")).fill_null(value=True)
    assert rows.filter(apart)["start"].to_list() == _unions(starts.copy(), starts + lengths, 0)[0].tolist()


@pytest.mark.parametrize(
    ("others", "since"),
    [
        ([[(6, 10)]], 6),  # who comes last begins last
        ([[(0, 3), (6, 10)]], 0),  # it had begun, and goes on in pieces
        ([[(10, 12)]], 0),  # after it
        ([[(-4, 0), (3, 9)]], 3),
        ([[(3, 9)], [(6, 10)]], 6),
    ],
)
def test_all_are_under_way_once_the_first_interval_of_each_has_begun(
    others: list[list[tuple[int, int]]], since: int
) -> None:
    series = [[(0, 10)], *others]
    starts, ends = (np.array([row[i] for rows in series for row in rows]) for i in range(2))
    offsets = np.cumsum([0, *map(len, series)])
    assert all_under_way(starts, ends, offsets, np.array([0, len(series)]))[0] == since
    apart = np.arange(len(series) + 1)
    assert all_under_way(starts, ends, offsets, apart).tolist() == starts.tolist()
