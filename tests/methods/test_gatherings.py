"""A gathering is complete when everybody has come, and bursts are never cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.methods.gatherings import gatherings


def numbered(*series: list[list[int]]) -> list[int]:
    """Return the gathering of each burst; a series is a list of bursts, a burst of members."""
    rows = [(member, burst) for one in series for burst, members in enumerate(one) for member in members]
    members, bursts = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    offsets = np.cumsum([0, *(sum(map(len, one)) for one in series)]).astype(np.int64)
    numbers = gatherings(members, bursts, offsets).tolist()
    return [numbers[i] for i in range(len(rows)) if i == 0 or i in offsets or bursts[i] != bursts[i - 1]]


@pytest.mark.parametrize(
    ("bursts", "found"),
    [
        ([[1, 2, 3], [3, 2, 1]], [0, 1]),
        ([[1], [2], [3, 1, 2]], [0, 0, 0]),
        ([[1, 2], [3], [1, 2, 3]], [0, 0, 1]),
        ([[1, 2, 3, 1, 2, 3]], [0]),
        ([[1, 2], [1, 2], [3]], [0, 0, 0]),
    ],
)
def test_bursts_gather_until_all_have_come(bursts: list[list[int]], found: list[int]) -> None:
    assert numbered(bursts) == found


def test_what_comes_after_the_last_complete_gathering_belongs_to_it() -> None:
    assert numbered([[1, 2], [2, 1], [2]]) == [0, 1, 1]


def test_each_series_begins_anew_and_expects_its_own_members() -> None:
    assert numbered([[1, 2], [1]], [[1], [1]]) == [0, 0, 0, 1]


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=1, max_size=12))
def test_all_take_part_in_each_gathering(bursts: list[list[int]]) -> None:
    found = numbered(bursts)
    expected = {member for burst in bursts for member in burst}
    for number in set(found):
        assert {m for burst, of in zip(bursts, found, strict=True) if of == number for m in burst} == expected
