"""When others were last seen, in each slot of time: as a plain look at all of them says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llmprism_tasks.methods.elsewhere import latest_of_two

SLOT = 10


def others(times: list[int], groups: list[int], group: int) -> list[int]:
    latest = latest_of_two(np.array(times, np.int64), np.array(groups, np.int64), SLOT)
    return latest.of_others(group).tolist()


@given(st.lists(st.tuples(st.integers(100, 160), st.integers(0, 3)), max_size=30), st.integers(0, 3))
def test_the_latest_of_others_in_each_slot(seen: list[tuple[int, int]], group: int) -> None:
    last: dict[int, int] = {}
    for time, who in seen:
        if who != group:
            last[time // SLOT] = max(last.get(time // SLOT, 0), time)
    assert others([time for time, _ in seen], [who for _, who in seen], group) == [last[slot] for slot in sorted(last)]


@pytest.mark.parametrize(("group", "expected"), [(0, [119, 131]), (1, [112]), (2, [119, 131])])
def test_nobody_is_elsewhere_to_himself(group: int, expected: list[int]) -> None:
    assert others([110, 119, 112, 131], [1, 1, 0, 1], group) == expected
