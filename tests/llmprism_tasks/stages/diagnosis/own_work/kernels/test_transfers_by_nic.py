"""Every endpoint has all of its transfers, in order of time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.diagnosis.own_work.kernels import transfers_by_nic

NUMBER = 4

SERIES = st.lists(
    st.tuples(
        st.integers(0, NUMBER - 1),
        st.integers(0, NUMBER - 1),
        st.integers(0, 9),
        st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=6).map(sorted),
    ).filter(lambda one: one[0] != one[1]),
    max_size=6,
)


@given(SERIES, st.lists(st.booleans(), min_size=NUMBER, max_size=NUMBER))
def test_endpoints_have_what_they_send_and_receive_in_order(
    series: list[tuple[int, int, int, list[tuple[int, int]]]], wanted: list[bool]
) -> None:
    transfers = [(start, start + length) for *_, times in series for start, length in times]
    offsets = np.cumsum([0, *(len(times) for *_, times in series)])
    starts, ends = np.array(transfers, dtype=np.int64).reshape(-1, 2).T
    senders, receivers, since = np.array([one[:3] for one in series], dtype=np.int64).reshape(-1, 3).T
    seen, bounds = transfers_by_nic.in_order(
        starts, ends, offsets, senders, receivers, since=since, wanted=np.array(wanted)
    )
    expected: list[list[tuple[int, int, int, int]]] = [[] for _ in range(NUMBER)]
    for i, (sender, receiver, first, _) in enumerate(series):
        for transfer in range(offsets[i], offsets[i + 1]):
            for received, (own, other) in enumerate(((sender, receiver), (receiver, sender))):
                if wanted[own] and starts[transfer] >= first:
                    expected[own].append((starts[transfer], ends[transfer], other, 2 * transfer + received))
    found = [list(seen[low:high]) for low, high in pairwise(bounds)]
    assert found == [[entry[3] for entry in sorted(entries)] for entries in expected]


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=30), st.integers(0, 2**40))
def test_times_that_do_not_fit_are_nearly_in_order(times: list[int], base: int) -> None:
    """A year of nanoseconds needs 55 bits: with 30 transfers, nothing is lost of it."""
    array = np.array(times) + base
    order = transfers_by_nic.time_order(array, np.arange(array.size))
    assert sorted(order) == list(range(array.size))
    assert (np.diff(array[order]) > -(2**6)).all()
    short = array % 2**55
    assert list(transfers_by_nic.time_order(short, np.arange(short.size))) == list(np.argsort(short, kind="stable"))


def test_only_the_places_asked_for_are_ordered() -> None:
    assert list(transfers_by_nic.time_order(np.array([9, 1, 5, 3]), np.array([0, 2, 3]))) == [3, 2, 0]
    assert not transfers_by_nic.time_order(np.array([9, 1]), np.array([], dtype=np.int64)).size
