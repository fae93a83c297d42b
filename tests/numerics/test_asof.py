"""A time's moment is the first of its series that is not before it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics import asof

TIMES = st.lists(st.integers(0, 20), max_size=6).map(sorted)


@given(st.lists(st.tuples(TIMES, TIMES), max_size=4))
def test_each_time_finds_the_first_moment_from_it_on(series: list[tuple[list[int], list[int]]]) -> None:
    times, moments = (np.array([one for pair in series for one in pair[i]], np.int64) for i in range(2))
    offsets, bounds = (np.cumsum([0, *(len(pair[i]) for pair in series)]) for i in range(2))
    found = asof.first_from(times, offsets, moments, bounds[:-1], bounds[1:])
    wanted = [
        next((low + i for i, moment in enumerate(mine) if moment >= time), -1)
        for (asked, mine), low in zip(series, bounds.tolist(), strict=False)
        for time in asked
    ]
    assert found.tolist() == wanted
    stands = asof.values_from(
        times, offsets, moments, 10 * np.arange(moments.size), bounds[:-1], bounds[1:], otherwise=-10
    )
    assert stands.tolist() == [10 * place for place in wanted]
