"""Records that a collector joined are told from tensors of several sizes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.parallelism.kernels import joined_sizes, recurring_sizes

TOLERANCE = 0.02


def units(steps: list[list[int]], span: int = 0) -> list[int]:
    """Return the units of one series, given the sizes of each step, which start one after another each."""
    values = np.array([size for step in steps for size in step], dtype=np.int64)
    numbers = np.repeat(np.arange(len(steps)), [len(step) for step in steps])
    offsets = np.array([0, values.size], dtype=np.int64)
    classes = recurring_sizes.sizes(values, numbers, offsets, TOLERANCE).classes
    starts = np.array([at for step in steps for at, _ in enumerate(step)], dtype=np.int64)
    transfers = joined_sizes.Transfers(values, classes, numbers, starts)
    return joined_sizes.units(transfers, offsets, np.array([span]), TOLERANCE).tolist()


def test_joined_records_have_the_size_of_one() -> None:
    steps = [[1000, 3000, 4000], [2000, 5000, 1000], [1000, 1000, 6000], [4000, 1000, 3000]]
    assert set(units(steps)) == {1000}


def test_multiples_that_come_in_each_step_are_tensors_of_their_own() -> None:
    steps = [[1000, 3000, 3000, 7000]] * 4
    assert units(steps) == [size for step in steps for size in step]


def test_a_multiple_that_comes_in_each_step_is_joined_where_most_bytes_are() -> None:
    steps = [[1000, 3000, 7000, 1000], [2000, 3000, 6000, 1000], [4000, 3000, 5000], [3000, 8000, 1000]]
    assert set(units(steps)) == {1000}


def test_the_unit_carries_most_bytes_with_its_multiples() -> None:
    steps = [[1000, 3000, 50_500], [2000, 2000, 50_500], [4000, 50_500], [1000, 1000, 2000, 50_500]]
    assert units(steps) == [size for step in steps for size in step]
    smaller = [[size if size < 50_000 else 3700 for size in step] for step in steps]
    assert {unit for unit in units(smaller) if unit != 3700} == {1000}


def test_a_size_may_miss_a_whole_number_by_the_tolerance() -> None:
    steps = [[1000, 3019], [1000, 1000, 2019], [4019], [1000, 3019]]
    assert set(units(steps)) == {1000}
    wrong = [[size + 2 if size > 1000 else size for size in step] for step in steps]
    assert units(wrong) == [size for step in wrong for size in step]


@given(st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=6), min_size=1, max_size=8))
def test_each_transfer_is_a_whole_number_of_its_unit(steps: list[list[int]]) -> None:
    sizes = [1000 * size for step in steps for size in step]
    found = units([[1000 * size for size in step] for step in steps])
    assert all(size % unit == 0 for size, unit in zip(sizes, found, strict=True))
    joined = {unit for size, unit in zip(sizes, found, strict=True) if unit != size}
    assert len(joined) <= 1


def test_what_is_joined_goes_on_through_most_steps() -> None:
    steps = [[1000, 3000, 4000], [2000, 5000], [1000, 1000, 6000], [8000]]
    assert set(units(steps, span=2)) == {1000}
    assert units(steps, span=3) == [size for step in steps for size in step]


def test_nothing_is_found_of_nothing() -> None:
    assert units([]) == []
