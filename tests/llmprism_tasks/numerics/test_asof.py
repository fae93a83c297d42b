"""A time is placed among ascending moments: the first not before it, the last not after it, the nearest."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics import asof
from llmprism_tasks.numerics.jit import subroutine
from llmprism_tasks.numerics.robust import Integers

UNORDERED = st.lists(st.integers(0, 20), max_size=6)
TIMES = UNORDERED.map(sorted)


@given(st.lists(st.tuples(UNORDERED, TIMES), max_size=4))
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


@subroutine
def _single(times: Integers, time: int) -> tuple[int, int, int]:
    size = times.size
    return (
        asof.lower_bound(times, 0, size, time),
        asof.advance(times, 0, size, time),
        asof.nearest(times, 0, size, time),
    )


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9).map(sorted), st.integers(-1, 10))
def test_halving_and_walking_find_the_same_and_the_later_of_two_is_the_nearest(times: list[int], time: int) -> None:
    halved, walked, nearest = _single(np.array(times), time)
    assert halved == walked == sum(one < time for one in times)
    least = min(abs(one - time) for one in times)
    later = time + least if time + least in times else time - least
    assert times[nearest] == later
