"""A round ends where a member comes again, and nobody comes twice in one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.published.kernels.turn_taking import rounds


def numbered(*series: list[int]) -> list[int]:
    offsets = np.cumsum([0, *map(len, series)]).astype(np.int64)
    return rounds(np.array([member for one in series for member in one], dtype=np.int64), offsets).tolist()


@pytest.mark.parametrize(
    ("turns", "found"),
    [
        ([], []),
        ([3], [0]),
        ([1, 2, 3, 1, 2, 3], [0, 0, 0, 1, 1, 1]),
        ([1, 2, 3, 3, 2, 1], [0, 0, 0, 1, 1, 1]),
        ([1, 2, 3, 1, 3, 2, 1], [0, 0, 0, 1, 1, 1, 2]),
        ([1, 2, 1, 1], [0, 0, 1, 2]),
    ],
)
def test_a_member_that_comes_again_begins_a_round(turns: list[int], found: list[int]) -> None:
    assert numbered(turns) == found


def test_each_series_begins_anew() -> None:
    assert numbered([1, 1], [], [1, 2]) == [0, 1, 0, 0]


@given(st.lists(st.integers(0, 5)), st.lists(st.integers(0, 5)))
def test_nobody_comes_twice_and_later_turns_change_nothing(turns: list[int], more: list[int]) -> None:
    found = numbered(turns + more)
    assert len(set(zip(turns + more, found, strict=True))) == len(found)
    assert found[: len(turns)] == numbered(turns)
