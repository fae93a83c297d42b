"""A transfer belongs to the step of an endpoint that it begins in."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from step_rows import DP, EP, NOBODY, PP, ROWS, STEPS, Row, transfers

from llmprism_tasks.stages.diagnosis.own_work.kernels.step_spans import Steps, Transfers, carried


@given(ROWS, st.sampled_from([PP, DP, EP]))
def test_a_step_carries_what_begins_in_it(rows: list[Row], kind: int) -> None:
    laid = transfers(rows)
    for sends, owners in ((True, laid.senders), (False, laid.receivers)):
        counted = carried(laid, STEPS, laid.kinds == kind, owners)
        mine = [one for one in rows if one.kind == kind and one.sends == sends]
        assert list(counted) == [sum(one.size for one in mine if one.step == step) for step in range(3)]


def test_a_transfer_is_in_the_first_step_that_has_not_ended_before() -> None:
    """The first endpoint's steps are 10 to 20 and 20 to 30, the second's 12 to 15; the third has none."""
    steps = Steps(np.array([10, 20, 12]), np.array([20, 30, 15]), np.array([0, 0, 1]), np.array([0, 2, 3, 3]))
    starts = np.array([9, 10, 20, 21, 30, 31, 11, 12, 15, 16, 13])
    sizes = 2 ** np.arange(starts.size)
    ends = np.array([0, 1, 2]), np.array([2, 2, 2])
    laid = Transfers(starts, starts, sizes, np.array([0, 6, 10, 11]), *ends, np.zeros(3, np.int8))
    counted = carried(laid, steps, np.ones(3, np.bool_), laid.senders)
    assert list(counted) == [2**1 + 2**2, 2**3 + 2**4, 2**7 + 2**8]


def test_nothing_in_nothing_out() -> None:
    nothing = transfers([])
    assert carried(nothing, NOBODY, nothing.kinds == PP, nothing.senders).size == 0
