"""A silence is long beside what is usual, whatever the parts of time that it is measured in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.step_division.kernels import long_silences

PART = 10


def busy_in(parts: list[int], until: int) -> Integers:
    """Return the table of one row that is busy in some parts."""
    table = np.full((1, until + 1), -1, np.int64)
    table[0, parts] = parts
    return table


def went_on(
    busy: list[int], now: int, *, latest_since: int = 99, latest_part: int = 99, anew: Sequence[int] = ()
) -> int:
    """Return where a row goes on that is busy in some parts, and begins anew in some of them."""
    begins = np.zeros((1, now + 1), np.bool_)
    begins[0, list(anew)] = True
    return int(
        long_silences.last_long_silence(busy_in(busy, now), np.array([now]), 5, 2.0, latest_since, latest_part, begins)[
            0
        ][0]
    )


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
    [
        ([8, 9], False),
        ([8, 9, 8], True),
        ([8, 9, 6], False),
        ([13, 13, 14], True),
        ([8, 8, 8, 13], True),
        ([8, 8, 8, 14], False),
    ],
    ids=["two", "three", "one is a quarter shorter", "longer", "longer by no long silence", "longer by one"],
)
def test_those_that_come_again_and_again_are_pauses(lengths: list[int], pauses: bool) -> None:
    """Each after thirteen busy parts."""
    begins, busy = between(lengths, 13)
    assert went_on(busy, busy[-1]) == (-1 if pauses else begins[-1])


@pytest.mark.parametrize(
    ("count", "anew", "found"),
    [(4, [], None), (4, [4], 4), (4, [1], None), (4, [1, 2], 4), (3, [1], 3)],
    ids=["none", "the last", "the first: three are left", "two of four", "one of three"],
)
def test_what_begins_anew_is_no_pause_and_nothing_like_one(count: int, anew: list[int], found: int | None) -> None:
    """Silences of eight parts, counted from one; three of them are pauses."""
    begins, busy = between([8] * count, 10)
    went = went_on(busy, busy[-1], anew=[begins[i] for i in anew])
    assert went == (begins[found] if found else begins[1] if anew else -1)


def between(lengths: list[int], busy: int) -> tuple[list[int], list[int]]:
    """Return where a row goes on after silences, from its beginning on, and all parts that it is busy in."""
    begins = np.cumsum([0, *(busy - 1 + length for length in lengths)]).tolist()
    return begins, [part for begin in begins for part in range(begin, begin + busy)]


@pytest.mark.parametrize(("at", "much", "found"), [(33, 11, True), (33, 10, False), (24, 11, True), (23, 11, False)])
def test_who_begins_anew_gets_more_one_way_than_ever(at: int, much: int, found: bool) -> None:
    """Five at other times; others of its group may be a few parts ahead."""
    table = busy_in([*range(21), *range(33, 60)], 59)
    one_way = np.full((1, 60), 5)
    one_way[0, at] = much
    begins = long_silences.begins_anew(table, one_way, np.zeros(1, np.int64), np.array([True]), 10)
    assert begins[0].any() == found
    assert not found or begins[0, 33]


@pytest.mark.parametrize(("until", "found"), [(10, False), (11, True)])
def test_who_is_never_seen_at_work_begins_nothing(until: int, found: bool) -> None:
    """What goes one way in the ten parts after a silence, or after the beginning, may be the beginning's."""
    table = busy_in([*range(until), *range(23, 33)], 32)
    one_way = np.where(table >= 0, 5, 0)
    one_way[0, 23] = 11
    assert long_silences.begins_anew(table, one_way, np.zeros(1, np.int64), np.array([True]), 10)[0, 23] == found


@pytest.mark.parametrize(("silent", "replicated", "found"), [(19, False, False), (20, False, True), (20, True, False)])
def test_where_no_weights_would_be_seen_long_silences_are_thought_to_be_restarts(
    silent: int, replicated: bool, found: bool
) -> None:
    table = busy_in([*range(21), *range(20 + silent, 60)], 59)
    begins = long_silences.begins_anew(table, np.full((1, 60), 5), np.zeros(1, np.int64), np.array([replicated]), 10)
    assert begins[0, 20 + silent] == found


def test_each_group_tells_of_its_own_rows() -> None:
    table = np.concatenate([busy_in([*range(21), *range(33, 60)], 59)] * 3)
    one_way = np.full((2, 60), 5)
    one_way[1, 33] = 50
    begins = long_silences.begins_anew(table, one_way, np.array([0, 1, 1]), np.array([True, True]), 10)
    assert begins[:, 33].tolist() == [False, True, True]
    assert not np.delete(begins, [0, 33], axis=1).any()


@pytest.mark.parametrize(("until", "found"), [(46, -1), (47, 47)])
def test_what_is_not_over_is_one_of_them_while_it_does_not_last_longer(until: int, found: int) -> None:
    """Two silences of 6 parts."""
    busy = [part for begin in (0, 15, 30) for part in range(begin, begin + 10)]
    assert went_on(busy, until) == found


def test_the_last_counts_and_nobody_else() -> None:
    assert went_on([*range(11), *range(20, 30), *range(40, 50)], 49) == 40
    assert long_silences.last_long_silence(np.full((2, 9), -1, np.int64), np.full(2, 8), 5, 2.0, 9, 9)[0].tolist() == [
        -1,
        -1,
    ]


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
    table = long_silences.busy_until(starts, starts + lengths, offsets, rows, PART, until)
    first = min([until, *starts.tolist()]) // PART
    wanted = np.full(table.shape, -1)
    for one, start, length in ordered:
        place = (rows[one], start // PART - first)
        wanted[place] = max(wanted[place], (start + length) // PART - first)
    assert table.tolist() == wanted.tolist()
    assert table.shape[1] == max([until, *starts.tolist()]) // PART - first + 1
