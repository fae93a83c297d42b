"""Of what is looked at of a group, the traffic counts whose steps explain most."""

from __future__ import annotations

import numpy as np
import pytest

from llmprism_tasks.stages.step_division.groups.pooled_traffic import Traffic
from llmprism_tasks.stages.step_division.groups.sample import Sample, likeliest
from llmprism_tasks.stages.step_division.groups.templates.levels import Steps


def steps(count: int, size: float, *, told: bool, ended: bool) -> Steps:
    """Return so many steps of one stream that moves so much in each."""
    times, like = np.arange(count), np.ones((count, 1), np.bool_)
    return Steps(np.array([size]), times, times, like, np.ones(count), 1.0, 1.0, told, ended)


@pytest.mark.parametrize(
    ("told", "ended", "chosen"), [(True, False, "all"), (False, True, "all"), (False, False, "pausing")]
)
def test_steps_that_explain_more_are_likelier_if_anything_tells_them(*, told: bool, ended: bool, chosen: str) -> None:
    """A slow link never pauses; without its pairs every other step seems to be one, as layers would, too."""
    none = np.zeros(0, np.int64)
    asked = {name: Sample(Traffic(*[none] * 6), none == 0, none == 0) for name in ("pausing", "all")}
    found = {
        id(asked["pausing"].traffic): steps(35, 2.0, told=told, ended=ended),
        id(asked["all"].traffic): steps(92, 1.0, told=told, ended=ended),
    }
    sample, best = likeliest(list(asked.values()), lambda traffic: found[id(traffic)])
    assert sample is asked[chosen]
    assert best is found[id(asked[chosen].traffic)]
