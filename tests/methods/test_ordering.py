"""Transfers come out group by group, in order of time, whatever order equal starts came in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.methods import ordering

TRANSFERS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 3), st.integers(1, 3)), min_size=0, max_size=40
)


@given(TRANSFERS)
def test_groups_lie_together_in_order_of_time(transfers: list[tuple[int, int, int, int]]) -> None:
    table = np.array(transfers, dtype=np.int64).reshape(-1, 4)
    groups, starts, ends, sizes = (np.ascontiguousarray(column) for column in table.T)
    places = ordering.grouped(groups, 5, starts, ends, sizes)
    assert sorted(places) == list(range(len(table)))
    assert [tuple(row) for row in table[places]] == sorted(map(tuple, table))


@given(TRANSFERS)
def test_what_is_in_this_order_is_known_to_be(transfers: list[tuple[int, int, int, int]]) -> None:
    columns = np.array(transfers, dtype=np.int64).reshape(-1, 4).T
    assert ordering.ascending(*columns) == (transfers == sorted(transfers))
