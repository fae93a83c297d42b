"""What is usual among those that do alike, and how much of a length is work at one's own pace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.timeline.kernels.pass_time import (
    NO_LENGTH,
    Sorts,
    Stints,
    at_pace,
    idle_times,
    lower_medians,
    shortest,
)

LENGTHS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)))


@given(LENGTHS)
def test_the_lower_median_is_the_middle_one_or_the_smaller_of_two(drawn: list[tuple[int, int]]) -> None:
    groups, values = (np.array([one[i] for one in drawn], dtype=np.int64) for i in (0, 1))
    found = lower_medians(values, groups, 5)
    for group in range(5):
        mine = sorted(value for one, value in drawn if one == group)
        assert np.isnan(found[group]) if not mine else found[group] == mine[(len(mine) - 1) // 2]


@given(LENGTHS)
def test_the_shortest_of_each_kind_is_no_longer_than_any(drawn: list[tuple[int, int]]) -> None:
    works, lengths = (np.array([one[i] for one in drawn], dtype=np.int64) for i in (0, 1))
    offsets = np.array([0, len(drawn) // 2, len(drawn)])
    stints = Stints(offsets, lengths - lengths, lengths, works.astype(np.int32))
    found = shortest(stints, np.arange(5, dtype=np.int32) - 1, 4)
    for segment, half in enumerate((drawn[: offsets[1]], drawn[offsets[1] :])):
        for kind in range(4):
            assert found[segment, kind] == min((length for work, length in half if work - 1 == kind), default=NO_LENGTH)


KNOWN, UNKNOWN, WHOLE, UNKNOWN_WHOLE = np.arange(4, dtype=np.int32)
SORTS = Sorts(
    works=np.array([0, -1, 0, -1], np.int32),
    whole=np.array([False, False, True, True]),
    unknown=np.array([False, False, True, True]),
    rests=np.array([True, True, True, False]),
)


def paced(*lengths: int, usual: float = 100, place: int = 0, sort: np.int32 = KNOWN) -> list[int]:
    """Return what is work of stints of one sort, by one that has them all."""
    starts = 3 * np.arange(len(lengths))
    stints = Stints(np.array([0, starts.size]), starts, starts + lengths, np.full(starts.size, sort))
    work, rest = at_pace(stints, SORTS, np.array([[usual]], np.float64), np.array([place]), as_usual=1.1)
    assert rest.tolist() == ((np.array(lengths) - work) * SORTS.rests[sort]).tolist()
    return work.tolist()


def test_up_to_what_is_usual_all_is_work() -> None:
    assert paced(90, 100, 110, 111) == [90, 100, 110, 100]


def test_who_is_slow_in_all_of_them_works_slowly() -> None:
    assert paced(200, 220, 221, 500) == [200, 220, 200, 200]


@pytest.mark.parametrize(("usual", "place", "sort"), [(np.nan, 0, KNOWN), (100, -1, KNOWN), (100, 0, UNKNOWN)])
def test_where_nothing_is_known_none_is_work(usual: float, place: int, sort: np.int32) -> None:
    assert paced(90, 500, usual=usual, place=place, sort=sort) == [0, 0]


@pytest.mark.parametrize("sort", [WHOLE, UNKNOWN_WHOLE])
def test_what_is_work_in_any_case_is_so_at_any_length(sort: np.int32) -> None:
    assert paced(90, 500, sort=sort) == [90, 500]


def test_where_no_time_at_all_is_usual_none_is_too_long() -> None:
    assert paced(90, usual=0) == [90]


IDLE = st.tuples(st.integers(0, 1), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9))))
"""What a segment is alike, and the kind of each of its stints with how long it was idle."""


@given(st.lists(IDLE, max_size=5))
def test_what_is_usual_is_the_lower_median_of_the_same_turn_where_it_is_alike(
    segments: list[tuple[int, list[tuple[int, int]]]],
) -> None:
    rows = [
        (alike, kind, [before for before, _ in drawn[:i]].count(kind), idle)
        for alike, drawn in segments
        for i, (kind, idle) in enumerate(drawn)
    ]
    offsets = np.cumsum([0, *(len(drawn) for _, drawn in segments)]).astype(np.int64)
    alike = np.array([alike for alike, _ in segments], dtype=np.int64)
    _, kinds, turns, idle = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(4))
    found = idle_times(offsets, idle, kinds.astype(np.int32), alike, 3)
    assert found.turns.tolist() == turns.tolist()
    for i, row in enumerate(rows):
        same = sorted(other[3] for other in rows if other[:3] == row[:3])
        assert found.usual[i] == min(row[3], same[(len(same) - 1) // 2])
    assert (found.usual + found.beyond).tolist() == idle.tolist()
