"""Of the members that fell silent in a long step, the first tells at which place of the step that was."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.diagnosis.step_times import duration_model
from llmprism_tasks.stages.diagnosis.step_times.course import Steps
from llmprism_tasks.stages.diagnosis.step_times.first_silence import first_silences

QUARTER, COUNT, SLOW = 100, 12, 8
"""Steps of four quarters, of which one is longer."""


def silent_since(*, held: str = "ab", after: int = 2, lasts: int = 300) -> int:
    """Return when the first fell silent in the long step, after its start.

    Two replicas, `ab` and `cd`, send in the middle of each quarter; those that are held do not after some quarters.
    """
    lengths = np.full(COUNT, 4 * QUARTER)
    lengths[SLOW] += lasts
    ends: Integers = np.cumsum(lengths)
    starts = ends - lengths
    rows = [
        (addr, int(start) + number * QUARTER + 50 + (lasts if is_held and number >= after else 0))
        for addr in "abcd"
        for step, start in enumerate(starts)
        for number in range(4)
        for is_held in [step == SLOW and addr in held]
    ]
    flows = pl.DataFrame(rows, schema=["src_addr", "flow_start_ns"], orient="row").sort("flow_start_ns")
    model = duration_model.fitted(lengths)
    assert model is not None
    steps = Steps("j", np.arange(COUNT), starts, ends, np.ones(COUNT, np.bool_), model)
    slow = np.arange(COUNT) == SLOW
    since = first_silences(steps, slow, ~slow, flows.with_columns(flow_end_ns=pl.col("flow_start_ns") + 10))
    assert (since[~slow] == ends[~slow]).all()
    return int(since[SLOW] - starts[SLOW])


@pytest.mark.parametrize("held", ["abcd", "ab", "a"])
@pytest.mark.parametrize(("after", "since"), [(1, 60), (2, 160), (3, 260)])
def test_it_is_the_first_of_those_that_are_held(held: str, after: int, since: int) -> None:
    """The others go on until the end of the step, and wait there."""
    assert silent_since(held=held, after=after) == since


def test_who_stops_between_two_steps_stopped_in_the_one_before() -> None:
    assert silent_since(after=0) == -40


def test_where_all_go_on_nobody_stopped() -> None:
    assert silent_since(held="", lasts=40) == 440
