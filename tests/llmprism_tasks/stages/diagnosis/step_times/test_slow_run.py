"""A job is news when its steps have become slower, for long enough, by more than they ever vary."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from handmade import MS, WINDOW
from hypothesis import given
from hypothesis import strategies as st
from job_evidence import DEFAULT, STEP, history, shuffled, together, without_rows, working
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.step_times import slow_run

BRIEF = dataclasses.replace(DEFAULT, least_lasting_s=0)
"""For runs of few steps of a second."""

NOTHING = without_rows(working([{"a": [500], "b": [500]}]))
WELL = [1000.0] * 20


def evidence(lengths: Sequence[float], current: int, job: str = "j") -> Evidence:
    return dataclasses.replace(NOTHING, history=history(lengths, current=current, job=job))


def found(lengths: Sequence[float], current: int, **changed: Any) -> pl.DataFrame:
    return slow_run.find(evidence(lengths, current), dataclasses.replace(BRIEF, **changed))


def is_news(lengths: Sequence[float], current: int, **changed: Any) -> bool:
    return found(lengths, current, **changed).height > 0


def test_a_run_of_slow_steps_is_told_with_what_it_costs() -> None:
    rows = found([*WELL, *WELL[:4], *[1300] * 5, *WELL[:3]], current=12)
    row = rows.row(0, named=True)
    assert rows.height == 1
    assert rows.schema == pl.Schema(FINDING_SCHEMA)
    assert (row["kind"], row["subject_type"], row["subject"]) == ("cross_step", "job", "j")
    assert row["severity"] == pytest.approx(0.3)
    assert row["score"] == pytest.approx(0.3 / DEFAULT.least_noise)
    assert (row["start_ns"], row["end_ns"]) == (WINDOW.start_ns + 4 * STEP * MS, WINDOW.start_ns + 10_500 * MS)
    assert row["explanation"] == "Steps take 1.30 s instead of 1.00 s, 5 of 5 steps in a row."


def test_steps_that_are_alike_or_faster_are_no_news() -> None:
    assert not is_news(WELL, current=10)
    assert not is_news([*WELL, *[700] * 10], current=10)


def test_what_was_slow_before_the_window_is_no_news() -> None:
    assert not is_news([*WELL, *[1300] * 6, *WELL[:10]], current=10)


def test_a_trouble_is_news_until_it_has_lasted_for_three_quarters_of_the_look_back() -> None:
    """From then on it is what the job is like."""
    assert is_news([*WELL, *[1300] * 30, *[1300] * 10], current=10)
    assert not is_news([*WELL[:12], *[1300] * 30, *[1300] * 10], current=10)


@pytest.mark.parametrize(("quick", "news"), [(0, False), (2, False), (3, True)])
def test_a_job_that_was_slow_from_its_first_steps_on_has_become_quicker(quick: int, news: bool) -> None:
    """Three quick steps show that it has become slower before."""
    lengths = [*WELL[:quick], *[1300] * 6, *WELL]
    assert is_news(lengths, current=len(lengths)) == news


@pytest.mark.parametrize(("slow", "news"), [(1, False), (2, False), (3, True)])
def test_three_in_a_row_are_a_trouble(slow: int, news: bool) -> None:
    lengths = [*WELL, *WELL[:4], *[1300] * slow, *WELL[:4]]
    assert is_news(lengths, current=8 + slow) == news
    assert is_news(lengths, current=8 + slow, least_steps=1)


@pytest.mark.parametrize(("steps", "news"), [(5, False), (7, True)])
def test_too_few_steps_tell_nothing(steps: int, news: bool) -> None:
    """Twice as many are asked for as must be slow."""
    assert is_news([*WELL[: steps - 3], 1300, 1300, 1300], current=3) == news


@pytest.mark.parametrize(("length", "news"), [(1049, False), (1051, True)])
def test_five_deviations_are_asked_for(length: float, news: bool) -> None:
    """The least deviation of 1 % stands for steps that are all alike."""
    lengths = [*WELL, *[length] * 6]
    assert is_news(lengths, current=6) == news
    assert is_news(lengths, current=6, sigmas=4)
    assert not is_news(lengths, current=6, least_noise=0.02)


@pytest.mark.parametrize(("length", "news"), [(1039, False), (1041, True)])
def test_less_than_the_least_effect_is_no_news(length: float, news: bool) -> None:
    """With the other thresholds out of the way."""
    assert is_news([*WELL, *[length] * 6], current=6, sigmas=1) == news
    assert is_news([*WELL, *[1039] * 6], current=6, sigmas=1, least_effect=0.03)


NOISY = [1000.0, 1000, 1020, 1038] * 10
"""The lower quartile is a second, the deviation 1.5 %, and three of them 4.4 %."""


@pytest.mark.parametrize(("length", "news"), [(1044, False), (1046, True)])
def test_a_step_counts_as_slow_beyond_the_job_s_noise(length: float, news: bool) -> None:
    """With the other thresholds out of the way."""
    assert is_news([*NOISY, *[length] * 5], current=5, sigmas=1) == news
    assert is_news([*NOISY, *[1044] * 5], current=5, sigmas=1, noise_margin=2)


@pytest.mark.parametrize(("before", "news"), [(2, False), (8, True)])
def test_a_job_that_varies_is_asked_for_more_while_few_of_its_steps_are_known(before: int, news: bool) -> None:
    """By 2 %: an eighth more is six deviations, which a dozen others tell, and eight times as many are sure of."""
    varying = [1000.0, 1010, 990, 1020, 980, 1040] * before
    assert is_news([*varying, *[1125] * 5], current=5) == news
    assert is_news([*WELL[: len(varying)], *[1125] * 5], current=5)


def test_a_job_that_drifts_by_itself_is_no_news() -> None:
    """Slower by a tenth and back again, every thirty steps, as on a busy machine; once, it would be news."""
    drift = [*[1000.0] * 15, *[1100.0] * 15]
    assert not is_news([*drift, *drift, *drift], current=30)
    assert is_news([*[1000.0] * 75, *[1100.0] * 15], current=15)


@pytest.mark.parametrize(("pattern", "news"), [("SSSNSSNNSSS", True), ("SSSNNSSNNSSS", False)])
def test_most_steps_of_the_run_are_slow(pattern: str, news: bool) -> None:
    """Eight of eleven, or eight of twelve."""
    lengths = [*WELL, *[1400 if step == "S" else 1000 for step in pattern]]
    assert is_news(lengths, current=len(pattern)) == news
    assert not is_news(lengths, current=len(pattern), persistence=0.75)
    assert is_news(lengths, current=len(pattern), persistence=0.6)


@pytest.mark.parametrize(("quick", "told"), [(6, 5), (2, 8)])
def test_a_run_ends_where_steps_are_quick_again_whatever_is_slow_later(quick: int, told: int) -> None:
    """Five steps of double length, and an evaluation some steps later."""
    lengths = [*WELL, *[2000] * 5, *[1000] * quick, 3100]
    (explanation,) = found(lengths, current=6 + quick)["explanation"]
    assert f"of {told} steps in a row" in explanation


@pytest.mark.parametrize(("least", "news"), [(1049, False), (1051, True)])
def test_a_run_may_vary_if_most_of_its_steps_are_slow_beyond_chance(least: float, news: bool) -> None:
    """As for a rank with a share of a core, or whose data come late: three of four are slower by five deviations."""
    assert is_news([*WELL, *[least, 1300, least, 1600, 2200] * 2], current=10) == news


@pytest.mark.parametrize(("slow", "news"), [(9, False), (10, True)])
def test_what_is_over_within_ten_seconds_is_a_pause(slow: int, news: bool) -> None:
    lengths = [*WELL, *[1070] * slow]
    assert is_news(lengths, current=slow, least_lasting_s=DEFAULT.least_lasting_s) == news


@pytest.mark.parametrize(("before", "news"), [(1, True), (3, False)])
def test_what_the_job_does_now_and_then_by_itself_is_no_news(before: int, news: bool) -> None:
    """A tenth of the other steps, or more, were as slow."""
    lengths = [*[1300.0, 1000.0] * before, *WELL[: -2 * before], *[1300] * 6]
    assert is_news(lengths, current=6) == news


@pytest.mark.parametrize(("slow", "news"), [(2, True), (4, False)])
def test_slow_steps_that_follow_each_other_by_chance_are_no_news(slow: int, news: bool) -> None:
    """Three in a row somewhere among twelve: where 2 of 89 others are as slow, in one window of seven thousand; where 4
    are, in one of nine hundred."""
    paused = [1300.0 if step % (80 // slow) == 40 // slow else 1000.0 for step in range(80)]
    assert is_news([*paused, *WELL[:5], 1300, 1300, 1300, *WELL[:4]], current=12) == news


@pytest.mark.parametrize(("length", "news"), [(1500, False), (4000, True)])
def test_other_steps_that_are_far_less_slow_do_not_make_a_run_likely(length: float, news: bool) -> None:
    """One step in twenty takes a third longer, as a first step does."""
    assert is_news([1300, *WELL, *[length] * 3], current=12) == news


@pytest.mark.parametrize(("before", "news"), [(0, False), (2, True)])
def test_a_run_is_as_long_as_it_is_wherever_windows_are_cut(before: int, news: bool) -> None:
    assert is_news([*WELL, *[2000] * before, *[2000] * 2, *WELL[:8]], current=10) == news


@pytest.mark.parametrize(("before", "after", "news"), [(5, 3, True), (6, 3, False), (6, 0, True)])
def test_the_short_end_of_what_windows_before_have_told_is_no_news(before: int, after: int, news: bool) -> None:
    """Steps of two seconds: three in the window, and `before` it as many as last, or not."""
    assert is_news([*WELL, *[2000.0] * (before + 3), *WELL[:after]], current=3 + after, least_lasting_s=12) == news


def test_a_slow_step_soon_after_a_run_that_is_over_is_not_of_it() -> None:
    """Such as an evaluation, two steps after a fault of the window before."""
    assert not is_news([*WELL, *[2000] * 5, *WELL[:3], 2000, *WELL[:8]], current=10)


def test_each_job_is_told_from_its_own_past() -> None:
    jobs = [
        evidence([*WELL, *[1300] * 6], 6, "slow"),
        evidence([*WELL, *WELL[:6]], 6, "well"),
        evidence([1300] * 26, 6, "long"),
    ]
    rows = slow_run.find(together(*jobs), BRIEF)
    assert rows["subject"].to_list() == ["slow"]


def test_no_evidence_no_rows() -> None:
    assert_frame_equal(slow_run.find(evidence([], 0), DEFAULT), pl.DataFrame(schema=FINDING_SCHEMA))


@given(st.integers(0, 10**6), st.integers(40, 80), st.integers(5, 20))
def test_jitter_of_a_percent_is_never_news_and_a_tenth_more_always_is(seed: int, before: int, current: int) -> None:
    lengths = [1000.0 + (seed * (i + 7) * (i + 3)) % 21 - 10 for i in range(before + current)]
    assert not is_news(lengths, current)
    slow = [*lengths[:before], *[length * 1.12 for length in lengths[before:]]]
    assert is_news(slow, current)
    table = evidence(slow, current)
    assert_frame_equal(slow_run.find(shuffled(table, seed), BRIEF), found(slow, current))
