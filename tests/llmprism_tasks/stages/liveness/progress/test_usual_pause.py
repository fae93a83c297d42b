"""Where a job may have ended in order: its step's longest pause, and pauses after which all NICs go on together."""

from __future__ import annotations

import polars as pl
import pytest

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.stages.liveness.progress.usual_pause import is_at_usual_pause, pauses_alike, usual_pauses

MS = 1_000_000
STEP_MS = 1000
STEPS = 5
SAME_SIZE = 0.02
BYTES = 1_000_000


def sends(turns: list[tuple[str, int]]) -> pl.DataFrame:
    """Return the flows of some steps in which NICs send at those times, for 10 ms each."""
    rows = [
        {
            "step": step,
            "src_addr": src,
            "dst_addr": "other",
            "flow_start_ns": (step * STEP_MS + at) * MS,
            "flow_end_ns": (step * STEP_MS + at + 10) * MS,
            "bytes": BYTES,
            "began_ns": step * STEP_MS * MS,
        }
        for step in range(STEPS)
        for src, at in turns
    ]
    return pl.DataFrame(rows)


def begun(records: int, each: int = BYTES) -> pl.DataFrame:
    """Return as many flows of the unfinished step."""
    return pl.DataFrame({"bytes": [each] * records})


BARRIER = [("a", 0), ("b", 5), ("a", 200), ("b", 205), ("a", 900), ("b", 905)]
"""Both NICs send, compute for a while, and go on together; their longest pause is after the second exchange."""


@pytest.mark.parametrize("sent", [2, 4])
def test_a_job_may_end_wherever_all_go_on_together(sent):
    assert is_at_usual_pause(begun(sent), usual_pauses(sends(BARRIER)), STEPS, SAME_SIZE)


@pytest.mark.parametrize("sent", [1, 3, 5])
def test_it_does_not_end_amid_an_exchange(sent):
    assert not is_at_usual_pause(begun(sent), usual_pauses(sends(BARRIER)), STEPS, SAME_SIZE)


@pytest.mark.parametrize(("late_ms", "together"), [(80, True), (110, False)])
def test_all_go_on_together_where_the_last_is_back_within_half_the_pause(late_ms, together):
    turns = [("a", 0), ("b", 5), ("a", 200), ("b", 200 + late_ms), ("a", 900), ("b", 905)]
    assert is_at_usual_pause(begun(2), usual_pauses(sends(turns)), STEPS, SAME_SIZE) == together


@pytest.mark.parametrize(("pause_ms", "ends"), [(380, True), (340, False)])
def test_a_turn_of_one_stage_is_a_pause_if_it_lasts_half_as_long_as_the_longest(pause_ms, ends):
    longest_ms = 720
    assert (pause_ms / longest_ms >= MAJORITY) == ends
    turns = [("a", 0), ("b", 10 + pause_ms), ("a", 20 + pause_ms + longest_ms)]
    assert is_at_usual_pause(begun(1), usual_pauses(sends(turns)), STEPS, SAME_SIZE) == ends


@pytest.mark.parametrize(("more", "ends"), [(1.8, True), (2.2, False)])
def test_as_many_bytes_are_as_many_but_for_a_share_of_the_step(more, ends):
    of_step = SAME_SIZE / 2 * BYTES * len(BARRIER)
    each = BYTES + int(more * of_step / 2)
    assert is_at_usual_pause(begun(2, each), usual_pauses(sends(BARRIER)), STEPS, SAME_SIZE) == ends


def test_a_job_may_end_at_each_pause_after_which_all_go_on_together() -> None:
    """One of 185 ms and one of 685 ms in a step of 915 ms; before its first flow there is none."""
    assert pauses_alike(usual_pauses(sends(BARRIER))) == (2, pytest.approx((185 + 685) / 915))


def test_of_turns_only_those_about_as_long_as_the_longest_count() -> None:
    turns = [("a", 0), ("b", 110), ("a", 400), ("b", 700)]
    assert pauses_alike(usual_pauses(sends(turns))) == (2, pytest.approx((280 + 290) / 710))


@pytest.mark.parametrize(("again_ms", "ends"), [(None, True), (20, True), (500, False)])
def test_a_job_may_end_after_what_is_sent_once_in_a_step(again_ms, ends):
    """`c` synchronises gradients, at once or in two parts; `a` goes on 50 ms later, `b` after that."""
    turns = [("c", 0), ("a", 60), ("b", 240), ("a", 380), ("b", 520), ("a", 660), ("b", 800)]
    turns += [] if again_ms is None else [("c", again_ms)]
    sent = 2 if again_ms == 20 else 1
    pauses = usual_pauses(sends(sorted(turns, key=lambda turn: turn[1])))
    assert is_at_usual_pause(begun(sent), pauses, STEPS, SAME_SIZE) == ends
