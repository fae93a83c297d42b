"""Templates that are a little less than a step are made whole; those that are a step, or a part with clear silences,
stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

from llmprism_tasks.numerics.robust import Floats
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Traffic
from llmprism_tasks.stages.step_division.groups.templates.fit import Fitting
from llmprism_tasks.stages.step_division.groups.templates.levels import explained_between

STREAMS, STEPS = 4, 40
BLOCKS = np.array([1e8] * 6 + [2e8] * 12)
"""Bytes of the blocks of a step: a ring of context passes twice as much on in the backward pass."""

MESSAGE = 5e6
"""Bytes of tokens that a NIC sends at a time."""

RATE = 25e9
"""Bytes that a NIC sends in a second."""


def _rings_of_context(*, optimizer_s: float, paused: int | None = None) -> Traffic:
    """Return four NICs that send a block every 72 ms or so.

    Parameters
    ----------
    optimizer_s : how long all are silent after the last block of a step
    paused : a step after which a few blocks more are sent, as by an evaluation; None for none
    """
    rng = np.random.default_rng(5)
    blocks = [np.append(BLOCKS, BLOCKS[:4]) if step == paused else BLOCKS for step in range(STEPS)]
    sizes = np.concatenate(blocks)
    silence = 0.072 * np.exp(rng.normal(0.0, 0.01, sizes.size)) - sizes / RATE
    silence[np.cumsum([one.size for one in blocks]) - 1] = optimizer_s
    return _sent(sizes, silence)


def _experts() -> Traffic:
    """Return four NICs that exchange tokens in bursts of 1, 3, 7 and 7 messages, with a second or so between these."""
    rng = np.random.default_rng(5)
    messages = np.array([1, 3, 7, 7])
    silence = 0.01 * np.exp(rng.normal(0.0, 0.5, STEPS * messages.sum()))
    silence[np.cumsum(np.tile(messages, STEPS)) - 1] = np.exp(rng.normal(0.0, 0.2, STEPS * messages.size))
    return _sent(np.full(silence.size, MESSAGE), silence)


def _sent(sizes: Floats, silence: Floats) -> Traffic:
    """Return what all NICs send at once, so many bytes each, with so many seconds of silence after each."""
    lasts = sizes / RATE
    begins = np.append(0.0, np.cumsum(lasts + silence)[:-1])
    starts, ends = (np.repeat((one * 1e9).astype(np.int64), STREAMS) for one in (begins, begins + lasts))
    stream = np.tile(np.arange(STREAMS), sizes.size)
    return Traffic(stream, stream, starts, ends, ends, np.repeat(sizes, STREAMS).astype(np.int64))


def _bytes_of(blocks: Floats) -> Floats:
    return np.full(STREAMS, blocks.sum())


@pytest.mark.parametrize("lacks", [0, 1, 2, 3])
def test_a_template_that_lacks_a_burst_of_a_step_is_made_whole(lacks: int) -> None:
    """The optimizer is shorter than what a layer takes, so cuts do not keep to it."""
    traffic = _rings_of_context(optimizer_s=0.02)
    found = Fitting.of(traffic, Settings().rhythm).fit(_bytes_of(BLOCKS[lacks:]))
    assert found is not None
    assert found.template == pytest.approx(_bytes_of(BLOCKS))
    assert found.whole.sum() >= STEPS - 1
    assert explained_between(found, traffic) == 1.0


def test_what_comes_once_beside_steps_is_no_part_of_them() -> None:
    traffic = _rings_of_context(optimizer_s=1.0, paused=20)
    found = Fitting.of(traffic, Settings().rhythm).fit(_bytes_of(BLOCKS))
    assert found is not None
    assert found.template == pytest.approx(_bytes_of(BLOCKS))


def test_what_clear_silences_keep_apart_is_not_put_together() -> None:
    """Half of the step's bytes, which end inside a burst every other time, leave nothing over either."""
    traffic = _experts()
    found = Fitting.of(traffic, Settings().rhythm).fit(np.full(STREAMS, 7 * MESSAGE))
    assert found is not None
    assert found.template == pytest.approx(np.full(STREAMS, 7 * MESSAGE))


@pytest.mark.parametrize("clocked", [True, False])
def test_silences_of_layers_that_last_for_long_make_no_cuts_if_a_clock_says_what_a_step_is(*, clocked: bool) -> None:
    """The first silence of a step is shorter than those in its backward pass, which are worth more than half a step."""
    blocks = np.array([6e8] * 8 + [50e8] * 8)
    silence = np.tile([0.26] * 8 + [0.7] * 7 + [0.26], STEPS)
    traffic = _sent(np.tile(blocks, STEPS), silence)
    found = Fitting.of(traffic, Settings().rhythm).fit(_bytes_of(blocks), clocked=clocked)
    assert (found is not None and found.whole.sum() >= STEPS - 1) == clocked


def test_steps_that_have_become_slow_are_cut_at_silences_of_their_own() -> None:
    """While others wait for a slow link silences are short, so half of the steps have all the long ones."""
    blocks = np.array([6e8] * 16 + [50e8] * 8)
    silence = np.tile([0.3] * 23 + [0.6], STEPS)
    silence[silence.size // 2 :] /= 20
    found = Fitting.of(_sent(np.tile(blocks, STEPS), silence), Settings().rhythm).fit(_bytes_of(blocks))
    assert found is not None
    assert found.whole.sum() >= STEPS - 1
