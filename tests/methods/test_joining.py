"""What overlaps is joined, and what is quick and follows at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.methods.joining import Intervals, joined
from llmprism_tasks.methods.stretches import in_order

QUICK, OTHER = 1, 2
Row = tuple[int, int, int]
"""Start, end, bits."""


def exchanges(*segments: list[Row]) -> list[list[tuple[int, int, int, int]]]:
    """Return start, end, bits and peer of what is joined at once within a tenth; peers are the numbers of the rows."""
    rows = [row for segment in segments for row in segment]
    offsets = np.cumsum([0, *map(len, segments)]).astype(np.int64)
    starts, ends = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    bits, peers = np.array([row[2] for row in rows], dtype=np.int32), np.arange(len(rows))
    found = joined(Intervals(offsets, starts, ends, bits, peers), in_order(offsets, starts, ends, peers), QUICK, 0.1)
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
