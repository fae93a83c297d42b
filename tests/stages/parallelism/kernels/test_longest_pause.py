"""The longest pause at each mark is found by walking along."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.parallelism.kernels import longest_pause

SERIES = st.lists(st.tuples(st.lists(st.integers(0, 30), max_size=12), st.lists(st.integers(0, 30), max_size=4)))


def arrays(series: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    values = np.array([value for one in series for value in sorted(one)], dtype=np.int64)
    return values, np.cumsum([0, *map(len, series)]).astype(np.int64)


def plainly(moments: list[int], marks: list[int], *, nearest: bool) -> list[int]:
    """Look at every mark of every pause."""
    at: dict[int, list[tuple[int, int]]] = {place: [] for place in range(len(marks))}
    for before, moment in pairwise(sorted(moments)):
        places = [place for place in at if nearest or marks[place] <= moment]
        if places:
            at[min(places, key=lambda place: (abs(marks[place] - moment), -place))].append((moment - before, moment))
    return [max(ended)[1] if ended else -1 for ended in at.values()]


@given(SERIES, st.booleans())
def test_the_longest_of_all_is_found(series: list[tuple[list[int], list[int]]], nearest: bool) -> None:
    found = longest_pause.longest(
        *arrays([one for one, _ in series]), *arrays([other for _, other in series]), nearest=nearest
    )
    assert found.tolist() == [at for one, other in series for at in plainly(one, sorted(other), nearest=nearest)]


@pytest.mark.parametrize(("nearest", "found"), [(False, [16, 30]), (True, [4, 30])])
def test_a_pause_counts_to_the_mark_before_it_or_to_the_nearest(nearest: bool, found: list[int]) -> None:
    ends = longest_pause.longest(*arrays([[0, 4, 16, 30]]), *arrays([[8, 20]]), nearest=nearest)
    assert ends.tolist() == found
