"""Messages: records that add up to what is always sent are one, whatever a collector made of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.traffic.kernels.reassembly import begins, joined_messages, usual_sizes

WHOLE = 500_000
PAUSE = 20


def array(*values: int) -> Integers:
    return np.array(values, np.int64)


def first(sizes: list[int], starts: list[int] | None = None, usual: int = WHOLE) -> list[int]:
    """Say with which record each one's message begins: records of no length, 10 ns apart unless told."""
    times = array(*(starts or range(0, 10 * len(sizes), 10)))
    bounds = array(0, len(sizes))
    found = begins(times, times, array(*sizes), bounds, array(usual), same_size=0.02, longest_pause=PAUSE)
    return np.maximum.accumulate(np.where(found, np.arange(found.size), 0)).tolist()


@pytest.mark.parametrize(
    ("sizes", "usual"),
    [([5, 5, 9], 5), ([5, 5, 10], 0), ([100, 101, 102, 7], 101), ([1, 2, 3], 0), ([4], 4), ([3, 9, 3, 3, 3], 3)],
)
def test_the_usual_size_carries_more_than_half_of_the_bytes(sizes: list[int], usual: int) -> None:
    (found,) = usual_sizes(array(*sizes), array(0, len(sizes)), same_size=0.02)
    assert found == pytest.approx(usual, rel=0.02)


def test_records_that_add_up_to_the_usual_size_are_one_message() -> None:
    assert first([WHOLE, 200_000, 300_000, WHOLE]) == [0, 1, 1, 3]


@pytest.mark.parametrize(("last", "same"), [(90_000, True), (89_000, False), (110_000, True), (111_000, False)])
def test_they_add_up_to_within_two_hundredths(last: int, same: bool) -> None:
    assert first([400_000, last]) == [0, 0 if same else 1]


@pytest.mark.parametrize(("pause", "numbers"), [(PAUSE, [0, 0]), (PAUSE + 1, [0, 1])])
def test_a_long_pause_is_between_two_messages(pause: int, numbers: list[int]) -> None:
    assert first([200_000, 300_000], [0, pause]) == numbers


def test_of_a_series_without_a_usual_size_every_record_is_a_message() -> None:
    assert first([200_000, 300_000], usual=0) == [0, 1]


def test_what_does_not_add_up_stays_as_it_is_and_hides_nothing_after_it() -> None:
    assert first([100_000, 200_000, 300_000, 700_000]) == [0, 1, 1, 3]


cuts = st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=6), min_size=1, max_size=8)


@given(cuts)
def test_messages_that_were_cut_anywhere_are_found_again(shares: list[list[int]]) -> None:
    """Between messages nothing is sent for longer than the longest pause."""
    sizes: list[int] = []
    starts: list[int] = []
    expected: list[int] = []
    for number, parts in enumerate(shares):
        bounds = np.round(np.cumsum([0, *parts]) / sum(parts) * WHOLE).astype(int)
        expected += [len(sizes)] * len(parts)
        sizes += list(np.diff(bounds))
        starts += [10_000 * number + 10 * part for part in range(len(parts))]
    assert first(sizes, starts) == expected


def test_a_message_ends_with_the_last_of_its_records_and_has_all_of_their_bytes() -> None:
    first = np.array([True, False, False, True, True])
    ends, sizes = joined_messages(array(5, 9, 7, 8, 20), array(1, 2, 3, 4, 5), first)
    assert (ends.tolist(), sizes.tolist()) == ([9, 8, 20], [6, 4, 5])
