"""Standard deviations that outliers do not spoil, and what few values tell of them."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.robust import (
    SIGMA_PER_MAD,
    relative_sigma,
    self_weighted_median,
    sigma,
    sigma_about_zero,
    sigma_of,
    student_factor,
)


@pytest.mark.parametrize(
    ("freedom", "normal", "student"), [(5, 2.326, 3.365), (10, 1.645, 1.812), (20, 3.090, 3.552), (6, 3.719, 8.025)]
)
def test_few_values_are_asked_for_what_tables_of_student_s_t_have(freedom: int, normal: float, student: float) -> None:
    """At 1 %, 5 %, 0.1 % and 0.01 %."""
    assert student_factor(freedom + 1, normal) * normal == pytest.approx(student, rel=0.04)


def test_many_values_are_as_good_as_a_known_deviation_and_one_is_none() -> None:
    assert student_factor(10_000, 5.0) == pytest.approx(1.0, abs=0.001)
    assert student_factor(1, 5.0) == math.inf


@given(st.lists(st.lists(st.floats(1, 1e9) | st.integers(1, 3).map(float), min_size=1, max_size=9), max_size=5))
def test_expressions_and_arrays_agree(groups: list[list[float]]) -> None:
    rows = [(i, value) for i, values in enumerate(groups) for value in values]
    table = pl.DataFrame(rows, schema={"group": pl.Int64, "value": pl.Float64}, orient="row")
    value, middle = pl.col("value"), pl.col("value").median()
    found = table.group_by("group", maintain_order=True).agg(
        sigma(value).alias("sigma"),
        sigma_about_zero(value - middle).alias("about_zero"),
        relative_sigma(value).alias("relative"),
    )
    middles = [float(np.median(values)) for values in groups]
    expected = [
        SIGMA_PER_MAD * float(np.median(np.abs(np.array(values) - middle)))
        for values, middle in zip(groups, middles, strict=True)
    ]
    relative = [one / middle for one, middle in zip(expected, middles, strict=True)]
    for name, figures in (("sigma", expected), ("about_zero", expected), ("relative", relative)):
        assert found[name].to_list() == pytest.approx(figures, rel=1e-12)
    assert [sigma_of(np.array(values)) for values in groups] == expected


def test_nothing_has_no_deviation() -> None:
    nothing = pl.DataFrame(schema={"value": pl.Float64})
    assert nothing.select(sigma(pl.col("value"))).item() is None
    assert math.isnan(sigma_of(np.array([])))


def test_each_group_has_its_own_deviation() -> None:
    table = pl.DataFrame({"group": ["a", "a", "a", "b", "b"], "value": [1.0, 2.0, 3.0, 7.0, 7.0]})
    assert table.select(sigma(pl.col("value")).over("group")).to_series().to_list() == [SIGMA_PER_MAD] * 3 + [0.0] * 2


@pytest.mark.parametrize(("values", "middle"), [([1, 1, 1, 1, 10], 10), ([3, 1, 1, 1], 1), ([7], 7)])
def test_half_of_the_sum_lies_in_values_as_large(values: list[int], middle: int) -> None:
    assert self_weighted_median(np.array(values)) == middle
