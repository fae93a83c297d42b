"""What series send in their steps is what a plain loop counts, in whatever order their transfers lie."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.methods import tallies

TRANSFERS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9), st.booleans()), max_size=40)


@given(TRANSFERS)
def test_each_step_of_a_series_has_its_own_tally(transfers: list[tuple[int, int, int, bool]]) -> None:
    """Series, step, size, mark."""
    order = sorted(range(len(transfers)), key=lambda i: transfers[i][:2])
    series, steps, sizes = (np.array([one[i] for one in transfers], np.int64) for i in range(3))
    marks = np.array([one[3] for one in transfers], np.bool_)
    offsets = np.searchsorted(series[order], np.arange(5)).astype(np.int64)
    found = tallies.of_series(np.array(order, np.int64), offsets, steps, sizes, marks)
    runs = [list(run) for _, run in groupby(order, key=lambda i: transfers[i][:2])]
    assert np.diff(found.offsets).tolist() == list(map(len, runs))
    assert np.diff(found.series).tolist() == [sum(series[run[0]] == one for run in runs) for one in range(4)]
    assert (found.first.tolist(), found.last.tolist()) == ([run[0] for run in runs], [run[-1] for run in runs])
    assert found.total.tolist() == [sizes[run].sum() for run in runs]
    assert found.fresh.tolist() == [marks[run].sum() for run in runs]
    lows, highs = found.offsets[:-1], found.offsets[1:]
    medians = tallies.medians(np.array(order, np.int64), lows, highs, sizes)
    assert medians.tolist() == [np.median(sizes[run]) for run in runs]
