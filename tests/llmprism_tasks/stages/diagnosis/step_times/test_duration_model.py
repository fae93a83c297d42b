"""How rarely a healthy job takes so long: few steps, and steps that differ much, give no confidence."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from job_evidence import DEFAULT

from llmprism_tasks.stages.diagnosis.step_times.duration_model import (
    MOST_DEGREES_OF_FREEDOM,
    PRIOR_DEVIATION,
    PRIOR_FREEDOM,
    chance_of_so_many,
    fitted,
)

SECOND = 10**9


def lengths(count: int, sigma: float, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(0, sigma, count)
    return (4 * SECOND * np.exp(drawn)).astype(np.int64)


def test_the_usual_step_is_the_median_whatever_a_few_slow_ones_take() -> None:
    model = fitted([4 * SECOND] * 20 + [40 * SECOND] * 3)
    assert model is not None
    assert model.usual_ns == pytest.approx(4 * SECOND)
    assert model.freedom == MOST_DEGREES_OF_FREEDOM


def test_of_few_steps_no_chance_is_known() -> None:
    assert fitted([SECOND] * 3) is None
    assert fitted([SECOND] * 4) is not None


def test_fewer_steps_or_more_noise_raise_the_bar() -> None:
    few, many, noisy = (fitted(lengths(count, sigma)) for count, sigma in ((6, 0.02), (60, 0.02), (60, 0.35)))
    assert few is not None
    assert many is not None
    assert noisy is not None
    assert many.least_ns(DEFAULT) < 6 * SECOND < few.least_ns(DEFAULT)
    assert noisy.least_ns(DEFAULT) > 20 * SECOND


@pytest.mark.parametrize(("count", "told"), [(6, False), (9, True)])
def test_of_nine_steps_that_hardly_differ_one_three_times_as_long_is_told(count: int, told: bool) -> None:
    model = fitted([4 * SECOND] * count)
    assert model is not None
    assert (model.least_ns(DEFAULT) < 12 * SECOND) == told


def test_few_equal_steps_show_no_smaller_deviation_than_other_jobs_have() -> None:
    few, many = fitted([4 * SECOND] * 5), fitted([4 * SECOND] * 50)
    assert few is not None
    assert many is not None
    assert few.deviation == pytest.approx(PRIOR_DEVIATION * (PRIOR_FREEDOM / few.freedom) ** 0.5)
    assert many.deviation < few.deviation < PRIOR_DEVIATION


def test_the_chance_of_the_longest_healthy_length_is_the_chance_asked_for() -> None:
    model = fitted(lengths(60, 0.05))
    assert model is not None
    for chance in (0.1, 1e-3, 1e-6):
        assert model.chance(model.longest_ns(chance)) == pytest.approx(chance, rel=0.01)
    assert model.chance(SECOND) == 0.5


def test_more_false_alarms_are_a_lower_bar() -> None:
    model = fitted(lengths(60, 0.1))
    assert model is not None
    assert model.least_ns(dataclasses.replace(DEFAULT, false_alarms_per_h=10)) < model.least_ns(DEFAULT)


def test_steps_that_vary_log_normally_by_a_third_raise_no_alarm() -> None:
    """A hundred jobs of five minutes, each judged by its own steps."""
    for seed in range(100):
        steps = lengths(75, 0.35, seed)
        model = fitted(steps)
        assert model is not None
        assert steps.max() < model.least_ns(DEFAULT)


def test_so_many_long_steps_are_chance_where_all_steps_vary_as_much() -> None:
    """Of sixty steps the longest quarter is what any distribution has, or none; three twice as long are not."""
    steps = np.sort(lengths(60, 0.05))
    assert chance_of_so_many(steps[-15:], steps) > 0.1
    assert chance_of_so_many(2 * steps[-3:], np.append(steps[:-3], 2 * steps[-3:])) < 1e-6
    assert chance_of_so_many(steps[:1], steps[:3]) == 1
    assert chance_of_so_many(steps[:0], steps) == 1
