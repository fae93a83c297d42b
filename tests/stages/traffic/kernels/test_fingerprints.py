"""Series have the same fingerprints when they are the same, and not otherwise."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.traffic.kernels import fingerprints

Transfer = tuple[int, int, int]
NUMBER = st.integers(-2, 2) | st.integers(-(2**63), 2**63 - 1)
SERIES = st.lists(st.tuples(NUMBER, NUMBER, NUMBER), max_size=4)


def of(*series: list[Transfer]) -> list[tuple[int, int]]:
    starts, ends, sizes = np.array([each for one in series for each in one], np.int64).reshape(-1, 3).T
    found = fingerprints.of_series(starts, ends, sizes, np.cumsum([0, *map(len, series)]))
    return [(int(first), int(second)) for first, second in found.T]


@given(SERIES, SERIES)
def test_only_equal_series_have_equal_fingerprints(one: list[Transfer], other: list[Transfer]) -> None:
    first, second, again = of(one, other, one)
    assert first == again == of(one)[0]
    assert (first == second) == (one == other)
    if one != other:
        assert first[0] != second[0]
        assert first[1] != second[1]


def test_order_and_place_count() -> None:
    assert len(set(of([(1, 2, 3), (4, 5, 6)], [(4, 5, 6), (1, 2, 3)], [(1, 3, 2), (4, 5, 6)], [(1, 2, 3)], []))) == 5
