"""Chains of waiting end at who has not waited."""

from __future__ import annotations

import numpy as np
import pytest

from llmprism_tasks.stages.timeline.kernels.longest_wait import NO_NIC, followed

Wait = tuple[int, int, int]
"""Who waited, for whom, and for how long."""


def whom(*waits: Wait, worth: float = 0, longest: int = 9) -> list[int]:
    """Return for whom each of six waited."""
    columns = (np.array([wait[i] for wait in waits], dtype=np.int64) for i in range(3))
    return followed(*columns, np.full(6, worth, np.float64), share=0.5, longest=longest).tolist()


def test_who_waits_for_nobody_has_nobody() -> None:
    assert whom() == [NO_NIC] * 6
    assert whom((1, 0, 5)) == [NO_NIC, 0, *[NO_NIC] * 4]


def test_a_chain_is_followed_to_its_source() -> None:
    assert whom((3, 2, 9), (2, 1, 9), (1, 0, 9))[1:4] == [0, 0, 0]


@pytest.mark.parametrize(("passed_on", "source"), [(5, 0), (4, 1)])
def test_it_ends_at_who_waited_for_less_than_a_good_part_of_the_time(passed_on: int, source: int) -> None:
    assert whom((2, 1, 10), (1, 0, passed_on))[2] == source


@pytest.mark.parametrize(("worth", "source"), [(10, 0), (11, 1)])
def test_what_is_not_worth_it_is_not_followed(worth: float, source: int) -> None:
    assert whom((2, 1, 10), (1, 0, 10), worth=worth)[2] == source


def test_two_that_wait_for_each_other_are_no_chain() -> None:
    assert whom((1, 2, 9), (2, 1, 9))[1:3] == [2, 1]
    assert whom((3, 1, 9), (1, 2, 9), (2, 1, 9))[3] == 2


def test_a_ring_of_three_ends_before_it_comes_back() -> None:
    assert whom((0, 1, 9), (1, 2, 9), (2, 0, 9))[:3] == [2, 0, 1]


def test_a_ring_that_does_not_come_back_to_who_waits_ends_at_the_longest_chain() -> None:
    ring = ((0, 1, 9), (1, 2, 9), (2, 0, 9))
    assert [whom((5, 0, 9), *ring, longest=links)[5] for links in (0, 1, 2, 3)] == [0, 1, 2, 0]


def test_waits_for_the_same_one_count_together_and_the_longest_tells() -> None:
    assert whom((3, 0, 4), (3, 1, 5), (3, 0, 4))[3] == 0
    assert whom((3, 1, 5), (3, 0, 5))[3] == 0


def test_chains_that_end_at_the_same_one_count_together() -> None:
    assert whom((3, 1, 4), (3, 2, 4), (3, 4, 6), (1, 0, 4), (2, 0, 4))[3] == 0
