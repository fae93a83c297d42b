"""The different numbers of a series are found in order, however many there are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.distinct import distinct
from llmprism_tasks.numerics.jit import subroutine
from llmprism_tasks.numerics.robust import Floats, Integers


@subroutine
def _found(values: Integers) -> tuple[Integers, Floats]:
    numbers, different = np.empty(values.size, np.int64), np.empty(values.size)
    count = distinct(values, numbers, different)
    return numbers, different[:count]


@given(st.lists(st.integers(0, 5) | st.integers(0, 2**53 - 1), min_size=1, max_size=200))
def test_they_are_numpy_s(values: list[int]) -> None:
    numbers, different = _found(np.array(values, np.int64))
    expected, places = np.unique(values, return_inverse=True)
    assert different.tolist() == expected.tolist()
    assert numbers.tolist() == places.tolist()


def test_all_may_be_different() -> None:
    values = np.arange(50_000)[::-1].copy() * 4_194_304
    numbers, different = _found(values)
    assert np.array_equal(different[numbers], values)
    assert different.size == values.size
