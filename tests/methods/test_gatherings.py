"""A gathering is complete when everybody has come, and bursts are never cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.methods.gatherings import attendances, gatherings, in_turn, summaries


def numbered(*series: list[list[int]]) -> list[int]:
    """Return the gathering of each burst; a series is a list of bursts, a burst of members."""
    rows = [(member, burst) for one in series for burst, members in enumerate(one) for member in members]
    members, bursts = (np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1))
    offsets = np.cumsum([0, *(sum(map(len, one)) for one in series)]).astype(np.int64)
    numbers = gatherings(members, bursts, offsets).tolist()
    return [numbers[i] for i in range(len(rows)) if i == 0 or i in offsets or bursts[i] != bursts[i - 1]]


@pytest.mark.parametrize(
    ("bursts", "found"),
    [
        ([[1, 2, 3], [3, 2, 1]], [0, 1]),
        ([[1], [2], [3, 1, 2]], [0, 0, 0]),
        ([[1, 2], [3], [1, 2, 3]], [0, 0, 1]),
        ([[1, 2, 3, 1, 2, 3]], [0]),
        ([[1, 2], [1, 2], [3]], [0, 0, 0]),
    ],
)
def test_bursts_gather_until_all_have_come(bursts: list[list[int]], found: list[int]) -> None:
    assert numbered(bursts) == found


def test_what_comes_after_the_last_complete_gathering_belongs_to_it() -> None:
    assert numbered([[1, 2], [2, 1], [2]]) == [0, 1, 1]


def test_each_series_begins_anew_and_expects_its_own_members() -> None:
    assert numbered([[1, 2], [1]], [[1], [1]]) == [0, 0, 0, 1]


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=1, max_size=12))
def test_all_take_part_in_each_gathering(bursts: list[list[int]]) -> None:
    found = numbered(bursts)
    expected = {member for burst in bursts for member in burst}
    for number in set(found):
        assert {m for burst, of in zip(bursts, found, strict=True) if of == number for m in burst} == expected


RECORDS = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 20), st.integers(0, 9)), min_size=1), max_size=4
)


@given(RECORDS)
def test_each_member_has_one_row_in_a_gathering_with_all_that_it_did(series: list[list[tuple[int, int, int]]]) -> None:
    rows = [(number, *row) for number, some in enumerate(series) for row in sorted(some, key=lambda row: row[1])]
    who, start, size = (np.array([row[i] for row in rows], dtype=np.int64) for i in (1, 2, 3))
    offsets = np.cumsum([0, *map(len, series)]).astype(np.int64)
    found = gatherings(who, start, offsets)
    met = attendances(found, who, offsets, start, start + size, size)
    told = [
        (series, number, *(int(column[row]) for column in (met.members, met.starts, met.ends, met.sizes)))
        for i, (series, number) in enumerate(zip(met.series.tolist(), met.numbers.tolist(), strict=True))
        for row in range(met.offsets[i], met.offsets[i + 1])
    ]
    expected: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for (of, member, begin, length), number in zip(rows, found.tolist(), strict=True):
        expected.setdefault((of, number, member), []).append((begin, length))
    assert sorted(told) == sorted(
        (*key, min(b for b, _ in some), max(b + n for b, n in some), sum(n for _, n in some))
        for key, some in expected.items()
    )
    for i in range(met.numbers.size):
        came = [(-row[3], row[2]) for row in told if row[:2] == (met.series[i], met.numbers[i])]
        assert (-met.latest[i], met.last[i]) == min(came)
    assert list(zip(met.series.tolist(), met.numbers.tolist(), strict=True)) == sorted({key[:2] for key in expected})


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3), st.integers(0, 9))))
def test_a_key_is_summed_up_by_its_first_its_last_and_its_largest_row(rows: list[tuple[int, int, int]]) -> None:
    keys, values, ends = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    mine = [[i for i, row in enumerate(rows) if row[0] == key] for key in sorted({row[0] for row in rows})]
    found = summaries(keys, values, ends)
    assert found.first.tolist() == [some[0] for some in mine]
    assert found.last.tolist() == [some[-1] for some in mine]
    assert found.most.tolist() == [max(some, key=lambda i: (rows[i][1], -i)) for some in mine]
    assert found.ends.tolist() == [max(rows[i][2] for i in some) for some in mine]


@given(st.lists(st.tuples(st.integers(-1, 2), st.lists(st.tuples(*[st.integers(0, 9)] * 3))), max_size=5))
def test_each_groups_members_take_turns_and_a_burst_ends_when_all_in_it_has(
    drawn: list[tuple[int, list[tuple[int, int, int]]]],
) -> None:
    offsets = np.cumsum([0, *(len(rows) for _, rows in drawn)])
    starts, lengths, sizes = (np.array([row[i] for _, rows in drawn for row in rows], dtype=np.int64) for i in range(3))
    found = in_turn(offsets, starts, starts + lengths, sizes, np.array([group for group, _ in drawn], np.int64), 3)
    told = list(zip(*(column.tolist() for column in found[1:]), strict=True))
    bursts = 0
    for group in range(3):
        mine = told[found.offsets[group] : found.offsets[group + 1]]
        members = [(number, rows) for number, (of, rows) in enumerate(drawn) if of == group]
        rows = [(number, start, start + length, size) for number, some in members for start, length, size in some]
        assert [(who, *row) for who, _, *row in mine] == sorted(rows, key=lambda row: row[1])
        for i, (_, burst, start, *_) in enumerate(mine):
            bursts += i == 0 or start > max(row[3] for row in mine[:i])
            assert burst == bursts - 1
