"""Figures of segments are those of their rows, one segment at a time."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics import ragged

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 9)), max_size=30)


@given(ROWS)
def test_segments_are_runs_of_equal_keys_and_have_their_rows_figures(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    offsets = ragged.bounds(columns[0], columns[1])
    runs = [[row[2] for row in run] for _, run in groupby(rows, key=lambda row: row[:2])]
    assert np.diff(offsets).tolist() == list(map(len, runs))
    assert ragged.sums(columns[2], offsets).tolist() == list(map(sum, runs))
    assert ragged.medians(columns[2], offsets).tolist() == list(map(np.median, runs))
    assert ragged.largest(columns[2], offsets).tolist() == list(map(max, runs))
    begins = offsets[:-1].tolist()
    firsts = [begin + run.index(max(run)) for begin, run in zip(begins, runs, strict=True)]
    assert ragged.first_largest(columns[2], offsets).tolist() == firsts
    assert ragged.spread(np.arange(len(runs)), offsets).tolist() == [i for i, run in enumerate(runs) for _ in run]
    assert ragged.distinct(columns[2], offsets).tolist() == [len(set(run)) for run in runs]
    assert ragged.commonest(columns[2], offsets).tolist() == [max(sorted(set(run)), key=run.count) for run in runs]


def test_without_rows_there_is_no_segment() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert ragged.bounds(nothing).tolist() == [0]
    for figure in (
        ragged.sums,
        ragged.largest,
        ragged.first_largest,
        ragged.medians,
        ragged.distinct,
        ragged.commonest,
        ragged.spread,
    ):
        assert figure(nothing, ragged.bounds(nothing)).size == 0


@given(st.lists(st.lists(st.integers(-9, 9)), min_size=1))
def test_segments_without_rows_come_to_nothing(drawn: list[list[int]]) -> None:
    offsets = np.cumsum([0, *map(len, drawn)])
    values = np.array([value for some in drawn for value in some], dtype=np.int64)
    assert ragged.totals(values, offsets).tolist() == list(map(sum, drawn))


def test_flags_are_counted() -> None:
    assert ragged.sums(np.array([True, True, False]), np.array([0, 2, 3])).tolist() == [2, 0]


@given(st.lists(st.integers(0, 40), max_size=200), st.sampled_from([np.int32, np.int64]))
def test_of_ascending_numbers_segments_are_found_without_looking_at_each(numbers: list[int], kind: type) -> None:
    ascending = np.sort(np.array(numbers, dtype=kind))
    assert ragged.of_ascending(ascending).tolist() == ragged.bounds(ascending).tolist()
