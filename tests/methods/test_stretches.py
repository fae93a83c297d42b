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
    Stretches,
    beginnings,
    in_order,
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
NONE_WHOLE, LAST_WHOLE = np.array([False] * 3), np.array([False, False, True])


def offsets_of(segments: list[list[Row]]) -> np.ndarray:
    return np.cumsum([0, *map(len, segments)]).astype(np.int64)


def stretches(segments: list[list[Row]]) -> Stretches:
    columns = (np.array([row[i] for rows in segments for row in rows], dtype=np.int64) for i in range(4))
    marks = np.array([row[4] for rows in segments for row in rows], dtype=bool)
    return Stretches(offsets_of(segments), *columns, marks)


def rows_of(found: Stretches) -> list[list[Row]]:
    rows = list(zip(*(column.tolist() for column in found[1:]), strict=True))
    return [rows[begin:end] for begin, end in pairwise(found.offsets.tolist())]


def one(*rows: tuple[int, int]) -> Stretches:
    return stretches([[(0, start, end, 1, False) for start, end in rows]])


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
    assert [row[1:3] for row in rows_of(merged(one(*rows), NONE_WHOLE))[0]] == found


@given(SEGMENTS)
def test_stretches_cover_what_their_rows_did_kind_by_kind(segments: list[list[Row]]) -> None:
    segments = [sorted(rows, key=lambda row: row[0]) for rows in segments]
    found = rows_of(merged(stretches(segments), LAST_WHOLE))
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
def test_places_are_in_order_within_each_segment(segments: list[list[Row]]) -> None:
    rows = stretches(segments)
    ordered = rows_of(rows.at(in_order(rows.offsets, rows.starts, rows.kinds, rows.sizes)))
    by = [sorted((row[1], row[0], row[3]) for row in some) for some in segments]
    assert [[(row[1], row[0], row[3]) for row in some] for some in ordered] == by


@given(SEGMENTS)
def test_a_stretch_begins_where_merging_begins_one(segments: list[list[Row]]) -> None:
    segments = [sorted(((0, *row[1:]) for row in rows), key=lambda row: row[1]) for rows in segments]
    rows = stretches(segments)
    begins = beginnings(rows.offsets, rows.starts, rows.ends)
    assert rows.starts[begins].tolist() == merged(rows, NONE_WHOLE).starts.tolist()


def gaps(opens: int, *rows: tuple[int, int, bool]) -> list[tuple[int, int, int]]:
    """Return what is told of a segment: the row or the sort of gap, start and end."""
    table = stretches([[(0, start, end, 1, mark) for start, end, mark in rows]])
    place, _, start, end = with_gaps(table, np.array([opens]))
    return list(zip(place.tolist(), start.tolist(), end.tolist(), strict=True))


def test_gaps_lie_before_the_first_row_and_where_nothing_goes_on() -> None:
    rows = [(3, 9, True), (4, 5, False), (12, 13, False)]
    assert gaps(0, *rows) == [(MARKED_GAP, 0, 3), (0, 3, 9), (1, 4, 5), (GAP, 9, 12), (2, 12, 13)]


def test_without_a_gap_there_is_none() -> None:
    assert gaps(3, (3, 5, True), (5, 6, False)) == [(0, 3, 5), (1, 5, 6)]
    assert gaps(3) == []


def test_of_rows_that_begin_at_once_one_marked_one_is_enough() -> None:
    assert gaps(0, (3, 5, False), (3, 4, True))[0] == (MARKED_GAP, 0, 3)
    assert gaps(0, (3, 5, False), (4, 5, True))[0] == (GAP, 0, 3)


@given(SEGMENTS)
def test_rows_and_gaps_leave_nothing_open(segments: list[list[Row]]) -> None:
    rows = stretches([sorted(some, key=lambda row: row[1]) for some in segments])
    place, segment, start, end = with_gaps(rows, np.zeros(len(segments), dtype=np.int64))
    assert place[place >= 0].tolist() == list(range(rows.starts.size))
    for number in range(len(segments)):
        free = 0
        for i in np.flatnonzero(segment == number):
            if place[i] < 0:
                assert free == start[i] < end[i]
            assert start[i] <= free
            free = max(free, end[i])


@given(st.lists(st.tuples(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20))), max_size=4))
def test_the_latest_before_a_moment_is_the_largest_that_is_no_later(
    segments: list[tuple[list[int], list[int]]],
) -> None:
    moments = [sorted(some) for some, _ in segments]
    offsets, value_offsets = (
        np.cumsum([0, *map(len, some)]).astype(np.int64) for some in (moments, [values for _, values in segments])
    )
    flat = [
        np.array([x for some in lists for x in some], dtype=np.int64) for lists in (moments, [v for _, v in segments])
    ]
    expected = [
        max((value for value in values if value <= moment), default=NEVER)
        for some, (_, values) in zip(moments, segments, strict=True)
        for moment in some
    ]
    assert latest_before(offsets, flat[0], value_offsets, flat[1]).tolist() == expected
