"""What was sent early is put together with the rest where others show that they are one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.traffic.kernels.fragments import early_fragments, joined_sizes


def marked(*series: list[int], tolerance: float = 0.02, connections: int = 2) -> list[list[int]]:
    """Return the places of the transfers that begin another."""
    offsets = np.cumsum([0, *map(len, series)]).astype(np.int64)
    found = early_fragments(
        np.array([size for one in series for size in one], dtype=np.int64), offsets, tolerance, connections
    )
    early = found != np.arange(found.size)
    return [np.flatnonzero(early[low:high]).tolist() for low, high in pairwise(offsets.tolist())]


def test_nothing_has_no_pieces() -> None:
    assert marked() == []
    assert marked([], [500]) == [[], []]


def test_a_ring_that_was_begun_early_is_told_by_one_that_was_not() -> None:
    """4 MiB and the rest of a gather of 48 MB, as a collector with an idle timeout of 1 ms sees some and not others."""
    assert marked([4_253_696, 43_602_362, 47_856_058, 4_253_696, 43_602_362]) == [[0, 3]]


def test_what_no_other_has_whole_is_two() -> None:
    assert marked([4, 44, 4, 44]) == [[]]


def test_each_series_speaks_for_itself() -> None:
    assert marked([4, 44, 4, 44], [48]) == [[], []]


def test_a_buffer_is_met_again_and_nothing_that_is_smaller() -> None:
    assert marked([4, 44, 48, 4]) == [[0]]
    assert marked([4, 44, 48, 5]) == [[]]
    assert marked([4, 44, 48, 4, 3]) == [[0]]
    assert marked([4, 44, 48, 4, 3, 3]) == [[]]


@pytest.mark.parametrize(("early", "places"), [(49, [0]), (50, []), (51, [])])
def test_equal_halves_are_two_tensors(early: int, places: list[int]) -> None:
    assert marked([early, 100, 100 + early, early], tolerance=0) == [places]


@pytest.mark.parametrize(("early", "places"), [(2, []), (3, [0])])
def test_what_changes_a_size_by_less_than_the_tolerance_is_left_alone(early: int, places: list[int]) -> None:
    assert marked([early, 100 - early, 100, early]) == [places]


@pytest.mark.parametrize(("whole", "places"), [(1009, [0]), (1011, [])])
def test_the_whole_has_the_size_of_both(whole: int, places: list[int]) -> None:
    """Within half the tolerance, since sizes of one tensor differ by all of it at most."""
    assert marked([200, 800, whole, 200]) == [places]


@given(st.lists(st.integers(1, 20), max_size=40))
def test_no_piece_is_the_rest_of_two(sizes: list[int]) -> None:
    rest = early_fragments(np.array(sizes, dtype=np.int64), np.array([0, len(sizes)]), 0.02, 2)
    assert all(np.bincount(rest, minlength=1) <= 2)


def test_another_connection_sends_while_one_waits() -> None:
    """Of both halves of the micro-batches of a pipeline that is fed from both ends."""
    assert marked([4, 48, 44]) == [[]]
    assert marked([4, 48, 44, 4, 4, 44, 44]) == [[0, 3, 4]]
    assert marked([4, 48, 44, 4, 4, 44, 44], connections=1) == [[4]]


def test_no_more_wait_than_connections() -> None:
    assert marked([4, 4, 4, 44, 44, 44, 48]) == [[1, 2]]


def test_what_begins_another_is_joined_to_it() -> None:
    assert joined_sizes(np.array([4, 48, 44]), np.array([2, 1, 2])).tolist() == [0, 48, 48]
