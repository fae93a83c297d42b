"""What is usual among those that do alike, and how much of a length is work at one's own pace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.methods.pace import NONE, at_pace, lower_medians, numbered_in_turn, shortest

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
    found = shortest(offsets, lengths, works - 1, 4)
    for segment, half in enumerate((drawn[: offsets[1]], drawn[offsets[1] :])):
        for kind in range(4):
            assert found[segment, kind] == min((length for work, length in half if work - 1 == kind), default=NONE)


def paced(*lengths: int, usual: float = 100, place: int = 0) -> list[int]:
    """Return what is work of gaps of one kind, and of one that is unknown, by one that has them all."""
    works = np.array([0] * len(lengths) + [-1])
    offsets, all_lengths = np.array([0, works.size]), np.array([*lengths, 7])
    *known, unknown = at_pace(
        offsets, all_lengths, works, np.array([[usual]]), np.array([place]), as_usual=1.1
    ).tolist()
    assert unknown == NONE
    return known


def test_up_to_what_is_usual_all_is_work() -> None:
    assert paced(90, 100, 110, 111) == [90, 100, 110, 100]


def test_who_is_slow_in_all_of_them_works_slowly() -> None:
    assert paced(200, 220, 221, 500) == [200, 220, 200, 200]


@pytest.mark.parametrize(("usual", "place"), [(np.nan, 0), (100, -1)])
def test_where_nothing_is_known_nothing_is_said(usual: float, place: int) -> None:
    assert paced(90, 500, usual=usual, place=place) == [NONE, NONE]


def test_where_no_time_at_all_is_usual_none_is_too_long() -> None:
    assert paced(90, usual=0) == [90]


@given(st.lists(st.integers(0, 3)))
def test_a_number_for_each_group_and_turn(groups: list[int]) -> None:
    turns = [groups[:i].count(group) for i, group in enumerate(groups)]
    numbers, count = numbered_in_turn(np.array(groups, np.int64), np.array(turns, np.int64), 4)
    assert len(set(numbers.tolist())) == len(set(zip(groups, turns, strict=True))) == count
    assert sorted(set(numbers.tolist())) == list(range(count))

    alike = dict(zip(zip(groups, turns, strict=True), numbers.tolist(), strict=True))
    assert [alike[one] for one in zip(groups, turns, strict=True)] == numbers.tolist()
