"""Slow steps: above the least effect and the job's own noise, enough of them, and one at least in the window."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_evidence import DEFAULT, HISTORY, history

from llmprism_tasks.stages.diagnosis.step_times.slow_steps import mark_slow_steps

WELL = [1000.0] * 10


def slow(lengths: Sequence[float], *, current: int | None = None, **changed: Any) -> list[float]:
    """Return the lengths of the slow steps, ms."""
    steps = mark_slow_steps(history(lengths, current=current), dataclasses.replace(DEFAULT, **changed)).filter("slow")
    return [float(length) / 1e6 for length in steps["end_ns"] - steps["start_ns"]]


@pytest.mark.parametrize(("length", "count"), [(1039, 0), (1041, 4)])
def test_a_slow_step_exceeds_the_least_effect(length: float, count: int) -> None:
    assert slow([*WELL, *[length] * 4]) == [length] * count
    assert slow([*WELL, *[length] * 4], least_effect=0.03) == [length] * 4
    assert slow([*WELL, *[length] * 4], least_effect=0.05) == []


@pytest.mark.parametrize(("length", "count"), [(1080, 0), (1110, 4)])
def test_a_slow_step_exceeds_the_job_s_own_noise(length: float, count: int) -> None:
    """Its quick steps spread by 2 % or so: three times that above them is usual."""
    noisy = [*[1000] * 2, 960, 970, 980, 990, 1000, 1010, 1020, 1030, 1040, 1050]
    assert slow([*noisy, *[length] * 4]) == [length] * count
    assert slow([*noisy, *[length] * 4], noise_margin=1)[-4:] == [length] * 4


@pytest.mark.parametrize(("short", "slow_ones"), [([700], 4), ([1000, 700], 0)])
def test_a_first_step_that_is_too_short_is_no_noise(short: list[float], slow_ones: int) -> None:
    """It may begin anywhere in the start-up. Any other short step was cut so, and tells how certain a step's end is."""
    assert len(slow([*short, *[1000] * 4, *[1200] * 4])) == slow_ones


@pytest.mark.parametrize(("number", "count"), [(2, 0), (3, 3)])
def test_two_slow_steps_are_chance(number: int, count: int) -> None:
    assert len(slow([*WELL, *[1500] * number])) == count
    assert len(slow([*WELL, *[1500] * number], least_steps=2)) == number


def test_slow_steps_before_the_window_alone_are_no_news() -> None:
    assert slow([*[1500] * 3, *WELL], current=10) == []
    assert slow([*WELL, *[1500] * 3, *WELL], current=11) == [1500] * 3


def test_the_quick_quarter_of_the_steps_is_healthy() -> None:
    rows = mark_slow_steps(history([*[1000] * 4, *[2000] * 8]), DEFAULT)
    assert rows["quick_ns"].unique().to_list() == [1e9]
    assert rows["slow"].sum() == 8


@pytest.mark.parametrize("ill", [3, 10, 20, 25])
def test_a_fault_of_the_same_size_is_told_however_long_it_lasts(ill: int) -> None:
    """Healthy steps differ a little. As fewer are left, a quarter of all steps would be one of the longest."""
    well = [1000.0 + number for number in range(10)]
    assert slow([*well, *[1044.0] * ill]) == [1044.0] * ill
    assert slow([*well, *[1040.0] * ill]) == []


def test_jobs_are_judged_each_by_itself() -> None:
    both = pl.concat([history([*WELL, *[1500] * 3], job="ill"), history([1500] * 12, job="well")])
    assert mark_slow_steps(both, DEFAULT)["job_id"].unique().to_list() == ["ill"]


def test_no_history_no_trouble() -> None:
    assert mark_slow_steps(pl.DataFrame(schema=HISTORY), DEFAULT).is_empty()


@given(st.lists(st.floats(500, 3000), min_size=1, max_size=30), st.integers(0, 10**6))
def test_rows_come_in_any_order(lengths: list[float], seed: int) -> None:
    steps = history(lengths)
    rows = mark_slow_steps(steps, DEFAULT)
    assert mark_slow_steps(steps.sample(fraction=1, shuffle=True, seed=seed), DEFAULT).equals(rows)
    assert rows["start_ns"].is_sorted()
    assert rows.join(steps, on=["start_ns", "end_ns"], how="anti").is_empty()


@pytest.mark.parametrize(("slight", "kept"), [(1240, 0), (1260, 6)])
def test_steps_slow_by_less_than_half_of_those_that_cost_most_are_slow_for_another_reason(
    slight: float, kept: int
) -> None:
    """Six of them cost less than four that are half longer; they are no healthy steps either."""
    lengths = [*WELL, *[slight] * 6, *[1500.0] * 4]
    assert slow(lengths) == [slight] * kept + [1500] * 4
    assert mark_slow_steps(history(lengths), DEFAULT).height == len(lengths) - 6 + kept


@pytest.mark.parametrize(("number", "slight"), [(2, 6), (3, 0)])
def test_too_few_steps_that_cost_most_hide_no_others(number: int, slight: int) -> None:
    assert slow([*WELL, *[1200.0] * 6, *[2500.0] * number]) == [1200] * slight + [2500] * number


def test_many_slight_steps_cost_more_than_few_long_ones() -> None:
    assert slow([*WELL * 3, *[1200.0] * 25, *[2500.0] * 3]) == [1200] * 25 + [2500] * 3
