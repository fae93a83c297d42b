"""What series send in their steps is what a plain loop counts, in whatever order their transfers lie."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.traffic.kernels import pair_sums

TRANSFERS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9), st.booleans()), max_size=40)


@given(TRANSFERS)
def test_each_step_of_a_series_has_its_own_tally(transfers: list[tuple[int, int, int, bool]]) -> None:
    """Series, step, size, mark."""
    order = sorted(range(len(transfers)), key=lambda i: transfers[i][:2])
    series, steps, sizes = (np.array([one[i] for one in transfers], np.int64) for i in range(3))
    marks = np.array([one[3] for one in transfers], np.bool_)
    offsets = np.searchsorted(series[order], np.arange(5)).astype(np.int64)
    found = pair_sums.tally_steps(np.array(order, np.int64), offsets, steps, sizes, marks)
    runs = [list(run) for _, run in groupby(order, key=lambda i: transfers[i][:2])]
    assert np.diff(found.offsets).tolist() == list(map(len, runs))
    assert np.diff(found.series).tolist() == [sum(series[run[0]] == one for run in runs) for one in range(4)]
    assert (found.first.tolist(), found.last.tolist()) == ([run[0] for run in runs], [run[-1] for run in runs])
    assert found.total.tolist() == [sizes[run].sum() for run in runs]
    assert found.fresh.tolist() == [marks[run].sum() for run in runs]
    lows, highs = found.offsets[:-1], found.offsets[1:]
    medians = pair_sums.medians(np.array(order, np.int64), lows, highs, sizes)
    assert medians.tolist() == [np.median(sizes[run]) for run in runs]


RECORDS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 9), st.integers(0, 5), st.integers(-1, 2)),
    max_size=40,
)


@given(RECORDS)
def test_what_is_sent_in_a_step_has_its_times_and_kinds(records: list[tuple[int, int, int, int, int]]) -> None:
    """Series, step, start, length, kind."""
    rows = sorted(records)
    series, steps, starts, lengths, kinds = (np.array([row[i] for row in rows], np.int64) for i in range(5))
    offsets, sizes = np.searchsorted(series, np.arange(5)).astype(np.int64), np.arange(1, len(rows) + 1)
    found = pair_sums.step_sums(offsets, steps, starts, starts + lengths, sizes, kinds)
    wanted = [
        (
            *(rows[run[0]][:3]),
            max(rows[i][2] + rows[i][3] for i in run),
            len(run),
            sum(sizes[run].tolist()),
            len({rows[i][4] for i in run} - {-1}),
        )
        for run in (list(run) for _, run in groupby(range(len(rows)), key=lambda i: rows[i][:2]))
    ]
    assert list(zip(*(one.tolist() for one in found), strict=True)) == wanted


@given(RECORDS, st.integers(0, 3), st.integers(0, 20))
def test_what_is_sent_at_a_time_is_counted(
    records: list[tuple[int, int, int, int, int]], time: int, least: int
) -> None:
    series, times = (np.array([row[i] for row in sorted(records)], np.int64) for i in range(2))
    offsets, sizes = np.searchsorted(series, np.arange(5)).astype(np.int64), np.arange(1, len(records) + 1)
    own = [sizes[(series == one) & (times == time)].tolist() for one in range(4)]
    larger = [[size for size in some if size > least] for some in own]
    wanted = [[function(some) for some in each] for each in (own, larger) for function in (len, sum)]
    assert [one.tolist() for one in pair_sums.at_time(offsets, times, sizes, time, least)] == wanted


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=40))
def test_a_group_has_its_members_and_the_largest_of_them(transfers: list[tuple[int, int]]) -> None:
    groups, sizes = (np.array([one[i] for one in transfers], np.int64) for i in range(2))
    counts, largest = pair_sums.of_groups(groups.astype(np.int32), 4, sizes)
    assert counts.tolist() == [int((groups == group).sum()) for group in range(4)]
    assert largest.tolist() == [int(sizes[groups == group].max(initial=0)) for group in range(4)]
