"""A job stood still by itself if others went on; where all fell silent together as never else, the collector did."""

from __future__ import annotations

import numpy as np
import pytest

from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.diagnosis.pauses.collector_hole import in_hole

S = 1_000_000_000
STEP_S = 4
SPAN = (np.array([40 * S]), np.array([52 * S]))
SILENCE = (np.array([40 * S]), np.array([11 * S]))
"""A job with steps of 4 s sends nothing for 11 s of a step of 12 s."""


def others(*, silent: tuple[float, float], every_s: float = 0.5, until_s: float = 100) -> Integers:
    """Return when others begin flows, but for one silence."""
    begun = np.arange(0, until_s, every_s)
    since, until = silent
    return (begun[(begun < since) | (begun > until)] * S).astype(np.int64)


def is_hole(begun: Integers) -> bool:
    (found,) = in_hole(begun, SPAN, SILENCE, STEP_S * S)
    return bool(found)


def test_the_collector_stopped_where_all_others_fell_silent_with_the_job():
    assert is_hole(others(silent=(41, 49.5)))


def test_who_goes_on_shows_that_the_collector_works():
    assert not is_hole(others(silent=(41, 41)))


@pytest.mark.parametrize(("lasts_s", "hole"), [(7.5, True), (6.4, False)])
def test_others_may_be_back_up_to_a_step_earlier_or_later(lasts_s, hole):
    assert is_hole(others(silent=(42.0, 42.0 + lasts_s - 0.5))) == hole


@pytest.mark.parametrize(("usual_s", "hole"), [(7, True), (9, False)])
def test_what_others_do_at_other_times_as_well_is_no_hole(usual_s, hole):
    begun = others(silent=(41, 49))
    pausing = begun[(begun < 70 * S) | (begun >= (70 + usual_s) * S)]
    assert is_hole(pausing) == hole


def test_holes_are_not_compared_with_each_other():
    begun = others(silent=(41, 48))
    begun = begun[(begun < 70 * S) | (begun > 78 * S)]
    spans = (np.array([40, 68]) * S, np.array([52, 80]) * S)
    silences = (np.array([40, 69]) * S, np.array([11, 10]) * S)
    assert in_hole(begun, spans, silences, STEP_S * S).all()


@pytest.mark.parametrize("flows", [0, 1])
def test_a_job_that_is_alone_shows_nothing_of_the_collector(flows):
    assert not is_hole(np.arange(flows) * S)
