"""How many micro-batches a step is, where all of them gather parameters and reduce gradients."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import MB, MS

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Traffic
from llmprism_tasks.stages.step_division.groups.templates import accumulation, fit, levels, selection

DEFAULT = RhythmSettings()
SEND, FORWARD, BACKWARD, LOSS = 10.0, 25.0, 60.0, 90.0
"""Milliseconds that a layer's parameters take on the wire, and that its passes and the loss take to compute."""
OPTIMIZER = 20.0
LAYERS = 6
SENDERS = 2
UNITS = [2, *[1] * (LAYERS - 1), *[2] * (LAYERS - 1), 1, 1]
"""Layers' parameters that each burst moves: one is gathered ahead, and the last gradients are reduced alone."""


def traffic(
    batches: int, steps: int, optimizer: float = OPTIMIZER, between: float = 0.5, *, stalled: int = 0
) -> tuple[Traffic, np.ndarray]:
    """Return steps of micro-batches, and when each micro-batch was cut, in the middle of its backward pass, ns.

    Parameters
    ----------
    optimizer, between : silence after the last micro-batch of a step, and after each of the others, ms
    stalled : the burst of a micro-batch before which this silence is: the optimizer works before the first one, and if
        this is another one, all are steps
    """
    draw = np.random.default_rng(7)
    starts, ends, sizes, cuts, at = [], [], [], [], 0.0
    for number in range(batches * steps):
        lasting = [OPTIMIZER, *[FORWARD] * (LAYERS - 1), LOSS, *[BACKWARD] * LAYERS]
        lasting[stalled] = between if number % batches else optimizer
        for layer, silence in enumerate(lasting):
            at += silence * draw.lognormal(0, 0.05)
            if layer == LAYERS + 2:
                cuts.append(at - silence / 2)
            units = UNITS[layer]
            for sender in range(SENDERS):
                starts.append(at + sender * 0.1)
                ends.append(at + units * SEND)
                sizes.append(units * 10 * MB)
            at += units * SEND
    begins, lasts = (np.round(np.array(times) * MS).astype(np.int64) for times in (starts, ends))
    stream = np.tile(np.arange(SENDERS), begins.size // SENDERS)
    until = np.append(np.round(np.array(cuts) * MS).astype(np.int64), fit.FOREVER)
    return Traffic(stream, stream, begins, np.maximum.accumulate(lasts), lasts, np.array(sizes)), until


def told(sent: Traffic, until: np.ndarray, alike: np.ndarray | None = None) -> accumulation.Accumulated | None:
    silences = sent.silences(DEFAULT.shortest_quiet_ms * MS)
    all_alike = np.ones(until.size, np.bool_) if alike is None else alike
    all_alike[[0, -1]] = False  # the data begin and end within them
    known = {"clear": levels.CLEAR_SIGMAS, "jitter": levels.LEAST_VARIANCE}
    return accumulation.accumulated(sent, silences, until, all_alike, **known)


@pytest.mark.parametrize(("batches", "steps"), [(2, 8), (4, 6), (12, 5)])
def test_a_silence_in_every_kth_micro_batch_ends_a_step(batches: int, steps: int) -> None:
    found = told(*traffic(batches, steps))
    assert found is not None
    assert found.batches == batches
    assert set(np.diff(np.flatnonzero(found.first))) == {batches}
    # Cut before the third burst of the backward pass.
    left = sum(UNITS[LAYERS + 2 :])
    assert found.place == pytest.approx(left / sum(UNITS), abs=0.02)


def test_where_all_are_silent_after_each_they_are_steps() -> None:
    assert told(*traffic(4, 6, optimizer=OPTIMIZER, between=OPTIMIZER)) is None


@pytest.mark.parametrize(
    ("steps", "known"), [(accumulation.FEW_BURSTS - 1, False), (accumulation.FEW_BURSTS + 2, True)]
)
def test_a_few_steps_must_be_seen(steps: int, *, known: bool) -> None:
    assert (told(*traffic(8, steps)) is not None) == known


@pytest.mark.parametrize(("optimizer", "known"), [(0.8 * LOSS, True), (1.5 * LOSS, False)])
def test_what_is_longer_than_all_silences_inside_is_a_pause(optimizer: float, *, known: bool) -> None:
    assert (told(*traffic(10, 6, optimizer=optimizer)) is not None) == known


def test_a_silence_at_no_fixed_distance_tells_nothing() -> None:
    """Micro-batches that are silent now and then, as chance has it."""
    parts = [traffic(batches, 1) for batches in (3, 7, 2, 5, 8, 2, 6, 3, 9, 4)]
    at = np.cumsum([0, *(sent.latest[-1] for sent, _ in parts[:-1])])
    joined = Traffic(
        *(np.concatenate([sent[column] for sent, _ in parts]) for column in range(2)),
        *(
            np.concatenate([sent[column] + shift for (sent, _), shift in zip(parts, at, strict=True)])
            for column in range(2, 5)
        ),
        np.concatenate([sent.sizes for sent, _ in parts]),
    )
    until = np.concatenate([cuts[:-1] + shift for (_, cuts), shift in zip(parts, at, strict=True)])
    assert told(joined, np.append(until, fit.FOREVER)) is None


@pytest.mark.parametrize("lost", [0, 5])
def test_micro_batches_of_which_records_were_lost_are_not_asked(lost: int) -> None:
    sent, until = traffic(4, 9)
    alike = np.ones(until.size, np.bool_)
    alike[lost::7] = False
    found = told(sent, until, alike)
    assert found is not None
    assert found.batches == 4


def test_two_micro_batches_that_were_not_cut_apart_count_as_two() -> None:
    sent, until = traffic(4, 8)
    alike = np.ones(until.size - 1, np.bool_)
    alike[9] = False
    found = told(sent, np.delete(until, 9), alike)
    assert found is not None
    assert found.batches == 4


def test_steps_are_no_more_micro_batches_than_most() -> None:
    batches = accumulation.MOST_BATCHES + 1
    assert told(*traffic(batches, 5)) is None
    assert told(*traffic(accumulation.MOST_BATCHES, 5)) is not None


def test_the_steps_end_with_the_last_gradients() -> None:
    sent, _ = traffic(4, 8)
    steps = selection.repeated(sent, DEFAULT, selection.Signs(by_bytes=False, by_passes=True))
    assert steps is not None
    assert steps.told
    assert steps.ended
    begins = np.searchsorted(sent.starts, steps.ends_ns[steps.whole][:-1])
    silence = (sent.starts[begins] - sent.latest[begins - 1]) / MS
    assert silence == pytest.approx(OPTIMIZER, rel=0.2)


@pytest.mark.parametrize(("stalled", "batches"), [(0, 4), (3, 1), (5, 1)])
def test_what_is_silent_once_in_several_where_no_backward_pass_ends_are_steps(stalled: int, batches: int) -> None:
    """Ranks that wait for a checkpoint of others, after every few steps."""
    sent, _ = traffic(4, 8, stalled=stalled)
    steps = selection.repeated(sent, DEFAULT, selection.Signs(by_bytes=False, by_passes=True))
    assert steps is not None
    assert steps.template == pytest.approx([batches * sum(UNITS) * 10 * MB] * SENDERS)
