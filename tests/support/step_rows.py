"""Transfers of endpoints and their steps, a row each, as tests of what happens in steps write them."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from llmprism_tasks.stages.diagnosis.own_work.kernels.step_spans import Steps, Transfers

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


NOBODY = Steps(*(np.array([], dtype=np.int64) for _ in range(3)), np.array([0]))
"""No steps, of no endpoint."""
