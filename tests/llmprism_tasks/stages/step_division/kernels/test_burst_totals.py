"""What transfers of one number have in common is what a plain loop finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.step_division.kernels import burst_totals

EDGE = 10
TRANSFERS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20), st.integers(0, 9), st.integers(-1, 4)))


def test_nothing_has_no_totals() -> None:
    none = np.empty(0, np.int64)
    assert burst_totals.totals_by_number(none, np.zeros(1, np.int64), none, none, none)[0].series.size == 0


@given(TRANSFERS)
def test_each_number_of_a_series_has_its_own(transfers: list[tuple[int, int, int, int]]) -> None:
    """Series, start, length, number; the size is the place, so that none is mistaken for another."""
    rows = sorted(transfers)
    series, starts, lengths, numbers = (np.array([row[i] for row in rows], np.int64) for i in range(4))
    sizes, ends = np.arange(1, len(rows) + 1), starts + lengths
    offsets = np.searchsorted(series, np.arange(5)).astype(np.int64)
    found, of = burst_totals.totals_by_number(numbers, offsets, starts, ends, sizes, edge=EDGE)
    wanted = []
    for key in dict.fromkeys(zip(series.tolist(), numbers.tolist(), strict=True)):
        here = (series == key[0]) & (numbers == key[1])
        before = here & (starts < EDGE)
        if key[1] >= 0:
            span = (int(np.argmax(here)), starts[here].min(), ends[here].max(), sizes[here].sum())
            wanted.append((*key, *span, ends[before].max(initial=0), sizes[before].sum()))
    keys = list(zip(found.series.tolist(), found.number.tolist(), strict=True))
    assert [keys[row] if row >= 0 else -1 for row in of] == [
        key if key[1] >= 0 else -1 for key in zip(series.tolist(), numbers.tolist(), strict=True)
    ]
    assert list(zip(*(one.tolist() for one in found), strict=True)) == wanted


@given(TRANSFERS, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=4, max_size=4))
def test_an_owner_has_what_its_series_have(
    transfers: list[tuple[int, int, int, int]], owners: list[tuple[int, int]]
) -> None:
    rows = sorted(transfers)
    series, starts, lengths, numbers = (np.array([row[i] for row in rows], np.int64) for i in range(4))
    offsets = np.searchsorted(series, np.arange(5)).astype(np.int64)
    sizes = np.arange(1, len(rows) + 1)
    found, _ = burst_totals.totals_by_number(numbers, offsets, starts, starts + lengths, sizes, edge=EDGE)
    wanted = []
    for owner in range(3):
        own = [
            row for row in zip(*(one.tolist() for one in found), strict=True) for one in owners[row[0]] if one == owner
        ]
        for number in sorted({row[1] for row in own}):
            _, _, position, first, last, total, last_before, total_before = zip(
                *(row for row in own if row[1] == number), strict=True
            )
            ends = (max(last), sum(total), max(last_before), sum(total_before))
            wanted.append((owner, number, position[0], min(first), *ends))
    joined = burst_totals.totals_by_owner(found, np.array(owners, np.int64), 3)
    assert list(zip(*(one.tolist() for one in joined), strict=True)) == wanted
