"""The kernel finds what the textbook's recursion finds, and what plain sense expects."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from llmprism_tasks.contract.errors import ContractError, SettingsError
from llmprism_tasks.numerics.robust import as_series, medians, sigmas
from llmprism_tasks.stages.published.kernels.bocpd import Prior, change_points, start_posterior

STANDARD = Prior(mean=0.0, scale=1.0)


def robust_prior(values: npt.ArrayLike, offsets: npt.ArrayLike | None = None, *, floor: float) -> Prior:
    """Return a prior for each series from its own median and median absolute deviation, `floor` at least."""
    series, bounds = as_series(values, offsets, nan_allowed=False)
    middles = medians(series, bounds)
    return Prior(np.nan_to_num(middles), np.fmax(sigmas(series, bounds, middles), floor))


def priors_of(*scale_weights: float) -> st.SearchStrategy[Prior]:
    return st.builds(
        Prior,
        mean=st.sampled_from([-3.0, 0.0, 1.0]),
        scale=st.sampled_from([0.5, 1.0, 2.0]),
        mean_weight=st.sampled_from([0.01, 0.1, 1.0]),
        scale_weight=st.sampled_from(scale_weights),
    )


priors = priors_of(1.0, 4.0, 10.0, 100.0)
hazards = st.sampled_from([0.001, 0.01, 0.1, 0.4])


@st.composite
def steppy(draw: st.DrawFn, longest: int = 64) -> npt.NDArray[np.float64]:
    """Draw runs of numbers around levels of their own, some of one number only."""
    runs = draw(st.lists(st.tuples(st.integers(-8, 8), st.integers(1, 20)), min_size=1, max_size=8))
    noise = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return np.concatenate([noise.normal(level, 0.7, size) for level, size in runs])[:longest]


def student_t(x: float, mean: float, kappa: float, alpha: float, beta: float) -> float:
    """The predictive density of a normal-inverse-gamma belief, as textbooks print it (Murphy 2007, equation 110)."""
    dof, scale2 = 2 * alpha, beta * (kappa + 1) / (alpha * kappa)
    return math.exp(
        math.lgamma((dof + 1) / 2)
        - math.lgamma(dof / 2)
        - math.log(dof * math.pi * scale2) / 2
        - (dof + 1) / 2 * math.log1p((x - mean) ** 2 / (dof * scale2))
    )


def textbook(values: npt.NDArray[np.float64], hazard: float, prior: Prior) -> npt.NDArray[np.float64]:
    """Adams and MacKay's algorithm 1, nothing forgotten; return P(r_t = r | x_1..t) as the rows of a table."""
    alpha = prior.scale_weight / 2
    mean, scale = float(np.asarray(prior.mean)), float(np.asarray(prior.scale))
    beliefs = [(mean, prior.mean_weight, alpha, alpha * scale**2)]
    origin, joint = beliefs[0], np.array([1.0])
    table = np.zeros((len(values) + 1, len(values) + 1))
    table[0, 0] = 1
    for t, x in enumerate(values, 1):
        predictive = np.array([student_t(x, *belief) for belief in beliefs])
        growth, change = joint * predictive * (1 - hazard), (joint * predictive * hazard).sum()
        joint = np.concatenate([[change], growth])
        joint /= joint.sum()
        table[t, : t + 1] = joint
        beliefs = [origin] + [
            ((k * m + x) / (k + 1), k + 1, a + 0.5, b + k * (x - m) ** 2 / (2 * (k + 1))) for m, k, a, b in beliefs
        ]
    return table


def starts(table: npt.NDArray[np.float64], hazard: float) -> npt.NDArray[np.float64]:
    """P(r_t = 1 | x_1..t) / (1 - hazard) for each observation, nil for the first."""
    return np.concatenate([[0.0], table[2:, 1] / (1 - hazard)])[: len(table) - 1]


def test_no_values_have_no_changes() -> None:
    assert change_points([], hazard=0.1, prior=STANDARD).tolist() == []
    assert change_points([], [0], hazard=0.1, prior=STANDARD).tolist() == []
    assert change_points([], [0, 0, 0], hazard=0.1, prior=robust_prior([], [0, 0, 0], floor=1)).tolist() == []


def test_one_value_is_no_change_however_odd() -> None:
    assert change_points([1e9], hazard=0.1, prior=STANDARD).tolist() == [False]


def test_a_constant_series_has_no_change_however_long() -> None:
    values = np.full(5_000, 7.0)
    assert not change_points(values, hazard=0.1, prior=robust_prior(values, floor=0.1)).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_refused_with_its_position(bad: float) -> None:
    with pytest.raises(ContractError, match=f"value {bad} at position 2"):
        change_points([0.0, 1.0, bad], hazard=0.1, prior=STANDARD)


@pytest.mark.parametrize("hazard", [0.0, 1.0, -0.1, np.nan])
def test_a_hazard_that_is_no_probability_is_refused(hazard: float) -> None:
    with pytest.raises(SettingsError, match="hazard"):
        change_points([0.0], hazard=hazard, prior=STANDARD)


@pytest.mark.parametrize(
    ("prior", "found"),
    [
        (replace(STANDARD, scale=0.0), "scale"),
        (replace(STANDARD, scale=np.array([np.nan])), "scale"),
        (replace(STANDARD, mean=np.inf), "mean"),
        (replace(STANDARD, mean_weight=0.0), "mean_weight"),
        (replace(STANDARD, scale_weight=-1.0), "scale_weight"),
    ],
)
def test_a_senseless_prior_is_refused(prior: Prior, found: str) -> None:
    with pytest.raises(SettingsError, match=found):
        change_points([0.0], hazard=0.1, prior=prior)


@pytest.mark.parametrize("negligible", [-0.1, 1.0, np.nan])
def test_forgetting_the_likeliest_run_is_refused(negligible: float) -> None:
    with pytest.raises(SettingsError, match="negligible"):
        change_points([0.0], hazard=0.1, prior=STANDARD, negligible=negligible)


def test_a_memory_of_nothing_is_refused() -> None:
    with pytest.raises(SettingsError, match="max_run_length"):
        change_points([0.0], hazard=0.1, prior=STANDARD, max_run_length=0)


def test_extreme_values_leave_probabilities_probabilities() -> None:
    posterior = start_posterior([0.0, 1e150, 1e-300, -1e150, 0.0, 0.0], hazard=0.1, prior=STANDARD)
    assert ((posterior >= 0) & (posterior <= 1)).all()


def test_the_gaps_between_bursts_are_changes_and_so_are_the_returns() -> None:
    """Intervals of some 30 ms inside a step and of 2 s between: ten flows a step."""
    noise = np.random.default_rng(3)
    intervals = noise.uniform(20e6, 45e6, 200)
    intervals[9::10] = noise.uniform(1.5e9, 2.5e9, 20)
    logs = np.log(intervals)
    marks = change_points(logs, hazard=0.1, prior=robust_prior(logs, floor=0.2))
    rising = marks & (np.diff(logs, prepend=logs[0]) > 0)
    assert np.flatnonzero(rising).tolist() == list(range(9, 200, 10))
    assert np.flatnonzero(marks & ~rising).tolist() == list(range(10, 200, 10))


def test_shifts_of_the_mean_are_found_at_once_and_nothing_else_is() -> None:
    """The usual showcase: normal numbers whose mean jumps; here by eight deviations, at 60, 130 and 200."""
    noise = np.random.default_rng(7)
    values = np.concatenate([noise.normal(m, 1, n) for m, n in ((0, 60), (8, 70), (-2, 70), (6, 100))])
    marks = change_points(values, hazard=1 / 100, prior=Prior(mean=0, scale=1))
    assert np.flatnonzero(marks).tolist() == [60, 130, 200]


def test_the_first_two_posteriors_are_those_worked_by_hand() -> None:
    """With kappa = 1, alpha = 1, beta = 1, mean = 0: after x = 0 the belief is (0, 2, 1.5, 1); then x = 3 has density
    t(dof 2, scale^2 2) = 1 / (2 sqrt(4) (1 + 9/4)^1.5) under the prior and t(dof 3, scale^2 1) = 0.3675 / 16 under the
    run.
    """
    fresh = 1 / (2 * math.sqrt(4) * (1 + 9 / 4) ** 1.5)
    same = 2 / (math.pi * math.sqrt(3)) / (1 + 9 / 3) ** 2
    expected = 0.1 * fresh / (0.1 * fresh + 0.9 * same)
    prior = Prior(mean=0, scale=1, mean_weight=1, scale_weight=2)
    assert start_posterior([0.0, 3.0], hazard=0.1, prior=prior)[1] == pytest.approx(expected)


@given(steppy(), hazards, priors)
def test_run_length_zero_says_nothing(values: npt.NDArray[np.float64], hazard: float, prior: Prior) -> None:
    np.testing.assert_allclose(textbook(values, hazard, prior)[1:, 0], hazard)


@settings(max_examples=300)
@given(steppy(), hazards, priors)
def test_the_posterior_is_the_textbooks(values: npt.NDArray[np.float64], hazard: float, prior: Prior) -> None:
    expected = starts(textbook(values, hazard, prior), hazard)
    exact = start_posterior(values, hazard=hazard, prior=prior, negligible=0.0)
    np.testing.assert_allclose(exact, expected, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(start_posterior(values, hazard=hazard, prior=prior), expected, atol=0.05)  # it forgets


@settings(max_examples=300)
@given(steppy(longest=160), hazards, priors_of(1.0, 10.0, 100.0, 1000.0))
def test_the_change_points_are_the_textbooks(values: npt.NDArray[np.float64], hazard: float, prior: Prior) -> None:
    """Also where runs are longer than the memory."""
    expected = starts(textbook(values, hazard, prior), hazard)
    assume((np.abs(expected - 0.95) > 0.01).all())
    assert change_points(values, hazard=hazard, prior=prior).tolist() == (expected > 0.95).tolist()


@given(st.lists(steppy(), max_size=5), hazards)
def test_series_do_not_know_of_each_other(series: list[npt.NDArray[np.float64]], hazard: float) -> None:
    offsets = np.cumsum([0] + [len(values) for values in series])
    together = np.concatenate([*series, np.empty(0)])
    posterior = start_posterior(together, offsets, hazard=hazard, prior=robust_prior(together, offsets, floor=0.1))
    for (start, end), values in zip(pairwise(offsets), series, strict=True):
        alone = start_posterior(values, hazard=hazard, prior=robust_prior(values, floor=0.1))
        assert posterior[start:end].tolist() == alone.tolist()


@given(steppy(), hazards, st.integers(-1000, 1000), st.sampled_from([-2.0, 0.25, 16.0]))
def test_changes_do_not_depend_on_origin_unit_and_sign(
    values: npt.NDArray[np.float64], hazard: float, shift: int, unit: float
) -> None:
    moved = values * unit + shift
    posterior = start_posterior(values, hazard=hazard, prior=robust_prior(values, floor=0.1))
    again = start_posterior(moved, hazard=hazard, prior=robust_prior(moved, floor=0.1 * abs(unit)))
    np.testing.assert_allclose(again, posterior, atol=1e-3)


@given(steppy(), steppy(), hazards)
def test_the_future_does_not_change_the_past(
    past: npt.NDArray[np.float64], future: npt.NDArray[np.float64], hazard: float
) -> None:
    known = start_posterior(past, hazard=hazard, prior=STANDARD)
    later = start_posterior(np.concatenate([past, future]), hazard=hazard, prior=STANDARD)
    assert later[: len(past)].tolist() == known.tolist()


def test_a_run_longer_than_the_memory_goes_on() -> None:
    values = np.random.default_rng(5).normal(0, 1, 20_000)
    assert change_points(values, hazard=0.01, prior=STANDARD, max_run_length=16).mean() < 0.001
    assert change_points(np.append(values, 20.0), hazard=0.01, prior=STANDARD, max_run_length=16)[-1]
