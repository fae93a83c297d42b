"""What holds up one member of a job holds up all; a step cut at another place makes nobody later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np
import polars as pl
import pytest

from llmprism_tasks.stages.diagnosis.step_times.lasting_delay import is_lasting

USUAL = 1000
SPAN = {"addr": pl.String, "step_index": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}


def lasting(members: Mapping[str, Sequence[int]], first: int = 0, without: int | None = None) -> list[int]:
    """Return which steps made most members later by what the longest member's step exceeds the usual by.

    Parameters
    ----------
    members : lengths of their steps
    first : number of the first step
    without : a step that no member has
    """
    rows = [
        (addr, first + number, start, end)
        for addr, lengths in members.items()
        for number, (start, end) in enumerate(pairwise(accumulate(lengths, initial=50)))
        if number != without
    ]
    steps = pl.DataFrame(rows, schema=SPAN, orient="row")
    longest = np.max([*members.values()], axis=0)
    numbers = first + np.arange(longest.size)
    found = is_lasting(numbers, np.asarray(longest - USUAL, float), USUAL, steps)
    return [at for at in np.flatnonzero(found).tolist() if longest[at] > USUAL]


WELL = (1000,) * 6
HELD = (1000, 1000, 1000, 2000, 1000, 1000)
LATER = (1000, 1000, 1000, 1000, 2000, 1000)


@pytest.mark.parametrize("first", [0, -7])
def test_a_delay_of_all_members_lasts(first: int) -> None:
    assert lasting(dict.fromkeys("abcd", HELD), first) == [3]


@pytest.mark.parametrize(("held", "steps"), [("ab", []), ("abc", [3])])
def test_a_delay_of_half_of_the_members_is_none(held: str, steps: list[int]) -> None:
    """The others end their steps as early as ever: they are another job, or the steps of these were cut wrongly."""
    assert lasting({addr: HELD if addr in held else WELL for addr in "abcd"}) == steps


def test_who_had_ended_the_step_before_is_held_up_in_the_next_one() -> None:
    assert lasting({"a": HELD, "b": LATER}) == [3, 4]


def test_steps_cut_at_another_place_are_as_much_too_short_before_or_after() -> None:
    assert lasting(dict.fromkeys("ab", (1000, 1000, 1000, 1600, 400, 1000))) == []
    assert lasting(dict.fromkeys("ab", (1000, 1000, 400, 1600, 1000))) == []


@pytest.mark.parametrize(("length", "steps"), [(400, []), (600, [3])])
def test_half_of_the_excess_must_last(length: int, steps: list[int]) -> None:
    assert lasting(dict.fromkeys("ab", (1000, 1000, 1000, 2000, length, 1000))) == steps


@pytest.mark.parametrize("at", [0, 1, 5])
def test_the_first_and_the_last_step_are_seen_from_one_side(at: int) -> None:
    lengths = tuple(2000 if step == at else 1000 for step in range(6))
    assert lasting(dict.fromkeys("ab", lengths)) == [at]


def test_of_members_that_were_not_seen_nobody_knows() -> None:
    assert lasting({"a": HELD, "b": HELD}, without=4) == [3]  # it is known when the step after the missing one began
    nobody = is_lasting(np.arange(3), np.array([0.0, 1000, 0]), USUAL, pl.DataFrame(schema=SPAN))
    assert nobody.tolist() == [False] * 3
