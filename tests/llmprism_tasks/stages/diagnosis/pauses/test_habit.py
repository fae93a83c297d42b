"""A pause is a habit if the job has paused before for more than half as long, whatever its steps are silent for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from handmade import MS, WINDOW
from job_evidence import working

from llmprism_tasks.stages.diagnosis.evidence import PAUSES_SCHEMA, STORAGE_SCHEMA
from llmprism_tasks.stages.diagnosis.pauses.habit import CHECKPOINT_BYTES, is_habit, pauses_of_steps

PERIOD = 4000
"""ms"""


def habit(
    before: Sequence[tuple[float, float]],
    silent: float,
    saved: Sequence[tuple[float, float]] = (),
    *,
    saves: bool = False,
) -> bool:
    """Return whether a silence at 0 is a habit, after others: when each began, and how long it lasted, ms; and what was
    saved: when, ms, and how many checkpoints of the least size."""
    rows = [("j", WINDOW.start_ns + int(at * MS), WINDOW.start_ns + int((at + lasted) * MS)) for at, lasted in before]
    known = pl.DataFrame(rows, schema=PAUSES_SCHEMA, orient="row")
    evidence = dataclasses.replace(working([{"a": [500.0] * 4, "b": [500.0] * 4}]), pauses=known)
    writes = [("j", WINDOW.start_ns + int(at * MS), round(size * CHECKPOINT_BYTES)) for at, size in saved]
    evidence = dataclasses.replace(evidence, storage=pl.DataFrame(writes, schema=STORAGE_SCHEMA, orient="row"))
    return is_habit("j", WINDOW.start_ns, silent * MS, PERIOD * MS, evidence, saves=saves)


def test_the_first_pause_is_none() -> None:
    assert not habit([], 5000)


@pytest.mark.parametrize(("silent", "usual"), [(9900, True), (10_100, False)])
def test_what_takes_twice_as_long_as_before_is_none(silent: float, usual: bool) -> None:
    assert habit([(-100_000, 5000)], silent) == usual


@pytest.mark.parametrize(("few", "usual"), [(1, False), (2, True)])
def test_one_pause_in_four_may_be_a_faults(few: int, usual: bool) -> None:
    pauses = [2000.0] * (4 - few) + [12_000.0] * few
    assert habit([(-300_000 + 50_000 * at, lasted) for at, lasted in enumerate(pauses)], 12_000) == usual


@pytest.mark.parametrize(("silent", "usual"), [(3600, False), (10_000, False)])
def test_silences_that_most_steps_have_are_no_pauses(silent: float, usual: bool) -> None:
    assert habit([(-200_000 + PERIOD * at, 3000) for at in range(40)], silent) == usual


def test_a_pause_is_measured_beyond_what_steps_are_silent_for() -> None:
    steps = [(-200_000 + PERIOD * at, 3000.0) for at in range(40)]
    assert habit([*steps, (-30_000, 6000)], 8900)
    assert not habit([*steps, (-30_000, 6000)], 9100)


@pytest.mark.parametrize(
    ("silent", "saved", "saves", "usual"),
    [
        (13_900, [(-150_000, 1.0)], True, True),
        (14_100, [(-150_000, 1.0)], True, False),
        (13_900, [(-150_000, 1.0)], False, False),  # what it saved says nothing of other pauses
        (13_900, [(-150_000, 0.9)], True, False),  # a log
        (13_900, [(-150_000 - PERIOD, 1.0)], True, True),  # the silence begins after the writes have
        (13_900, [(-150_001 - PERIOD, 1.0)], True, False),
        (13_900, [(-143_001, 1.0)], True, True),
        (13_900, [(-143_000, 1.0)], True, False),
    ],
)
def test_a_save_is_held_against_those_before_it(
    silent: float, saved: list[tuple[float, float]], saves: bool, usual: bool
) -> None:
    """It paused once for 7 s, and seven times for 2 s."""
    pauses = [(-150_000.0, 7000.0), *((-120_000.0 + 10_000 * at, 2000.0) for at in range(7))]
    assert habit(pauses, silent, saved, saves=saves) == usual


def test_what_comes_later_is_no_habit_yet() -> None:
    assert not habit([(20_000, 5000)], 5000)


@pytest.mark.parametrize(("silent_of_steps", "usual"), [(1200, True), (1300, False)])
def test_silences_of_about_a_second_are_steps_if_fewer_than_half_of_them_are_kept(
    silent_of_steps: float, usual: bool
) -> None:
    """Silences below a second are not kept, so that of steps that are silent for a second a few seem to be pauses."""
    steps = [(-200_000 + 3 * PERIOD * at, silent_of_steps) for at in range(15)]
    assert habit([*steps, (-10_000, 8000)], 7000) == usual


def test_pauses_of_about_a_second_are_some_if_there_are_no_others() -> None:
    assert habit([(-100_000, 1100)], 2100)


def test_the_silences_of_one_step_are_one_pause_and_those_between_steps_each_their_own() -> None:
    silences = [(10, 13), (20, 25), (110, 111), (210, 212), (220, 221)]
    known = pl.DataFrame([("j", *silence) for silence in silences], schema=PAUSES_SCHEMA, orient="row")
    evidence = dataclasses.replace(working([{"a": [500.0] * 4, "b": [500.0] * 4}]), pauses=known)
    found = pauses_of_steps("j", np.array([0, 100]), np.array([50, 200]), evidence)
    lasted = found.sort("since_ns").select("since_ns", pl.col("back_ns") - pl.col("since_ns")).rows()
    assert lasted == [(10, 8), (110, 1), (210, 2), (220, 1)]
