"""How probable so many successes are by chance, and bounds that are no less."""

from __future__ import annotations

import itertools

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics import binomial


def bound(count: int, trials: int, probability: float) -> float:
    row = pl.DataFrame({"count": [count], "trials": [trials], "probability": [probability]})
    return float(row.select(binomial.tail_bound(pl.col("count"), pl.col("trials"), pl.col("probability"))).item())


def test_the_tail_is_that_of_all_outcomes_counted() -> None:
    outcomes = [sum(throws) for throws in itertools.product((0, 1), repeat=6)]
    expected = sum(heads >= 4 for heads in outcomes) / len(outcomes)
    assert binomial.tail(4, 6, 0.5) == pytest.approx(expected)


@pytest.mark.parametrize(("count", "trials", "tail"), [(0, 0, 1.0), (0, 5, 1.0), (6, 5, 0.0), (5, 5, 0.25**5)])
def test_the_tail_at_its_ends(count: int, trials: int, tail: float) -> None:
    assert binomial.tail(count, trials, 0.25) == pytest.approx(tail)


@pytest.mark.parametrize(("count", "probability", "tail"), [(0, 0.0, 1.0), (1, 0.0, 0.0), (5, 1.0, 1.0), (6, 1.0, 0.0)])
def test_the_tail_of_what_never_or_always_succeeds(count: int, probability: float, tail: float) -> None:
    assert binomial.tail(count, 5, probability) == tail


def test_the_tail_of_thousands_of_trials_as_of_a_job_of_short_steps() -> None:
    assert binomial.tail(1_501, 3_001, 0.5) == pytest.approx(0.5)


@given(st.integers(1, 40), st.data(), st.floats(0.01, 0.99))
def test_the_bound_is_no_less_than_the_tail(trials: int, data: st.DataObject, probability: float) -> None:
    count = data.draw(st.integers(0, trials))
    assert bound(count, trials, probability) >= binomial.tail(count, trials, probability) * (1 - 1e-9)


def test_the_bound_is_one_up_to_what_is_expected_and_the_probability_itself_where_all_succeed() -> None:
    assert bound(2, 10, 0.2) == 1.0
    assert bound(10, 10, 0.2) == pytest.approx(0.2**10)


@pytest.mark.parametrize(("count", "draws", "values"), [(2, 3, 4), (3, 5, 3), (4, 4, 2), (2, 4, 6)])
def test_some_value_is_drawn_so_often_no_more_probably_than_the_bound_says(count: int, draws: int, values: int) -> None:
    outcomes = list(itertools.product(range(values), repeat=draws))
    often = sum(max(map(one.count, one)) >= count for one in outcomes)
    assert binomial.any_value_bound(count, draws, values) >= often / len(outcomes)


def test_all_draws_of_one_value() -> None:
    assert binomial.any_value_bound(3, 3, 10) == pytest.approx(0.01)
