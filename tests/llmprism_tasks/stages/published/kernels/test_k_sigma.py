"""Scores and marks: what stands out, whatever the unit, the origin and the order of values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from llmprism_tasks.contract.errors import ContractError, SettingsError
from llmprism_tasks.stages.published.kernels.k_sigma import k_sigma, robust_score

whole_numbers = st.lists(st.integers(-1000, 1000).map(float), min_size=1, max_size=30)
ks = st.sampled_from([0.5, 1.5, 2.5, 3.5])


def k_sigma_in_words(values: list[float], k: float) -> list[bool]:
    """Leave one out and ask numpy, member by member."""
    if len(values) < 3:
        return [False] * len(values)
    others = [np.delete(values, i) for i in range(len(values))]
    return [bool(v > o.mean() + k * o.std(ddof=1)) for v, o in zip(values, others, strict=True)]


def margins(values: list[float], k: float) -> list[float]:
    """How far each value is from where its mark would turn."""
    others = [np.delete(values, i) for i in range(len(values))]
    return [abs(v - o.mean() - k * o.std(ddof=1)) for v, o in zip(values, others, strict=True)]


def test_nothing_gives_nothing() -> None:
    assert k_sigma([], 3).tolist() == []
    assert robust_score([], floor=1).tolist() == []
    assert robust_score([], floor=1, offsets=[0, 0, 0]).tolist() == []


def test_one_alone_is_normal() -> None:
    assert k_sigma([7.0], 3).tolist() == [False]
    assert robust_score([7.0], floor=1).tolist() == [0.0]


def test_two_cannot_outvote_each_other() -> None:
    assert k_sigma([1.0, 1000.0], 3).tolist() == [False, False]
    assert k_sigma([1.0, 1000.0, np.nan], 3).tolist() == [False, False, False]


def test_equal_values_are_normal() -> None:
    assert not k_sigma([0.1] * 20, 3).any()
    assert not robust_score([0.1] * 20, floor=1e-9).any()


def test_a_missing_value_is_neither_marked_nor_scored_and_does_not_disturb() -> None:
    values = [1.0, 2.0, 3.0, np.nan, 100.0]
    assert k_sigma(values, 3).tolist() == [False, False, False, False, True]
    present = robust_score([1.0, 2.0, 3.0, 100.0], floor=0.1)
    assert np.delete(robust_score(values, floor=0.1), 3).tolist() == present.tolist()
    assert np.isnan(robust_score(values, floor=0.1)[3])


def test_a_group_of_missing_values_has_missing_scores() -> None:
    assert np.isnan(robust_score([np.nan, np.nan], floor=1)).all()


def test_infinite_values_are_refused() -> None:
    for function in (lambda v: k_sigma(v, 3), lambda v: robust_score(v, floor=1)):
        with pytest.raises(ContractError, match="value inf at position 1"):
            function([1.0, np.inf])


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan])
def test_senseless_settings_are_refused(bad: float) -> None:
    with pytest.raises(SettingsError, match="k ="):
        k_sigma([1.0], bad)
    with pytest.raises(SettingsError, match="floor ="):
        robust_score([1.0], floor=bad)


@pytest.mark.parametrize("offsets", [[], [0], [1, 3], [0, 2, 1, 3], [0, 4]])
def test_offsets_that_do_not_divide_the_values_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ContractError, match="offsets"):
        robust_score([1.0, 2.0, 3.0], floor=1, offsets=offsets)


def test_three_sigma_speaks_in_a_group_of_ten() -> None:
    """With the value left in, no one of ten can lie 3 sample deviations above the mean."""
    values = np.array([1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 1.0, 1.02, 0.98, 100.0])
    assert (values - values.mean()).max() / values.std(ddof=1) < 3
    assert k_sigma(values, 3).tolist() == [False] * 9 + [True]


def test_only_what_is_above_is_marked() -> None:
    assert not k_sigma([10.0, 10.1, 9.9, 10.0, 0.0], 3)[4]


def test_a_floor_keeps_the_least_excess_over_equal_peers_silent() -> None:
    values = [1.0, 1.0, 1.0, 1.001]
    assert k_sigma(values, 3).tolist() == [False, False, False, True]
    assert not k_sigma(values, 3, floor=0.01).any()


def test_an_enormous_outlier_costs_its_peers_no_digits() -> None:
    assert k_sigma([0.0, 1.0, 2.0, 1.0, 0.5, 8.0, 1e15], 2).tolist() == [False] * 6 + [True]
    assert robust_score([0.0, 1.0, 2.0, 3.0, 1e15], floor=0.1)[3] == pytest.approx(1 / 1.4826)


def test_a_published_answer() -> None:
    """Rousseeuw and Croux, "Alternatives to the Median Absolute Deviation", JASA 88, 1993: a decimal point lost."""
    score = robust_score([6.27, 6.34, 6.25, 63.1, 6.28], floor=1e-3)
    assert score[3] == pytest.approx((63.1 - 6.28) / (1.4826 * 0.03))
    assert np.abs(np.delete(score, 3)).max() < 3


def test_twice_as_slow_at_two_percent_noise_scores_fifty() -> None:
    assert robust_score([100.0] * 9 + [200.0], floor=2.0)[9] == 50


def test_scores_of_healthy_members_are_as_wide_as_a_standard_normal_law() -> None:
    score = robust_score(np.random.default_rng(1).normal(5.0, 3.0, 20_000), floor=1e-3)
    assert score.std() == pytest.approx(1, abs=0.03)
    assert abs(score.mean()) < 0.03


def test_two_culprits_hide_from_k_sigma_and_not_from_the_robust_score() -> None:
    values = [10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 20.0, 20.0]
    assert not k_sigma(values, 3).any()
    assert (robust_score(values, floor=0.1) > 3).tolist() == [False] * 6 + [True, True]


@given(whole_numbers, ks)
def test_marks_are_those_of_the_rule_in_words(values: list[float], k: float) -> None:
    assume(len(values) < 3 or min(margins(values, k)) > 1e-6)
    assert k_sigma(values, k).tolist() == k_sigma_in_words(values, k)


@given(whole_numbers, ks, st.integers(-(10**6), 10**6), st.sampled_from([0.25, 1.0, 8.0]))
def test_marks_and_scores_do_not_depend_on_origin_and_unit(
    values: list[float], k: float, shift: int, unit: float
) -> None:
    assume(len(values) < 3 or min(margins(values, k)) > 1e-6)
    moved = np.array(values) * unit + shift
    assert k_sigma(moved, k).tolist() == k_sigma(values, k).tolist()
    np.testing.assert_allclose(robust_score(moved, floor=unit), robust_score(values, floor=1.0))


@given(whole_numbers, ks, st.data())
def test_marks_and_scores_follow_their_values_in_any_order(values: list[float], k: float, data: st.DataObject) -> None:
    assume(len(values) < 3 or min(margins(values, k)) > 1e-6)
    order = np.array(data.draw(st.permutations(range(len(values)))))
    shuffled = np.array(values)[order]
    assert k_sigma(shuffled, k).tolist() == k_sigma(values, k)[order].tolist()
    assert robust_score(shuffled, floor=1.0).tolist() == robust_score(values, floor=1.0)[order].tolist()


@given(st.lists(st.lists(st.integers(-1000, 1000).map(float), max_size=8), max_size=6), ks)
def test_groups_do_not_know_of_each_other(groups: list[list[float]], k: float) -> None:
    values = [value for group in groups for value in group]
    offsets = np.cumsum([0] + [len(group) for group in groups])
    marks = [mark for group in groups for mark in k_sigma(group, k).tolist()]
    scores = [score for group in groups for score in robust_score(group, floor=1.0).tolist()]
    assert k_sigma(values, k, offsets=offsets).tolist() == marks
    assert robust_score(values, floor=1.0, offsets=offsets).tolist() == scores
