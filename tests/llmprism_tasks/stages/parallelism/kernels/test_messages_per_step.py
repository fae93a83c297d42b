"""Bunches are what a plain loop over each series counts."""

from __future__ import annotations

from itertools import groupby, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.parallelism.kernels import messages_per_step

TOGETHER, LIKE_ONE, TWICE = 2.0, (0.4, 2.5), 0.04
TRANSFERS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(1, 9)), max_size=40)


def counted(transfers: list[tuple[int, int, int]]) -> list[tuple[int, int, float]]:
    """Series, start (a step lasts 7), size."""
    rows = sorted(transfers)
    series, starts, sizes = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    offsets = np.searchsorted(series, np.arange(4)).astype(np.int64)
    found = messages_per_step.in_steps(
        offsets, starts // 7, starts, sizes, together_ns=TOGETHER, like_one=LIKE_ONE, twice=TWICE
    )
    return list(zip(*(one.tolist() for one in found), strict=True))


@given(TRANSFERS)
def test_bunches_like_the_typical_one_are_counted_step_by_step(transfers: list[tuple[int, int, int]]) -> None:
    wanted = []
    for series, run in groupby(sorted(transfers), key=lambda row: row[0]):
        rows = [(start // 7, start, size) for _, start, size in run]
        begins = [0, *(i for i, (one, other) in enumerate(pairwise(rows), 1) if begins_anew(one, other)), len(rows)]
        whole = [(rows[low][0], sum(row[2] for row in rows[low:high])) for low, high in pairwise(begins)]
        usual = float(np.median([size for _, size in whole]))
        alike = [(step, size) for step, size in whole if LIKE_ONE[0] <= size / usual <= LIKE_ONE[1]]
        for _, some in groupby(alike, key=lambda one: one[0]):
            sizes = [size for _, size in some]
            twofold = sum(abs(size / usual - 2) <= TWICE for size in sizes)
            wanted.append((series, len(sizes) + twofold, float(np.median(sizes))))
    assert counted(transfers) == wanted


def begins_anew(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    return one[0] != other[0] or other[1] - one[1] > TOGETHER


def test_two_that_were_merged_are_two() -> None:
    assert counted([(0, 0, 5), (0, 3, 5), (0, 6, 10)]) == [(0, 4, 5.0)]
