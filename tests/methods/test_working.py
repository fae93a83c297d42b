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

STEPS = Steps(np.array([0, 20, 0]), np.array([20, 40, 30]), np.array([0, 0, 1]), np.array([0, 2, 3, 3, 3, 3, 3, 3]))
"""Two steps of one endpoint, one of another; those that these exchange with have none."""

ALL = np.ones(7, np.bool_)

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


def in_time(one: Row) -> tuple[int, int, int, int]:
    return one.step, one.start, one.end, one.peer


ROWS = st.lists(
    st.builds(
        row,
        st.integers(0, 2),
        st.integers(1, 19),
        st.integers(0, 6),
        st.sampled_from([1, 20, 30]),
        st.sampled_from([PP, DP, EP]),
        st.booleans(),
        st.integers(5, 6),
    ),
    max_size=14,
).map(lambda rows: sorted(rows, key=in_time))


def transfers(rows: list[Row]) -> Transfers:
    """Lay them pair by pair, of each in order of the starts."""
    pairs: dict[tuple[int, int, int], list[Row]] = defaultdict(list)
    for one in rows:
        ends = (int(STEPS.endpoints[one.step]), one.peer)
        pairs[(*(ends if one.sends else ends[::-1]), one.kind)].append(one)
    laid = [(one.start, one.end, one.size) for mine in pairs.values() for one in sorted(mine, key=in_time)]
    offsets = np.cumsum([0, *(len(mine) for mine in pairs.values())])
    senders, receivers, of_kind = np.array([*pairs], dtype=np.int64).reshape(-1, 3).T
    return Transfers(
        *np.array(laid, dtype=np.int64).reshape(-1, 3).T, offsets, senders, receivers, of_kind.astype(np.int8)
    )


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
    length, squares, longest, count = working.silences(transfers(rows), STEPS, ALL, early=early, piped=PP)
    expected = plain_silences(rows, early)
    for step in range(STEPS.starts.size):
        assert count[step] == len(expected[step])
        assert length[step] == sum(expected[step])
        assert squares[step] == sum(silence**2 for silence in expected[step])
        assert longest[step] == max(expected[step], default=0)


def test_which_kind_of_a_burst_comes_first_says_nothing_of_whether_it_went_ahead() -> None:
    def counted(*overlapping: int) -> int:
        small = [row(0, at, 3, 2, kind, True, 5) for at, kind in enumerate(overlapping, 1)]
        rows = [row(0, 6, 1, 30, EP, True, 5), row(0, 9, 1, 90, DP, True, 5), row(0, 15, 1, 90, DP, True, 5)]
        return int(working.silences(transfers(small + rows), STEPS, ALL, early=0.1, piped=PP)[3][0])

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


@given(ROWS, st.sampled_from([0.0, 0.2]), st.lists(st.booleans(), min_size=2, max_size=2))
def test_the_first_micro_batch_is_worked_on_from_its_input_to_its_output(
    rows: list[Row], at_once: float, wanted: list[bool]
) -> None:
    some = np.array([*wanted, *ALL[2:]])
    found = working.entries(transfers(rows), STEPS, some, piped=PP, synchronising=DP, at_once=at_once)
    expected = plain_entries(rows, at_once)
    for step in range(STEPS.starts.size):
        if wanted[STEPS.endpoints[step]] and step in expected:
            assert Entry(*(column[step] for column in found)) == expected[step]
        else:
            assert found.outputs[step] == 0


@given(ROWS, st.sampled_from([PP, DP, EP]))
def test_a_step_carries_what_begins_in_it(rows: list[Row], kind: int) -> None:
    laid = transfers(rows)
    for sends, owners in ((True, laid.senders), (False, laid.receivers)):
        counted = working.carried(laid, STEPS, laid.kinds == kind, owners)
        mine = [one for one in rows if one.kind == kind and one.sends == sends]
        assert list(counted) == [sum(one.size for one in mine if one.step == step) for step in range(3)]


def test_a_transfer_is_in_the_first_step_that_has_not_ended_before() -> None:
    """The first endpoint's steps are 10 to 20 and 20 to 30, the second's 12 to 15; the third has none."""
    steps = Steps(np.array([10, 20, 12]), np.array([20, 30, 15]), np.array([0, 0, 1]), np.array([0, 2, 3, 3]))
    starts = np.array([9, 10, 20, 21, 30, 31, 11, 12, 15, 16, 13])
    sizes = 2 ** np.arange(starts.size)
    ends = np.array([0, 1, 2]), np.array([2, 2, 2])
    laid = Transfers(starts, starts, sizes, np.array([0, 6, 10, 11]), *ends, np.zeros(3, np.int8))
    counted = working.carried(laid, steps, np.ones(3, np.bool_), laid.senders)
    assert list(counted) == [2**1 + 2**2, 2**3 + 2**4, 2**7 + 2**8]
    silent = working.silences(laid, steps, np.array([True, False, False]), early=0.1, piped=-1)
    assert list(silent[0]) == [10, 10, 0]


def test_nothing_in_nothing_out() -> None:
    nobody = Steps(*(np.array([], dtype=np.int64) for _ in range(3)), np.array([0]))
    none = np.array([], dtype=np.bool_)
    assert [part.size for part in working.silences(transfers([]), nobody, none, early=0.1, piped=PP)] == [0, 0, 0, 0]
    entered = working.entries(transfers([]), nobody, none, piped=PP, synchronising=DP, at_once=0.1)
    assert [part.size for part in entered] == [0] * 6
