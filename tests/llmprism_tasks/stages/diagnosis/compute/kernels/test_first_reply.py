"""A reply is the first transfer that leaves after what came first in a span is there as a whole."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.diagnosis.compute.kernels import first_reply
from llmprism_tasks.stages.timeline.kernels.step_lookup import Series

Transfer = tuple[int, int]
TRANSFERS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda one: (one[0], sum(one))), max_size=6)
SERIES = st.lists(TRANSFERS.map(sorted), max_size=2)
OWNERS = st.tuples(SERIES, SERIES, st.lists(st.integers(1, 12), max_size=4), st.booleans())
"""Of each owner: what comes in one or two series, what leaves, how long its spans are, one after the other, and whether
what leaves comes back."""

Owner = tuple[list[list[Transfer]], list[list[Transfer]], list[int], bool]


def array(values: list[int]) -> Integers:
    return np.array(values, np.int64)


def found(owners: list[Owner]) -> list[tuple[int, int]]:
    rows: list[Transfer] = []
    series: tuple[list[Transfer], ...] = ([], [])
    numbers: tuple[list[int], ...] = ([], [])
    for owner, (came, left, *_) in enumerate(owners):
        for side, several in enumerate((came, left)):
            for one in several:
                series[side].append((len(rows), len(rows) + len(one)))
                numbers[side].append(owner)
                rows += one
    sides = [
        Series(array([begin for begin, _ in bounds]), array([until for _, until in bounds]), array(owned))
        for bounds, owned in zip(series, numbers, strict=True)
    ]
    spans = [span for _, _, lengths, _ in owners for span in spans_of(lengths)]
    first, took = first_reply.first_replies(
        array([start for start, _ in rows]),
        array([end for _, end in rows]),
        *sides,
        array([int(returns) for *_, returns in owners]),
        (array([start for start, _ in spans]), array([end for _, end in spans])),
        np.cumsum([0, *(len(lengths) for _, _, lengths, _ in owners)]),
    )
    return list(zip(first.tolist(), took.tolist(), strict=True))


def spans_of(lengths: list[int]) -> list[Transfer]:
    """Lay spans end to end, with a gap of one."""
    starts = np.cumsum([2, *(length + 1 for length in lengths)]).tolist()
    return [(start, start + length) for start, length in zip(starts, lengths, strict=False)]


def plain(came: list[list[Transfer]], left: list[list[Transfer]], span: Transfer, *, returns: bool) -> tuple[int, int]:
    within = sorted(one for some in came for one in some if span[0] <= one[0] < span[1])
    if not within:
        return first_reply.NO_REPLY, first_reply.NO_REPLY
    whole = max(end for start, end in within if start <= within[0][1])
    until = min(span[1], within[-1][0]) if returns else span[1]
    after = [start - whole for some in left for start, _ in some if whole < start < until]
    return within[0][0], min(after, default=first_reply.NO_REPLY)


@given(st.lists(OWNERS, max_size=3))
def test_each_span_is_answered_as_by_the_definition(owners: list[Owner]) -> None:
    wanted = [
        plain(came, left, span, returns=returns)
        for came, left, lengths, returns in owners
        for span in spans_of(lengths)
    ]
    assert found(owners) == wanted


def test_records_side_by_side_are_one_message() -> None:
    assert found([([[(2, 5)], [(4, 9), (10, 11)]], [[(7, 8), (12, 13)]], [30], False)]) == [(2, 3)]


@pytest.mark.parametrize(("last", "took"), [(12, first_reply.NO_REPLY), (13, 2)])
def test_what_leaves_after_all_has_come_back_is_of_the_next_step(last: int, took: int) -> None:
    """The first stage answers a gradient by an activation, whose gradient comes in the same step."""
    assert found([([[(6, 10), (last, 14)]], [[(3, 4), (12, 13)]], [30], True)]) == [(6, took)]
