"""Endpoints work in the silences between their bursts, and on the first micro-batch from its input to its output."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.methods import working
from llmprism_tasks.methods.working import NONE, Steps, Transfers

STEPS = Steps(np.array([0, 20, 0]), np.array([20, 40, 30]), np.array([0, 0, 1]))
"""Two steps of one endpoint, one of another."""

PP, DP, EP = range(3)


class Row(NamedTuple):
    """A transfer; its start and end are counted from its step's start."""

    step: int
    start: int
    end: int
    size: int
    kind: int
    sends: bool
    peer: int


def row(step: int, start: int, length: int, size: int, kind: int, sends: bool, peer: int) -> Row:
    begin = int(STEPS.starts[step]) + start
    return Row(step, begin, begin + length, size, kind, sends, peer)


ROWS = st.lists(
    st.builds(
        row,
        st.integers(0, 2),
        st.integers(0, 19),
        st.integers(0, 6),
        st.sampled_from([1, 20, 30]),
        st.sampled_from([PP, DP, EP]),
        st.booleans(),
        st.integers(5, 6),
    ),
    max_size=14,
).map(sorted)


def transfers(rows: list[Row]) -> Transfers:
    steps, starts, ends, sizes, kinds, sends, peers = zip(*rows, strict=True) if rows else [()] * 7
    whole = [np.array(column, dtype=np.int64) for column in (starts, ends, sizes)]
    own, other = (np.array(column, dtype=np.int32) for column in (steps, peers))
    return Transfers(*whole, np.array(kinds, dtype=np.int8), np.array(sends, dtype=np.bool_), other, own)


def kinds(burst: list[Row]) -> frozenset[int]:
    return frozenset(each.kind for each in burst)


def plain_silences(rows: list[Row], early: float) -> dict[int, list[int]]:
    """Return the silences of each step."""
    found: dict[int, list[int]] = defaultdict(list)
    for _, mine in groupby(rows, key=lambda one: STEPS.endpoints[one.step]):
        bursts: list[list[Row]] = []
        for one in mine:
            if bursts and one.start <= max(each.end for burst in bursts for each in burst):
                bursts[-1].append(one)
            else:
                bursts.append([one])
        sizes: dict[frozenset[int], list[int]] = defaultdict(list)
        for burst in bursts:
            sizes[kinds(burst)].append(sum(each.size for each in burst))
        for before, burst in zip([None, *bursts], bursts, strict=False):
            begins = int(STEPS.starts[burst[0].step])
            if before is not None:
                usual = np.mean(sizes[kinds(before)])
                ahead = sum(each.size for each in before) < early * usual
                if (ahead and before[0].step == burst[0].step) or any(each.kind == PP for each in before):
                    continue
                begins = max(begins, *(each.end for each in before))
            if burst[0].start > begins and all(each.kind != PP for each in burst):
                found[burst[0].step].append(burst[0].start - begins)
    return found


@given(ROWS, st.sampled_from([0.0, 0.1, 0.9]))
def test_silences_are_those_between_bursts_that_neither_went_ahead_nor_are_piped(rows: list[Row], early: float) -> None:
    length, squares, longest, count = working.silences(transfers(rows), STEPS, early=early, piped=PP)
    expected = plain_silences(rows, early)
    for step in range(STEPS.starts.size):
        assert count[step] == len(expected[step])
        assert length[step] == sum(expected[step])
        assert squares[step] == sum(silence**2 for silence in expected[step])
        assert longest[step] == max(expected[step], default=0)


def test_which_kind_of_a_burst_comes_first_says_nothing_of_whether_it_went_ahead() -> None:
    def counted(*overlapping: int) -> int:
        small = [row(0, at, 3, 2, kind, True, 5) for at, kind in enumerate(overlapping)]
        rows = [row(0, 5, 1, 30, EP, True, 5), row(0, 8, 1, 90, DP, True, 5), row(0, 14, 1, 90, DP, True, 5)]
        return int(working.silences(transfers(small + rows), STEPS, early=0.1, piped=PP)[3][0])

    assert counted(DP, EP) == counted(EP, DP)
    assert counted(DP) == counted(DP, EP) - 1  # a little of one kind is ahead; of both it is all there is


class Entry(NamedTuple):
    """What is known of the first micro-batch of a step."""

    input_ns: int
    begins_ns: int
    output_ns: int
    last: bool
    outputs: int
    together: int


def plain_entries(rows: list[Row], at_once: float) -> dict[int, Entry]:
    """Return the entry of each step that has an output."""
    real: dict[int, list[Row]] = defaultdict(list)
    for one in rows:
        least = STEPS.starts[one.step] + at_once * (STEPS.ends[one.step] - STEPS.starts[one.step])
        if one.kind != EP and not (one.kind == PP and one.sends and one.start < least):
            real[one.step].append(one)
    inputs = {step: next((r for r in mine if r.kind == PP and not r.sends), None) for step, mine in real.items()}
    firsts = {step: next((r for r in mine if r.kind == PP and r.sends), None) for step, mine in real.items()}
    found = {}
    for step, mine in real.items():
        others = [each for each in real if STEPS.endpoints[each] == STEPS.endpoints[step]]
        waits = [
            (came := inputs[each]) is not None and (left := firsts[each]) is not None and left.start >= came.end
            for each in others
        ]
        entered = inputs[step] if 2 * sum(waits) >= len(waits) else None
        outputs = [r for r in mine if r.kind == PP and r.sends and (entered is None or r.start >= entered.end)]
        if outputs:
            before = [r.end for r in mine if r.kind == DP and r.end <= outputs[0].start]
            found[step] = Entry(
                NONE if entered is None else entered.end,
                entered.end if entered is not None else max(before, default=int(STEPS.starts[step])),
                outputs[0].start,
                entered is not None and entered.peer == outputs[0].peer,
                len(outputs),
                sum(r.start < outputs[0].end for r in outputs),
            )
    return found


@given(ROWS, st.sampled_from([0.0, 0.2]), st.lists(st.booleans(), min_size=3, max_size=3))
def test_the_first_micro_batch_is_worked_on_from_its_input_to_its_output(
    rows: list[Row], at_once: float, wanted: list[bool]
) -> None:
    found = working.entries(transfers(rows), STEPS, np.array(wanted), piped=PP, synchronising=DP, at_once=at_once)
    expected = plain_entries(rows, at_once)
    for step in range(STEPS.starts.size):
        if wanted[step] and step in expected:
            assert Entry(*(column[step] for column in found)) == expected[step]
        else:
            assert found.outputs[step] == 0


def test_nothing_in_nothing_out() -> None:
    nobody = Steps(*(np.array([], dtype=np.int64) for _ in range(3)))
    none = np.array([], dtype=np.bool_)
    assert [part.size for part in working.silences(transfers([]), nobody, early=0.1, piped=PP)] == [0, 0, 0, 0]
    entered = working.entries(transfers([]), nobody, none, piped=PP, synchronising=DP, at_once=0.1)
    assert [part.size for part in entered] == [0] * 6
