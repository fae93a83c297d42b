"""How many bytes a step of sharded training is, told by how long its silences are."""

from __future__ import annotations

import numpy as np
import pytest
from gathered_traffic import UNIT, Bursts, gathered_traffic
from handmade import MS

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Traffic
from llmprism_tasks.stages.step_division.groups.templates import selection, silence_clock

DEFAULT = RhythmSettings()


def step(layers: int) -> Bursts:
    """Return the bursts of a step: gathers, and then gathers with as many gradients, which take twice as long."""
    return [(20.0, 1)] * layers + [(40.0, 2)] * layers


def again(sent: Traffic) -> silence_clock.Again | None:
    return silence_clock.step_bytes(sent, sent.silences(DEFAULT.shortest_quiet_ms * MS))


def units(sent: Traffic) -> float | None:
    """Return how many layers' parameters each of the senders moves in a step."""
    told = again(sent)
    return None if told is None else told.step / (2 * UNIT)


@pytest.mark.parametrize("layers", [4, 7, 12, 30])
def test_a_step_is_a_forward_and_a_backward_pass(layers: int) -> None:
    assert units(gathered_traffic(step(layers) * 20)) == pytest.approx(3 * layers, rel=0.02)


@pytest.mark.parametrize("every", [4, 7, 20])
def test_pauses_after_some_steps_are_no_part_of_them(every: int) -> None:
    """Of 60 silences one is a pause at most, less than `PAUSES_SHARE`, and counts as the longest of the others."""
    first, *rest = step(8)
    paused = [(5_000.0, first[1]), *rest]
    sent = gathered_traffic((paused + step(8) * (every - 1)) * 5)
    assert units(sent) == pytest.approx(24, rel=0.02)
    found = selection.repeated(sent, DEFAULT, selection.Signs(by_bytes=False, by_passes=True))
    assert found is not None
    assert found.template.sum() == pytest.approx(2 * 24 * UNIT, rel=0.02)


def test_a_third_of_a_step_is_none_though_silences_come_again_after_it_a_little_less_exactly() -> None:
    """Gradients of as many bytes follow the forward pass and each half of the backward pass."""
    forward, half = ([(silence, 1)] * 14 + [(200.0, 5)] for silence in (60.0, 200.0))
    assert units(gathered_traffic([*forward, *half, *half] * 20)) == pytest.approx(3 * 19, rel=0.02)
    assert units(gathered_traffic(forward * 60)) == pytest.approx(19, rel=0.02)


def test_silences_of_chance_tell_nothing() -> None:
    """Equal bursts between which any time goes by: with 40 seeds the correlation is 0.21 at most."""
    equal = [(20.0, 1)] * 240
    assert [again(gathered_traffic(equal, jitter=0.5, seed=seed)) for seed in range(10)] == [None] * 10


@pytest.mark.parametrize(("longer", "told"), [(1.03, False), (1.06, True)])
def test_silences_that_hardly_differ_are_of_one_length(longer: float, *, told: bool) -> None:
    """Six and six of them in turn: their logarithms deviate by 0.015, or by 0.03."""
    in_turn = ([(400.0, 1)] * 6 + [(400.0 * longer, 1)] * 6) * 20
    assert (again(gathered_traffic(in_turn, jitter=0.0)) is not None) == told


def test_passes_are_told_from_silences_that_vary() -> None:
    """With a sigma of 0.35 for silences that differ by 0.7 the correlation is 0.37 to 0.52, with one of 0.5 below
    `LEAST_CORRELATION`."""
    assert again(gathered_traffic(step(12) * 20, jitter=0.5, seed=2)) is None
    told = again(gathered_traffic(step(12) * 20, jitter=0.35))
    assert told is not None
    assert told.correlation >= silence_clock.LEAST_CORRELATION
    assert told.step == pytest.approx(2 * 36 * UNIT, rel=0.02)


def test_single_bursts_with_pauses_are_steps_and_no_parts_of_one() -> None:
    """Each burst moves the same, so what comes again after 25 of them is nothing but the pause."""
    sent = gathered_traffic(([(3_000.0, 4)] + [(400.0, 4)] * 24) * 8, jitter=0.1)
    assert selection.repeated(sent, DEFAULT, selection.Signs(by_bytes=False, by_passes=True)) is None


def parted(longer: int, times: float) -> Bursts:
    """Return 195 equal steps, of which three in ten send in two bursts; of each 15 the first ones come after a silence
    that is so many times as long."""
    draw, bursts = np.random.default_rng(0), []
    for number in range(195):
        silence = 500.0 * (times if number % 15 < longer else 1.0)
        bursts += [(silence, 1), (6.0, 1)] if draw.random() < 0.3 else [(silence, 2)]
    return bursts


@pytest.mark.parametrize(("longer", "times", "told"), [(1, 2.4, None), (7, 2.4, 15)], ids=["a pause", "two passes"])
def test_a_pause_after_every_few_equal_bursts_makes_no_step_of_them(
    longer: int, times: float, told: int | None
) -> None:
    """Without the longest of 15 silences the others come again if they are of two lengths, and else by chance."""
    found = selection.repeated(
        gathered_traffic(parted(longer, times)), DEFAULT, selection.Signs(by_bytes=False, by_passes=True)
    )
    assert (None if found is None else round(found.template.sum() / (4 * UNIT))) == told
