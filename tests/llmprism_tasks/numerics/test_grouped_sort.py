"""Transfers come out group by group, in order of time, whatever order equal starts came in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics import grouped_sort

TRANSFERS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 3), st.integers(1, 3)), min_size=0, max_size=40
)


@given(TRANSFERS)
def test_groups_lie_together_in_order_of_time(transfers: list[tuple[int, int, int, int]]) -> None:
    table = np.array(transfers, dtype=np.int64).reshape(-1, 4)
    groups, starts, ends, sizes = (np.ascontiguousarray(column) for column in table.T)
    places = grouped_sort.grouped(groups, 5, starts, ends, sizes)
    assert sorted(places) == list(range(len(table)))
    assert [tuple(row) for row in table[places]] == sorted(map(tuple, table))


@given(TRANSFERS)
def test_what_is_in_this_order_is_known_to_be(transfers: list[tuple[int, int, int, int]]) -> None:
    columns = np.array(transfers, dtype=np.int64).reshape(-1, 4).T
    assert grouped_sort.ascending(*columns) == (transfers == sorted(transfers))


@given(st.lists(st.integers(0, 4), max_size=30))
def test_members_are_collected_in_the_order_in_which_they_come(groups: list[int]) -> None:
    places, offsets = grouped_sort.collected(np.array(groups, np.int64), 5)
    narrow, same = grouped_sort.collected_narrow(np.array(groups, np.int32), 5)
    assert (narrow.dtype, narrow.tolist(), same.tolist()) == (np.int32, places.tolist(), offsets.tolist())
    found = [places[low:high].tolist() for low, high in pairwise(offsets)]
    assert found == [[i for i, group in enumerate(groups) if group == wanted] for wanted in range(5)]


@given(st.lists(st.integers(0, 3), max_size=5), st.lists(st.integers(0, 4), max_size=5))
def test_the_members_of_chosen_series_lie_end_to_end(counts: list[int], chosen: list[int]) -> None:
    offsets, wanted = np.cumsum([0, *counts]), [series for series in chosen if series < len(counts)]
    places, within = grouped_sort.spread(offsets, np.array(wanted, np.int64))
    found = [places[low:high].tolist() for low, high in pairwise(within)]
    assert found == [list(range(offsets[series], offsets[series + 1])) for series in wanted]


SERIES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=8).map(sorted)


@given(st.lists(SERIES, min_size=1, max_size=4), st.data())
def test_two_series_are_merged_in_order_of_time(series: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    one, other = (data.draw(st.integers(-1, len(series) - 1)) for _ in range(2))
    offsets = np.cumsum([0, *map(len, series)])
    starts, ends = (np.array([row[i] for rows in series for row in rows], np.int64) for i in range(2))
    places, sides, within = grouped_sort.merged(offsets, np.array([one]), np.array([other]), starts, ends)
    mine, theirs = (series[i] if i >= 0 else [] for i in (one, other))
    wanted = sorted([(row, 0) for row in mine] + [(row, 1) for row in theirs])
    found = zip(starts[places].tolist(), ends[places].tolist(), sides.tolist(), strict=True)
    assert [((start, end), 1 - side) for start, end, side in found] == wanted
    assert within.tolist() == [0, len(wanted)]


def test_values_are_taken_from_places() -> None:
    assert grouped_sort.taken(np.array([7, 8, 9]), np.array([2, 0, 2], np.int32)).tolist() == [9, 7, 9]


@pytest.mark.parametrize("unit", [1, 2**57])
@given(members=st.lists(st.tuples(st.integers(0, 3), st.integers(-9, 9))))
def test_times_are_sorted_group_by_group_whatever_their_unit(unit: int, members: list[tuple[int, int]]) -> None:
    groups = np.array([group for group, _ in members], np.int64)
    times = np.array([time * unit for _, time in members], np.int64)
    found, offsets = grouped_sort.ascending_times(groups, 4, times)
    assert found.tolist() == [time * unit for _, time in sorted(members)]
    assert offsets.tolist() == [sum(group < one for group, _ in members) for one in range(5)]


@given(st.lists(st.one_of(st.sampled_from([0.0, -0.0, 1.0]), st.floats(allow_nan=False), st.floats(1e18, 1.0001e18))))
def test_moments_come_in_order_as_a_stable_sort_has_them(moments: list[float]) -> None:
    each = np.array(moments, np.float64)
    assert grouped_sort.moment_order(each).tolist() == np.argsort(each, kind="stable").tolist()
