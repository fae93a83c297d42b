"""What pairs and senders send in each step that single pairs show."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from handmade import MB, Row, every, flows, ring, settings

from llmprism_tasks.stages.step_division.joint import job_steps
from llmprism_tasks.stages.step_division.joint.shown_steps import ShownSteps, shown_steps

NICS = "abcd"
STEPS = 12
SENT = 80 * MB


def _steps(*more: Row) -> ShownSteps:
    """Return the steps of a ring that sends for a tenth of each second, with more records."""
    rows = [*ring(NICS, every(1000, count=STEPS, start=500), size=SENT), *more]
    joint = job_steps.steps_of_jobs(flows(rows).with_columns(job_id=pl.lit("j")), settings().rhythm)
    (shown,) = shown_steps(joint)
    return shown


def test_each_step_but_the_first_has_its_bytes() -> None:
    shown = _steps()
    assert shown.steps.tolist() == list(range(STEPS))
    assert shown.by_pair() == pytest.approx(np.full((4, STEPS - 1), SENT))
    assert shown.by_sender(shown.by_pair()) == pytest.approx(np.full((4, STEPS - 1), SENT))


@pytest.mark.parametrize(("until", "more"), [(4590, [50, 1000, 990, 0]), (5590, [0, 0, 0, 0])])
def test_a_record_of_two_steps_is_spread_over_its_time_and_a_copy_of_files_is_left_out(
    until: int, more: list[int]
) -> None:
    """Steps end at 600 ms of each second: the record begins 50 ms before the end of one, with 1 kB in a millisecond."""
    plain, shown = _steps(), _steps((2550, until, "a", "b", 1000 * (until - 2550)))
    row = shown.pairs["src_addr"].to_list().index("a")
    assert (shown.by_pair() - plain.by_pair())[row, 1:5] / 1000 == pytest.approx(more, abs=0.1)
    assert (shown.by_sender(shown.by_pair()) - shown.by_pair())[row] == pytest.approx(0)
