"""Kernels sort, search and take medians as NumPy does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics import asof, sorting
from llmprism_tasks.numerics.jit import subroutine
from llmprism_tasks.numerics.robust import Floats, Integers

SOME = st.lists(st.integers(0, 30), min_size=1, max_size=120)
"""Few different numbers, so that many are equal; more than one run of those that are sorted in place."""


@subroutine
def _sorted(values: Integers) -> tuple[Integers, Integers]:
    keys, places = values.copy(), np.arange(values.size)
    sorting.sort(keys, places, values.size)
    return keys, places


@subroutine
def _sorted_by(values: Integers, second: Integers, third: Integers) -> Integers:
    keys, places = values.copy(), np.arange(values.size)
    sorting.sort_by(keys, places, values.size, second, third)
    return places


@subroutine
def _middle(values: Floats, share: float) -> tuple[float, float]:
    keys = values.copy()
    return sorting.median(keys, values.size), sorting.quantile(keys, values.size, share)


@subroutine
def _first(values: Integers, least: int) -> int:
    return asof.lower_bound(values, 0, values.size, least)


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=80))
def test_equal_keys_are_sorted_by_two_more(rows: list[tuple[int, int, int]]) -> None:
    order = sorted(range(len(rows)), key=rows.__getitem__)
    assert _sorted_by(*(np.array(column) for column in zip(*rows, strict=True))).tolist() == order


@given(SOME)
def test_equal_ones_keep_their_order(values: list[int]) -> None:
    keys, places = _sorted(np.array(values, np.int64))
    assert keys.tolist() == sorted(values)
    assert places.tolist() == np.argsort(values, kind="stable").tolist()


def test_nanoseconds_since_1970_are_told_apart() -> None:
    moment = 1_760_000_000_000_000_000
    assert _sorted(np.array([moment + 1, moment, moment + 2]))[1].tolist() == [1, 0, 2]


@given(SOME, st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0]))
def test_medians_and_quantiles_are_numpy_s(values: list[int], share: float) -> None:
    numbers = np.array(values, np.float64)
    assert _middle(numbers, share) == pytest.approx((np.median(numbers), np.quantile(numbers, share)), rel=1e-12)


@pytest.mark.parametrize("values", [[np.nan], [np.nan] * 2, [1.0, np.nan, 2.0], [np.nan, 3.0, np.nan, 1.0, np.nan]])
def test_a_median_that_meets_nan_is_nan(values: list[float]) -> None:
    """A search that looks for a place for NaN would go on for ever."""
    assert np.isnan(_middle(np.array(values), 0.5)[0])


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, np.inf, np.nan]), min_size=1, max_size=60))
def test_a_search_among_nan_ends_with_nan_or_within_the_numbers(values: list[float]) -> None:
    numbers = np.array(values)
    found, known = _middle(numbers, 0.5)[0], numbers[~np.isnan(numbers)]
    if known.size == numbers.size:
        assert found == np.median(numbers)
    else:
        assert np.isnan(found) or known.min() <= found <= known.max()


@given(SOME, st.integers(-1, 31))
def test_what_is_found_is_the_first_that_is_no_less(values: list[int], least: int) -> None:
    assert _first(np.array(sorted(values)), least) == np.searchsorted(sorted(values), least)
