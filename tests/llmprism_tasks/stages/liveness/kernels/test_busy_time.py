"""Each part of time in which transfers of a group start is known by when they first start and last end."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.liveness.kernels.busy_time import busy_parts

PART = 10


@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.tuples(st.integers(95, 160), st.integers(0, 40)))), max_size=5)
)
def test_parts_have_their_first_start_and_last_end(series: list[tuple[int, list[tuple[int, int]]]]) -> None:
    transfers = [(start, start + length) for _, times in series for start, length in times]
    starts, ends = np.array(transfers, dtype=np.int64).reshape(-1, 2).T
    offsets = np.cumsum([0, *(len(times) for _, times in series)])
    groups = np.array([group for group, _ in series], dtype=np.uint32)
    found = list(zip(*busy_parts(starts, ends, offsets, groups, PART), strict=True))
    every = [(group, start // PART, start, start + length) for group, times in series for start, length in times]
    expected = []
    for group, part in sorted({row[:2] for row in every}):
        mine = [row for row in every if row[:2] == (group, part)]
        expected.append((group, min(row[2] for row in mine), max(row[3] for row in mine)))
    assert found == expected
