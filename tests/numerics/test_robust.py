"""What few values tell of how much they vary."""

from __future__ import annotations

import math

import pytest

from llmprism_tasks.numerics.robust import few


@pytest.mark.parametrize(
    ("freedom", "normal", "student"), [(5, 2.326, 3.365), (10, 1.645, 1.812), (20, 3.090, 3.552), (6, 3.719, 8.025)]
)
def test_few_values_are_asked_for_what_tables_of_student_s_t_have(freedom: int, normal: float, student: float) -> None:
    """At 1 %, 5 %, 0.1 % and 0.01 %."""
    assert few(freedom + 1, normal) * normal == pytest.approx(student, rel=0.04)


def test_many_values_are_as_good_as_a_known_deviation_and_one_is_none() -> None:
    assert few(10_000, 5.0) == pytest.approx(1.0, abs=0.001)
    assert few(1, 5.0) == math.inf
