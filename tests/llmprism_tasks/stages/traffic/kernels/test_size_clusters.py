"""Alike numbers share a class, and a class never drifts away from its smallest."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.traffic.kernels.size_clusters import classes, collected


def numbered(*series: list[int], tolerance: float = 0.02) -> list[list[int]]:
    offsets = np.cumsum([0, *map(len, series)]).astype(np.int64)
    found = classes(np.array([value for one in series for value in one], dtype=np.int64), offsets, tolerance)
    return [found[low:high].tolist() for low, high in pairwise(offsets.tolist())]


def test_nothing_has_no_classes() -> None:
    assert numbered() == []
    assert numbered([]) == [[]]


def test_equal_values_are_one_class() -> None:
    assert numbered([7] * 5, tolerance=0) == [[0] * 5]
    assert numbered([0, 0, 1]) == [[0, 0, 1]]


def test_headers_and_merged_control_messages_make_no_second_class() -> None:
    """The sizes of one captured pipeline pair (METHOD), then a bucket of gradients."""
    assert numbered([1_048_624, 1_048_672, 1_048_720, 2_097_200]) == [[0, 0, 0, 1]]


@pytest.mark.parametrize(("value", "found"), [(1020, 0), (1021, 1)])
def test_the_tolerance_is_the_largest_difference_of_a_class(value: int, found: int) -> None:
    assert numbered([1000, value]) == [[0, found]]


def test_a_chain_of_neighbours_does_not_drift() -> None:
    assert numbered([1000, 1015, 1030, 1045, 1060]) == [[0, 0, 1, 1, 2]]


def test_values_come_in_any_order() -> None:
    assert numbered([1060, 1000, 1030, 1015]) == [[2, 0, 1, 0]]


def test_every_series_counts_from_0() -> None:
    assert numbered([1, 5, 9], [], [2, 2], [3, 9]) == [[0, 1, 2], [], [0, 0], [0, 1]]


values = st.lists(st.integers(0, 10**12), max_size=40).map(sorted)


@given(values, st.sampled_from([0.0, 0.02, 0.1, 1.0]))
def test_a_class_holds_what_is_within_the_tolerance_of_its_smallest_and_nothing_more(
    series: list[int], tolerance: float
) -> None:
    (found,) = numbered(series, tolerance=tolerance)
    smallest: dict[int, float] = {}
    for value, number in zip(series, found, strict=True):
        smallest.setdefault(number, value)
        assert value <= smallest[number] * (1 + tolerance)
    assert list(smallest) == list(range(len(smallest)))
    assert all(high > low * (1 + tolerance) for low, high in pairwise(smallest.values()))


@given(values, st.integers(1, 13))
def test_the_unit_does_not_matter(series: list[int], power: int) -> None:
    assert numbered(series) == numbered([value * 2**power for value in series])


@given(st.lists(values.flatmap(st.permutations), max_size=4))
def test_what_is_collected_are_the_classes(several: list[list[int]]) -> None:
    offsets = np.cumsum([0, *map(len, several)]).astype(np.int64)
    flat = np.array([value for one in several for value in one], dtype=np.int64)
    found = collected(flat, offsets, 0.02)
    numbers = classes(flat, offsets, 0.02)
    assert found.several.tolist() == [len(set(numbers[low:high].tolist())) for low, high in pairwise(offsets.tolist())]
    expected = [
        [low + place for place in np.flatnonzero(numbers[low:high] == number)]
        for low, high in pairwise(offsets.tolist())
        for number in range(len(set(numbers[low:high].tolist())))
    ]
    assert [found.places[low:high].tolist() for low, high in pairwise(found.offsets.tolist())] == expected
    assert found.sums.tolist() == [int(flat[places].sum()) for places in expected]
