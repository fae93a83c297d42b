"""A collective is complete when everybody has come, and bursts are never cut."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.intervals import Rows
from llmprism_tasks.stages.timeline.kernels.collective_rounds import Attendances, attendances, summaries

Transfer = tuple[int, int, int]
"""Start, length, size."""


def attended(members: list[list[list[Transfer]]], groups: list[int]) -> Attendances:
    """Return who took part in which collective; a member is a list of runs, each a series of its own, of transfers.

    The last series of all is not looked at.
    """
    runs = [sorted(run) for member in members for run in member if run]
    offsets = np.cumsum([0, *(sum(map(bool, member)) for member in members)]).astype(np.int64)
    starts, lengths, sizes = (np.array([row[i] for run in runs for row in run], dtype=np.int64) for i in range(3))
    bounds = np.cumsum([0, *map(len, runs)]).astype(np.int32)
    spans = np.zeros(len(members), np.int64), np.full(len(members), 999)
    series = np.arange(len(runs), dtype=np.int32)
    rows = Rows(offsets, series, bounds[:-1], bounds[1:], *spans, starts, starts + lengths)
    chosen = series < max(len(runs) - 1, 1)
    return attendances(rows, chosen, sizes, np.array(groups, dtype=np.int64), max(groups, default=-1) + 1)


def gathered(*groups: list[list[int]]) -> list[list[tuple[int, int]]]:
    """Return of each collective who was there, and how often; a group is a list of bursts, a burst of members."""
    members: dict[int, list[Transfer]] = {}
    of: dict[int, int] = {}
    for group, bursts in enumerate(groups):
        for burst, names in enumerate(bursts):
            for turn, name in enumerate(names):
                start = 100 * burst + 2 * turn
                members.setdefault(10 * group + name, []).append((start, 1, 1))
                members[10 * group + name].append((start, 100 * burst + 50 - start, 0))
                of[10 * group + name] = group
    names = sorted(members)
    left_out = [[[(0, 1, 1)]]]
    found = attended([[members[name]] for name in names] + left_out, [*(of[name] for name in names), -1])
    told = list(zip((names[member] for member in found.members), found.sizes.tolist(), strict=True))
    return [sorted(told[begin:end]) for begin, end in pairwise(found.offsets.tolist())]


@pytest.mark.parametrize(
    ("bursts", "found"),
    [
        ([[1, 2, 3], [3, 2, 1]], [[1, 2, 3], [1, 2, 3]]),
        ([[1], [2], [3, 1, 2]], [[1, 1, 2, 2, 3]]),
        ([[1, 2], [3], [1, 2, 3]], [[1, 2, 3], [1, 2, 3]]),
        ([[1, 2, 3, 1, 2, 3]], [[1, 1, 2, 2, 3, 3]]),
        ([[1, 2], [1, 2], [3]], [[1, 1, 2, 2, 3]]),
    ],
)
def test_bursts_gather_until_all_have_come(bursts: list[list[int]], found: list[list[int]]) -> None:
    assert gathered(bursts) == [sorted((one, names.count(one)) for one in set(names)) for names in found]


def test_what_comes_after_the_last_complete_collective_belongs_to_it() -> None:
    assert gathered([[1, 2], [2, 1], [2]]) == [[(1, 1), (2, 1)], [(1, 1), (2, 2)]]


def test_each_group_begins_anew_and_expects_its_own_members() -> None:
    assert gathered([[1, 2], [1]], [[1], [1]]) == [[(1, 2), (2, 1)], [(11, 1)], [(11, 1)]]


def stretches(member: list[list[Transfer]]) -> list[tuple[int, int, int]]:
    """Return start, end and size of what overlaps or touches, plainly."""
    found: list[tuple[int, int, int]] = []
    for start, length, size in sorted(row for run in member for row in run if row[1]):
        if found and start <= found[-1][1]:
            before = found.pop()
            found.append((before[0], max(before[1], start + length), before[2] + size))
        else:
            found.append((start, start + length, size))
    return found


def plainly(members: dict[int, list[tuple[int, int, int]]]) -> list[dict[int, tuple[int, int, int]]]:
    """Return the collectives of a group: of each member the first start, the last end and the sum of sizes."""
    rows = sorted((*row, name) for name, mine in members.items() for row in mine)
    collectives: list[list[tuple[int, int, int, int]]] = []
    over = -1
    for row in rows:
        if row[0] > over and (not collectives or len({one[3] for one in collectives[-1]}) == len(members)):
            collectives.append([])
        over = max(over, row[1])
        collectives[-1].append(row)
    if len(collectives) > 1 and len({one[3] for one in collectives[-1]}) < len(members):
        collectives[-2:] = [collectives[-2] + collectives[-1]]
    return [
        {
            name: (
                min(row[0] for row in rows if row[3] == name),
                max(row[1] for row in rows if row[3] == name),
                sum(row[2] for row in rows if row[3] == name),
            )
            for name in {row[3] for row in rows}
        }
        for rows in collectives
    ]


TRANSFERS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6), st.integers(1, 9)), max_size=8)
MEMBERS = st.lists(st.tuples(st.integers(-1, 2), st.lists(TRANSFERS, max_size=3)), max_size=8)


@given(MEMBERS)
def test_each_member_has_one_row_in_a_collective_with_all_that_it_did(
    drawn: list[tuple[int, list[list[Transfer]]]],
) -> None:
    found = attended([*(member for _, member in drawn), [[(0, 1, 1)]]], [*(group for group, _ in drawn), -1])
    expected = []
    for group in range(3):
        mine = {i: stretches(member) for i, (of, member) in enumerate(drawn) if of == group}
        collectives = plainly({name: rows for name, rows in mine.items() if rows})
        expected += [(group, number, one) for number, one in enumerate(collectives)]
    rows = zip(*(column.tolist() for column in found[6:]), strict=True)
    told = dict(zip(range(found.members.size), rows, strict=True))
    for i, (begin, end) in enumerate(pairwise(found.offsets.tolist())):
        group, number, one = expected[i]
        assert (found.groups[i], found.numbers[i]) == (group, number)
        assert {int(found.members[row]): told[row] for row in range(begin, end)} == one
        latest = max(start for start, _, _ in one.values())
        assert found.latest[i] == latest
        assert found.last[i] == min(name for name, row in one.items() if row[0] == latest)
    assert found.groups.size == len(expected)


@given(MEMBERS, st.lists(st.booleans(), min_size=9, max_size=9), st.lists(st.booleans(), min_size=99, max_size=99))
def test_members_are_summed_up_by_their_first_their_last_and_the_collective_that_they_came_earliest_to(
    drawn: list[tuple[int, list[list[Transfer]]]], apart: list[bool], kinds: list[bool]
) -> None:
    met = attended([*(member for _, member in drawn), [[(0, 1, 1)]]], [*(group for group, _ in drawn), -1])
    flags = np.array(kinds[: met.groups.size], dtype=np.bool_), np.array(apart[: len(drawn) + 1], dtype=np.bool_)
    rows: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for collective, bounds in enumerate(pairwise(met.offsets.tolist())):
        for row in range(*bounds):
            member = int(met.members[row])
            key = (1, row) if apart[member] else (0, member, int(kinds[collective]))
            rows.setdefault(key, []).append((row, collective))
    found = list(zip(*(column.tolist() for column in summaries(met, *flags)), strict=True))
    for told, (_, mine) in zip(found, sorted(rows.items()), strict=True):
        leads = [int(met.latest[collective] - met.starts[row]) for row, collective in mine]
        most = leads.index(max(leads))
        last = max(int(met.ends[row]) for row, _ in mine)
        assert told == (mine[0][0], *mine[-1], mine[most][1], leads[most], last)
