"""What overlaps is joined, and what is quick and follows at once; the rest of a segment is gaps."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.intervals import Rows
from llmprism_tasks.stages.timeline.kernels.interval_union import (
    NO_SEGMENT,
    Counterparts,
    Intervals,
    gaps_between,
    joined,
    sorts,
)

QUICK, OTHER = 1, 2
Row = tuple[int, int, int]
"""Start, end, bits."""


def intervals(segments: list[list[Row]]) -> Intervals:
    """Return what nobody is at the other end of."""
    rows = [row for segment in segments for row in segment]
    offsets = np.cumsum([0, *map(len, segments)]).astype(np.int64)
    starts, ends, bits = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    return Intervals(offsets, starts, ends, bits.astype(np.int32), np.full(len(rows), NO_SEGMENT))


def exchanges(*segments: list[Row], beside: list[list[Row]] | None = None) -> list[list[tuple[int, int, int, int]]]:
    """Return start, end, bits and peer of what is joined at once within a tenth.

    Each row is a series of its own, and the other end's is the segment of its number.
    """
    each = intervals(list(segments))
    number = np.arange(each.starts.size)
    series = number.astype(np.int32)
    others = Counterparts(number, np.zeros(max(number.size, len(segments)), np.int64), np.arange(number.size + 1))
    opens, closes = np.zeros(len(segments), np.int64), np.full(len(segments), 999)
    rows = Rows(each.offsets, series, series, series + np.int32(1), opens, closes, each.starts, each.ends)
    more = intervals(beside or [[] for _ in segments])
    found = joined(rows, each.bits, others, more, quick=QUICK, at_once=0.1)
    told = list(zip(*(column.tolist() for column in found[1:]), strict=True))
    return [told[a:b] for a, b in zip(found.offsets.tolist(), found.offsets.tolist()[1:], strict=False)]


@pytest.mark.parametrize(("start", "number"), [(100, 1), (110, 1), (111, 2)])
def test_quick_ones_that_follow_within_the_slack_are_one(start: int, number: int) -> None:
    assert len(exchanges([(0, 100, QUICK), (start, 150, QUICK)])[0]) == number


@pytest.mark.parametrize("bits", [(QUICK, OTHER), (OTHER, QUICK), (OTHER, OTHER)])
def test_others_only_where_they_overlap_or_touch(bits: tuple[int, int]) -> None:
    assert len(exchanges([(0, 100, bits[0]), (105, 150, bits[1])])[0]) == 2
    assert exchanges([(0, 100, bits[0]), (100, 150, bits[1])]) == [[(0, 150, bits[0] | bits[1], 0)]]


def test_the_slack_is_a_ratio_of_the_one_before_after_all_have_ended() -> None:
    assert len(exchanges([(0, 100, QUICK), (40, 50, QUICK), (101, 120, QUICK)])[0]) == 1
    assert len(exchanges([(0, 100, QUICK), (40, 50, QUICK), (102, 120, QUICK)])[0]) == 2


def test_segments_are_joined_each_for_itself_and_the_first_names_the_peer() -> None:
    assert exchanges([(5, 9, OTHER), (0, 6, QUICK)], [], [(0, 9, QUICK)]) == [[(0, 9, 3, 1)], [], [(0, 9, 1, 2)]]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9), st.sampled_from([QUICK, OTHER])), min_size=1))
def test_what_is_joined_covers_all_and_lies_apart(drawn: list[Row]) -> None:
    rows = [(start, start + length, bits) for start, length, bits in drawn]
    (found,) = exchanges(rows)
    assert all(before[1] < after[0] for before, after in pairwise(found))
    for start, end, bits in rows:
        assert any(a <= start and end <= b and bits & told for a, b, told, _ in found)


def test_what_takes_no_time_is_left_out_and_what_has_no_bits_but_not_what_is_beside() -> None:
    assert exchanges([(5, 5, QUICK), (7, 9, 0)], beside=[[(8, 8, OTHER)]]) == [[(8, 8, OTHER, NO_SEGMENT)]]


def test_what_is_beside_is_joined_like_the_rest_and_has_no_peer() -> None:
    assert exchanges([(5, 9, QUICK)], beside=[[(0, 5, OTHER)]]) == [[(0, 9, QUICK | OTHER, NO_SEGMENT)]]


@pytest.mark.parametrize(("owner", "segment"), [(0, 1), (1, NO_SEGMENT), (2, 4), (-1, NO_SEGMENT)])
def test_a_peer_is_the_other_ends_segment_of_the_same_number(owner: int, segment: int) -> None:
    """Owner 0 has the steps 0, 1 and 2, owner 1 the step 0, and owner 2 the steps 1 and 2."""
    numbers, offsets = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 3, 4, 6])
    one = np.zeros(1, np.int32)
    offsets_of_runs, spans = np.array([0, 0, 1, 1, 1, 1, 1]), (np.zeros(6, np.int64), np.full(6, 9))
    rows = Rows(offsets_of_runs, one, one, one + np.int32(1), *spans, np.array([3]), np.array([5]))
    others = Counterparts(np.array([owner]), numbers, offsets)
    found = joined(rows, one + OTHER, others, intervals([[]] * 6), quick=QUICK, at_once=0.1)
    assert found.peers.tolist() == [segment]


def gaps(opens: int, closes: int, *rows: Row) -> list[tuple[int, int, int, int]]:
    found = gaps_between(intervals([list(rows)]), np.array([opens]), np.array([closes]))
    assert found.lengths.tolist() == (found.ends - found.starts).tolist()
    assert found.segments.tolist() == [0] * found.starts.size
    return list(zip(*(column.tolist() for column in found[1:5]), strict=True))


def test_gaps_know_what_is_around_them() -> None:
    rows = [(3, 5, 1), (8, 9, 2)]
    assert gaps(0, 12, *rows) == [(0, 3, 0, 1), (5, 8, 1, 2), (9, 12, 2, 0)]
    assert gaps(3, 9, *rows) == [(5, 8, 1, 2)]


def test_a_segment_without_intervals_is_one_gap() -> None:
    assert gaps(0, 12) == [(0, 12, 0, 0)]
    assert gaps(12, 12) == []


def test_gaps_are_of_one_sort_with_the_same_around_them_in_segments_of_one_sort() -> None:
    rows = [(3, 5, 1), (8, 9, 1)]
    found = gaps_between(intervals([rows, rows, rows[:1]]), np.zeros(3, np.int64), np.full(3, 12))
    numbers, codes = sorts(found, np.array([0, 1, 0]), 4)
    expected = [0 + 1, 4 + 1, 4 + 0, 16 + 1, 20 + 1, 20 + 0, 0 + 1, 4 + 0]
    assert codes[numbers].tolist() == expected
    assert sorted(codes) == sorted(set(expected))
