"""The best run is the one that no other run of neighbours beats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.max_subarray import best_runs

NAN = float("nan")
QUARTERS = st.integers(-40, 40).map(lambda quarter: quarter / 4)
"""Values whose sums are exact in any order, so that brute force and a running sum agree to the last bit."""
SERIES = st.lists(st.one_of(QUARTERS, QUARTERS, QUARTERS, st.just(NAN)), max_size=25)

Run = tuple[int, int, float]


def runs_of(*series: list[float], since: int = 0) -> list[Run]:
    """Return first, last and total of each series' best run, positions counted from its own beginning."""
    offsets = np.cumsum([0, *map(len, series)]).astype(np.int64)
    values = np.array([v for one in series for v in one], dtype=np.float64)
    first, last, total = best_runs(values, offsets, offsets[:-1] + since)
    began = [0 if found < 0 else int(offset) for found, offset in zip(first, offsets, strict=False)]
    return [(int(f) - b, int(e) - b, float(t)) for f, e, t, b in zip(first, last, total, began, strict=True)]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([], (-1, -1, 0)),
        ([0, 0], (-1, -1, 0)),
        ([-3, -1, -2], (-1, -1, 0)),
        ([NAN, NAN], (-1, -1, 0)),
        ([5], (0, 0, 5)),
        ([1, 2, 3], (0, 2, 6)),
        ([-1, 2, 3, -1], (1, 2, 5)),
        ([3, -2, 4, -9, 1], (0, 2, 5)),
        ([3, -4, 4, -9, 5], (4, 4, 5)),
        ([3, NAN, 2, 2], (2, 3, 4)),
        ([3, NAN, 2], (0, 0, 3)),
        ([NAN, -1, 4, NAN], (2, 2, 4)),
    ],
)
def test_the_run_with_the_largest_sum_is_found(values: list[float], found: Run) -> None:
    assert runs_of(values) == [found]


def test_no_series_no_runs() -> None:
    first, last, total = best_runs(np.empty(0), np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64))
    assert first.size == last.size == total.size == 0


def test_the_first_of_equal_runs_is_kept_and_zeros_do_not_lengthen_it() -> None:
    assert runs_of([2, -5, 2]) == [(0, 0, 2)]
    assert runs_of([0, 2, 0]) == [(1, 1, 2)]


@pytest.mark.parametrize(
    ("since", "found"),
    [(1, (0, 1, 6)), (2, (3, 3, 2)), (3, (3, 3, 2)), (4, (5, 5, 1)), (5, (5, 5, 1)), (6, (-1, -1, 0))],
)
def test_a_run_that_is_over_before_is_none(since: int, found: Run) -> None:
    assert runs_of([3, 3, -9, 2, -2, 1], since=since) == [found]


@given(SERIES, st.integers(0, 25))
def test_all_before_the_run_was_over(values: list[float], since: int) -> None:
    """Whatever is best of all that comes before it ends too early; it is the best of the rest."""
    ((first, last, total),) = runs_of(values, since=since)
    begin = 0
    while (over := runs_of(values[begin:])[0])[1] >= 0 and begin + over[1] < since:
        begin += over[1] + 1
    assert (first, last, total) == ((begin + over[0], begin + over[1], over[2]) if over[1] >= 0 else (-1, -1, 0))


@given(SERIES)
def test_no_run_beats_it(values: list[float]) -> None:
    """Against the sums of all runs; NaN in one makes its sum NaN, which is above nothing."""
    sums = {(i, j): sum(values[i : j + 1]) for i in range(len(values)) for j in range(i, len(values))}
    best = max((value for value in sums.values() if value > 0), default=0.0)
    ((first, last, total),) = runs_of(values)
    assert total == best
    assert (sums[first, last] == best) if best else (first, last) == (-1, -1)


@given(st.lists(SERIES, max_size=5))
def test_each_series_is_searched_by_itself(series: list[list[float]]) -> None:
    assert runs_of(*series) == [run for one in series for run in runs_of(one)]


@given(st.lists(QUARTERS, max_size=25))
def test_backwards_the_total_is_the_same(values: list[float]) -> None:
    assert runs_of(values)[0][2] == runs_of(values[::-1])[0][2]
