"""Where the backward pass of sharded training ends, by how long its silences are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gathered_traffic import SEND, UNIT, Bursts, gathered_traffic
from handmade import MS

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Traffic
from llmprism_tasks.stages.step_division.groups.templates import passes, selection
from llmprism_tasks.stages.step_division.groups.templates.fit import Fitting
from llmprism_tasks.stages.step_division.groups.templates.levels import LEAST_VARIANCE, NEARLY_ALL, Steps

DEFAULT = RhythmSettings()
STEPS = 20
FORWARD = 30.0
"""Milliseconds that the forward pass of a layer takes to compute."""


def step(layers: int, *, backward: float = 2.0, optimizer: float = 20.0, merged: bool = False) -> Bursts:
    """Return a step that gathers one layer ahead: forward, backward with gradients, and the last gradients alone.

    Parameters
    ----------
    backward : how many times as long as the forward pass the backward pass of a layer computes
    merged : whether the collector sees no silence in the forward pass
    """
    rest = FORWARD - SEND
    forward = [(optimizer, layers)] if merged else [(optimizer, 2), *[(rest, 1)] * (layers - 2)]
    return [*forward, (rest, 1), *[(backward * rest, 2)] * (layers - 2), *[(backward * rest, 1)] * 2]


def traffic(bursts: Bursts) -> tuple[Traffic, np.ndarray]:
    """Return the traffic of two senders in such steps, and when each burst ends, ns, shape (steps, bursts)."""
    sent = gathered_traffic(bursts * STEPS)
    return sent, sent.ends[1::2].reshape(STEPS, len(bursts))


def backward(
    bursts: Bursts, after: int | np.ndarray, parts: int = 1, *, by_bursts: bool = False
) -> passes.Backward | None:
    """Return where the backward pass ends, after steps were found that end after a burst of each."""
    sent, ends = traffic(bursts)
    silences = sent.silences(DEFAULT.shortest_quiet_ms * MS)
    known = {"same_bytes": DEFAULT.byte_tolerance, "jitter": LEAST_VARIANCE}
    return passes.end_of_backward(
        sent, silences, ends[np.arange(STEPS), after], parts=parts, by_bursts=by_bursts, **known
    )


def ratio(bursts: Bursts, after: int) -> float | None:
    """Return the same as a ratio of a step, 0 where it is near to where the steps were found to end."""
    found = backward(bursts, after)
    return found and (found.ratio if found.moved else 0.0)


LAYERS = 10


@pytest.mark.parametrize("merged", [False, True])
def test_steps_that_end_with_the_forward_pass_end_with_the_backward_pass(merged: bool) -> None:
    bursts = step(LAYERS, merged=merged)
    turn = 0 if merged else LAYERS - 2
    moved = [units for _, units in bursts]
    assert ratio(bursts, turn) == pytest.approx(sum(moved[turn + 1 :]) / sum(moved), abs=0.01)


@pytest.mark.parametrize("early", [0.01, 0.05])
def test_what_is_sent_ahead_of_the_others_ends_no_step(early: float) -> None:
    """Who comes first in the backward pass sends a little, and the rest when all are there."""
    bursts, turn = step(LAYERS), LAYERS - 2
    parts = [part for wait, units in bursts[turn + 1 :] for part in ((0.7 * wait, early), (0.3 * wait, units - early))]
    moved = [units for _, units in bursts]
    assert ratio([*bursts[: turn + 1], *parts], turn) == pytest.approx(sum(moved[turn + 1 :]) / sum(moved), abs=0.01)


def test_steps_that_end_with_the_backward_pass_are_right() -> None:
    assert ratio(step(LAYERS), -1) == 0.0


@pytest.mark.parametrize(("after", "left"), [(-3, 0), (-4, 4)])
def test_steps_that_end_less_than_half_a_pass_before_it_are_taken_for_right(after: int, left: int) -> None:
    """Two units, or four, of twenty-nine."""
    assert ratio(step(LAYERS), after) == pytest.approx(left / 29, abs=0.01)


@pytest.mark.parametrize(("last", "left"), [(95.0, 0), (110.0, 2)])
def test_steps_that_end_half_a_pass_of_time_before_it_are_not(last: float, left: int) -> None:
    """Two units of twenty-nine. The next step begins 88 ms later than where they were cut, of 905, or 95 of 920."""
    bursts = step(LAYERS)
    bursts[-2:] = [(last / 2, units) for _, units in bursts[-2:]]
    assert ratio(bursts, -3) == pytest.approx(left / 29, abs=0.01)


def test_steps_that_were_cut_at_two_places_are_all_told_by_the_end_of_the_backward_pass() -> None:
    bursts = step(LAYERS)
    after = np.where(np.arange(STEPS) < 3 * STEPS // 4, len(bursts) - 1, len(bursts) - LAYERS)
    found = backward(bursts, after)
    assert found is not None
    assert found.moved
    of_step = 2 * UNIT * sum(units for _, units in bursts)
    off = (found.places / of_step + 0.5) % 1.0 - 0.5
    assert np.abs(off).max() < 1 / passes.PLACES_PER_STEP


def test_passes_that_compute_alike_tell_nothing() -> None:
    assert ratio(step(LAYERS, backward=1.0), 3) is None


@pytest.mark.parametrize(("reduced", "known"), [(0, False), (2, True)])
def test_where_silences_tell_nothing_bursts_do_in_which_gradients_are_reduced(reduced: int, known: bool) -> None:
    """The link is so busy that a layer is as long silent in both passes. Gradients have twice the bytes of parameters,
    and those of the last two layers are reduced alone. The first gather is of two layers, and of the embedding."""
    forward, rest = (
        [(20.0, 3), *[(20.0, 1)] * (LAYERS - 1)],
        [(20.0, 1 + reduced)] * (LAYERS - 2) + [(20.0, max(reduced, 1))] * 2,
    )
    bursts = [*forward, *rest]
    assert backward(bursts, LAYERS - 1) is None
    told = backward(bursts, LAYERS - 1, by_bursts=True)
    assert (told is not None) == known
    if told is not None:
        units = [size for _, size in rest]
        assert told.ratio == pytest.approx(sum(units) / (sum(units) + LAYERS + 2), abs=0.01)


@pytest.mark.parametrize(("layers", "known"), [(4, False), (6, True)])
def test_few_layers_do_not_make_it_sure(layers: int, known: bool) -> None:
    assert (ratio(step(layers), layers - 2) is not None) == known


@pytest.mark.parametrize(("later", "known"), [(40.0, False), (60.0, True)])
def test_a_cycle_of_which_all_parts_are_alike_has_no_passes(later: float, known: bool) -> None:
    """Three times a silence, and buckets of which most come later the second and third time."""
    parts = [[(90.0, 1), *[(20.0, 1)] * 3, *[(wait, 1)] * 6] for wait in (20.0, later, later)]
    bursts = [burst for part in parts for burst in part]
    assert backward(bursts, -1) is not None
    assert (backward(bursts, -1, parts=3) is not None) == known
    found = selection.repeated(traffic(bursts)[0], DEFAULT, selection.Signs(by_bytes=False, by_passes=True))
    assert (found is not None) == known


@pytest.mark.parametrize(("optimizer", "known"), [(180.0, True), (300.0, False)])
def test_a_silence_that_is_as_long_as_a_pass_is_one(optimizer: float, known: bool) -> None:
    """Of a step of 910 ms, or of 1030 ms."""
    assert (ratio(step(LAYERS, optimizer=optimizer), LAYERS - 2) is not None) == known


@pytest.mark.parametrize(("gradients", "known"), [(20, True), (32, False)])
def test_where_half_of_the_bytes_are_one_burst_passes_are_not_told(gradients: int, known: bool) -> None:
    """Gradients of all layers at once, and the gathers of a step of 29 units."""
    bursts = [*step(LAYERS)[:-1], (40.0, gradients)]
    assert (ratio(bursts, LAYERS - 2) is not None) == known


@pytest.mark.parametrize(
    ("explained", "clear", "ended"),
    [(NEARLY_ALL, False, True), (NEARLY_ALL - 1e-6, False, False), (NEARLY_ALL - 1e-6, True, True)],
)
def test_cuts_where_the_backward_pass_ends_make_steps_unless_it_is_clear_what_steps_are(
    explained: float, *, clear: bool, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut at the passes that several steps of a pipeline seemed to have, most of them were like no other. So may be
    those of clear steps, once a host has become slow."""
    cut = Fitting.cut

    def unlike(self: Fitting, *given: Any) -> Steps | None:
        steps = cut(self, *given)
        return None if steps is None else steps._replace(explained=explained)

    monkeypatch.setattr(Fitting, "cut", unlike)
    monkeypatch.setattr(Steps, "is_clear", lambda _: clear)
    found = selection.repeated(traffic(step(LAYERS))[0], DEFAULT, selection.Signs(by_bytes=False, by_passes=True))
    assert found is not None
    assert found.ended == ended


def test_layers_that_are_all_alike_are_no_steps() -> None:
    """Each burst is a whole layer, and explains all as well as the step does."""
    bursts = [(80.0, 2), *[(20.0, 2)] * 9, *[(40.0, 2)] * 19]
    sent, _ = traffic(bursts)
    found = selection.repeated(sent, DEFAULT, selection.Signs(by_bytes=False, by_passes=True))
    assert found is not None
    assert found.template.sum() == pytest.approx(2 * 29 * 2 * UNIT)


def test_bursts_that_are_as_far_apart_as_each_other_may_be_steps() -> None:
    sent, _ = traffic([(40.0, 2)] * 29)
    assert selection.repeated(sent, DEFAULT, selection.Signs(by_bytes=False, by_passes=True)) is None


@pytest.mark.parametrize(("long", "known"), [(6, False), (12, True)])
def test_the_backward_pass_moves_most_of_the_bytes(long: int, known: bool) -> None:
    """Of twenty bursts, so many follow long silences."""
    bursts = [(20.0, 1)] * (20 - long) + [(60.0, 1)] * long
    assert (ratio(bursts, 19 - long) is not None) == known
