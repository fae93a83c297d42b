"""Distinct values are numbered in the order in which they appear, however many there are."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics import encoding
from llmprism_tasks.numerics.jit import subroutine
from llmprism_tasks.numerics.robust import Floats, Integers


def found(values: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    first, second = (np.array([value[half] for value in values], dtype=np.uint64) for half in (0, 1))
    numbers, rows = encoding.numbered(first, second)
    return numbers.tolist(), rows.tolist()


def test_nothing_has_no_numbers() -> None:
    assert found([]) == ([], [])


def test_values_with_one_hash_alike_are_two() -> None:
    assert found([(7, 1), (7, 2), (8, 1), (7, 1)]) == ([0, 1, 2, 0], [0, 1, 2])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**64 - 1) | st.integers(0, 3)), max_size=50))
def test_equal_values_share_the_number_of_the_first(values: list[tuple[int, int]]) -> None:
    numbers, rows = found(values)
    distinct = list(dict.fromkeys(values))
    assert numbers == [distinct.index(value) for value in values]
    assert [values[row] for row in rows] == distinct


def test_there_may_be_more_values_than_the_table_begins_with() -> None:
    count = 5_000
    numbers, rows = found([(i % count, i % 7) for i in range(2 * 7 * count)])
    assert len(rows) == 7 * count
    assert numbers == list(range(7 * count)) * 2


@given(st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=60))
def test_equal_lists_share_the_number_of_the_first(lists: list[list[int]]) -> None:
    offsets = np.cumsum([0, *map(len, lists)])
    numbers, rows = encoding.numbered_lists(np.array(list(itertools.chain(*lists)), np.int32), offsets)
    distinct = [list(one) for one in dict.fromkeys(map(tuple, lists))]
    assert numbers.tolist() == [distinct.index(one) for one in lists]
    assert [lists[row] for row in rows] == distinct


def test_there_may_be_more_lists_than_the_table_begins_with() -> None:
    items = np.arange(10_000, dtype=np.int32) // 2
    numbers, rows = encoding.numbered_lists(np.append(items, items), np.arange(20_001))
    assert rows.tolist() == list(range(0, 10_000, 2))
    assert numbers.tolist() == items.tolist() * 2


@given(st.lists(st.integers(0, 40), max_size=60))
def test_codes_are_met_once_each(codes: list[int]) -> None:
    assert encoding.distinct_codes(np.array(codes, np.uint32)).tolist() == sorted(set(codes))


@subroutine
def _distinct(values: Integers) -> tuple[Integers, Floats]:
    numbers, different = np.empty(values.size, np.int64), np.empty(values.size)
    count = encoding.distinct(values, numbers, different)
    return numbers, different[:count]


@given(st.lists(st.integers(0, 5) | st.integers(0, 2**53 - 1), min_size=1, max_size=200))
def test_distinct_numbers_and_their_places_are_numpy_s(values: list[int]) -> None:
    numbers, different = _distinct(np.array(values, np.int64))
    expected, places = np.unique(values, return_inverse=True)
    assert different.tolist() == expected.tolist()
    assert numbers.tolist() == places.tolist()


def test_all_numbers_may_be_different() -> None:
    values = np.arange(50_000)[::-1].copy() * 4_194_304
    numbers, different = _distinct(values)
    assert np.array_equal(different[numbers], values)
    assert different.size == values.size
