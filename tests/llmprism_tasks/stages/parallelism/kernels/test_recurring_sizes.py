"""Sizes that come again are told from those that are met once."""

from __future__ import annotations

from itertools import groupby, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.parallelism.kernels import recurring_sizes
from llmprism_tasks.stages.traffic.kernels import size_clusters

TRANSFERS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(1, 8)), max_size=40)


def found(transfers: list[tuple[int, int, int]], tolerance: float) -> recurring_sizes.Sizes:
    """Look at transfers (series, step, size)."""
    counts = [len(list(run)) for _, run in groupby(transfers, key=lambda one: one[0])]
    offsets = np.cumsum([0, *counts]).astype(np.int64)
    table = np.array(transfers, dtype=np.int64).reshape(-1, 3)
    return recurring_sizes.sizes(table[:, 2], table[:, 1], offsets, tolerance)


@given(TRANSFERS)
def test_a_size_is_fresh_if_fewer_than_half_of_the_steps_have_it(transfers: list[tuple[int, int, int]]) -> None:
    transfers = sorted(transfers, key=lambda one: one[:2])
    steps = [{step for other, step, _ in transfers if other == series} for series, _, _ in transfers]
    with_it = [
        {step for other, step, same in transfers if (other, same) == (series, size)} for series, _, size in transfers
    ]
    expected = [2 * len(some) < len(every) for some, every in zip(with_it, steps, strict=True)]
    assert found(transfers, 0.2).fresh.tolist() == expected


@given(TRANSFERS, st.sampled_from([0.0, 0.2, 0.5, 1.0]))
def test_classes_are_those_of_ordered_sizes_and_lie_together(
    transfers: list[tuple[int, int, int]], tolerance: float
) -> None:
    transfers = sorted(transfers, key=lambda one: one[:2])
    sizes = found(transfers, tolerance)
    by_size = sorted(range(len(transfers)), key=lambda i: (transfers[i][0], transfers[i][2]))
    counts = [len(list(run)) for _, run in groupby(transfers, key=lambda one: one[0])]
    ordered = np.array([transfers[i][2] for i in by_size], dtype=np.int64)
    expected = size_clusters.classes(ordered, np.cumsum([0, *counts]).astype(np.int64), tolerance)
    assert sizes.classes[by_size].tolist() == expected.tolist()
    keys = [(transfers[i][0], sizes.classes[i], i) for i in sizes.order]
    assert sorted(sizes.order) == list(range(len(transfers)))
    assert all(one < other for one, other in pairwise(keys))
    first = [i for i, (key, _) in enumerate(pairwise([(-1, -1, -1), *keys])) if i == 0 or key[:2] != keys[i][:2]]
    assert sizes.offsets.tolist() == [*first[: len(keys)], len(keys)]
