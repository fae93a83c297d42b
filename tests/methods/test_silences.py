"""A silence is long beside what is usual, whatever the parts of time that it is measured in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.methods import silences

PART = 10


def went_on(busy: list[int], now: int, *, latest_since: int = 99, latest_part: int = 99) -> int:
    """Return where a row goes on that is busy in some parts."""
    table = np.full((1, now + 1), -1, np.int64)
    table[0, busy] = busy
    found = silences.last_long(table, now, 5, 2.0, latest_since, latest_part)
    return int(found[0])


@pytest.mark.parametrize(("until", "found"), [(15, -1), (16, 16)])
def test_it_lasts_for_more_than_some_parts(until: int, found: int) -> None:
    assert went_on([*range(11), *range(until, 20)], 19) == found


@pytest.mark.parametrize(("before", "found"), [(4, -1), (5, 11)])
def test_enough_must_have_been_seen_beside_it(before: int, found: int) -> None:
    assert went_on([*range(before + 1), 11], 11) == found


@pytest.mark.parametrize(("pause", "found"), [(6, 40), (7, -1)])
def test_it_is_twice_as_long_as_what_is_usual(pause: int, found: int) -> None:
    assert went_on([28 - 4 * pause, 28 - 3 * pause, 28 - 2 * pause, 28 - pause, 28, 40], 40) == found


def test_what_has_not_come_back_is_silent_until_now() -> None:
    assert went_on([*range(11)], 20) == 20
    assert went_on([*range(11)], 20, latest_part=19) == -1
    assert went_on([*range(11)], 20, latest_since=9) == -1


@pytest.mark.parametrize(
    ("lengths", "pauses"),
    [([8, 9], False), ([8, 9, 8], True), ([8, 9, 6], False), ([9, 9, 9], True), ([9, 10, 10], False)],
    ids=["two", "three", "one is a quarter shorter", "just below ten", "ten"],
)
def test_those_that_come_again_and_again_are_pauses_unless_they_are_as_long_as_restarts(
    lengths: list[int], pauses: bool
) -> None:
    """Each after ten busy parts; restarts take ten."""
    begins = np.cumsum([0, *(9 + length for length in lengths)]).tolist()
    busy = [part for begin in begins for part in range(begin, begin + 10)]
    assert went_on(busy, busy[-1]) == (-1 if pauses else begins[-1])


@pytest.mark.parametrize(("until", "found"), [(46, -1), (47, 47)])
def test_what_is_not_over_is_one_of_them_while_it_does_not_last_longer(until: int, found: int) -> None:
    """Two silences of 6 parts."""
    busy = [part for begin in (0, 15, 30) for part in range(begin, begin + 10)]
    assert went_on(busy, until) == found


def test_the_last_counts_and_nobody_else() -> None:
    assert went_on([*range(11), *range(20, 30), *range(40, 50)], 49) == 40
    assert silences.last_long(np.full((2, 9), -1, np.int64), 8, 5, 2.0, 9, 9).tolist() == [-1, -1]


TRANSFERS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 200), st.integers(0, 50)), max_size=30)


@given(TRANSFERS, st.integers(1, 250))
def test_parts_are_occupied_from_the_start_of_a_transfer_to_its_end(
    transfers: list[tuple[int, int, int]], until: int
) -> None:
    """Two series count for each row."""
    ordered = sorted(transfers)
    series, starts, lengths = (np.array([row[i] for row in ordered], np.int64) for i in range(3))
    offsets = np.searchsorted(series, np.arange(5)).astype(np.int64)
    rows = np.array([0, 1, 0, 1])
    table = silences.occupied(starts, starts + lengths, offsets, rows, PART, until)
    first = min([until, *starts.tolist()]) // PART
    wanted = np.full(table.shape, -1)
    for one, start, length in ordered:
        place = (rows[one], start // PART - first)
        wanted[place] = max(wanted[place], (start + length) // PART - first)
    assert table.tolist() == wanted.tolist()
    assert table.shape[1] == max([until, *starts.tolist()]) // PART - first + 1
