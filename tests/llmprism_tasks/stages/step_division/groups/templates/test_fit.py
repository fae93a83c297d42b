"""A template is made better by what it finds."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Traffic
from llmprism_tasks.stages.step_division.groups.templates.fit import SILENCES_PER_STEP, Fitting

MS = 1_000_000


def test_what_always_comes_between_two_segments_is_a_part_of_the_template() -> None:
    """A fifth of each step comes alone, with a silence before and after it."""
    starts = np.arange(40) * 100 * MS
    sizes = np.tile([80, 20], 20)
    one = np.zeros(40, np.int64)
    fitting = Fitting.of(Traffic(one, one, starts, starts + MS, starts + MS, sizes), RhythmSettings())
    found = fitting.fit(np.array([80.0]), SILENCES_PER_STEP)
    assert found is not None
    assert found.template == [100.0]
    assert found.whole.mean() > 0.9
