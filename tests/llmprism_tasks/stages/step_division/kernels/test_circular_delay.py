"""Where series come in the rhythm of their leader."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.step_division.kernels.circular_delay import typical_phases

PERIOD = 1000.0


def phases_of(times: list[int], leading: list[int], paces: list[float]) -> tuple[float, list[float]]:
    """Return the typical phase of one series, and the pace that each of its times is measured by."""
    offsets, led = np.array([0, len(times)]), np.array([0, len(leading)])
    typical, pace = typical_phases(
        np.array(times), offsets, np.zeros(1, np.int64), np.array(leading), led, np.array(paces)
    )
    return float(typical[0]), pace.tolist()


def test_a_series_that_just_precedes_its_leader_is_not_almost_a_turn_late() -> None:
    typical, _ = phases_of([990, 1990, 2990], [0, 1000, 2000, 3000], [PERIOD] * 4)
    assert typical == pytest.approx(-0.01)


def test_half_a_turn_early_and_half_a_turn_late_are_neighbours() -> None:
    typical, _ = phases_of([499, 1501, 2501, 3499], [0, 1000, 2000, 3000, 4000], [PERIOD] * 5)
    assert abs(typical) == pytest.approx(0.5)


@pytest.mark.parametrize(("time", "pace"), [(-5, 10), (49, 10), (50, 20), (99, 20), (250, 30)])
def test_the_pace_is_that_of_the_leader_s_nearest_and_of_two_as_near_of_the_later(time: int, pace: float) -> None:
    assert phases_of([time], [0, 100, 200], [10.0, 20.0, 30.0])[1] == [pace]


moments = st.lists(st.integers(0, 10**6), min_size=1, max_size=20)


@given(st.lists(st.tuples(moments, moments), min_size=1, max_size=4))
def test_each_group_goes_by_its_own_leader(groups: list[tuple[list[int], list[int]]]) -> None:
    series, leaders = [one for one, _ in groups], [sorted(other) for _, other in groups]
    offsets, led = (np.cumsum([0, *map(len, some)]) for some in (series, leaders))
    numbers, pace = np.arange(len(groups)), np.full(led[-1], PERIOD)
    together, _ = typical_phases(np.concatenate(series), offsets, numbers, np.concatenate(leaders), led, pace)
    assert together.tolist() == [
        phases_of(*one, [PERIOD] * len(one[1]))[0] for one in zip(series, leaders, strict=True)
    ]
