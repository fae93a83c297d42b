"""What transfers of one number have in common is what a plain loop finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.methods import totals

EDGE = 10
TRANSFERS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20), st.integers(0, 9), st.integers(-1, 4)))


def test_nothing_has_no_totals() -> None:
    none = np.empty(0, np.int64)
    assert totals.of_numbers(none, np.zeros(1, np.int64), none, none, none)[0].series.size == 0


@given(TRANSFERS)
def test_each_number_of_a_series_has_its_own(transfers: list[tuple[int, int, int, int]]) -> None:
    """Series, start, length, number; the size is the place, so that none is mistaken for another."""
    rows = sorted(transfers)
    series, starts, lengths, numbers = (np.array([row[i] for row in rows], np.int64) for i in range(4))
    sizes, ends = np.arange(1, len(rows) + 1), starts + lengths
    offsets = np.searchsorted(series, np.arange(5)).astype(np.int64)
    found, of = totals.of_numbers(numbers, offsets, starts, ends, sizes, edge=EDGE)
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
