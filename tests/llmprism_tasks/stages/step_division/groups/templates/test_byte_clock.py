"""How many bytes a step is, told by what comes again after as many of them."""

from __future__ import annotations

import numpy as np
import pytest

from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.step_division.groups.templates import byte_clock

MS = 1_000_000
MB = 1_000_000
Sent = list[tuple[float, int, int]]
"""Records: the pause before each, ms; its pair; its bytes."""


def clock(records: Sent) -> float | None:
    pauses, pairs, sizes = (np.array(column) for column in zip(*records, strict=True))
    starts: Integers = (np.cumsum(pauses) * MS).astype(np.int64)
    again = byte_clock.step_bytes(starts, int(starts[-1]) + MS, sizes.astype(np.int64), pairs.astype(np.int64))
    return next(again, None)


def jittered(rng: np.random.Generator, lasts: float, sigma: float = 0.1) -> float:
    return float(lasts * np.exp(rng.normal(0, sigma)))


def pipeline(steps: int, micro_batches: int, *, turns: bool = True) -> Sent:
    """Return what three stages exchange: as many activations under way as stages follow, then one of each, then the
    rest of the gradients. Without turns each is answered at once."""
    rng, records = np.random.default_rng(3), Sent()
    for _ in range(steps):
        for link, ahead in ((0, 3), (1, 2)) if turns else ((0, 1), (1, 1)):
            order = [0] * ahead + [1, 0] * (micro_batches - ahead) + [1] * ahead
            records += [(jittered(rng, 10 + link), 2 * link + way, MB) for way in order]
    return records


def layers(steps: int, gradients: int, *, sigma: float = 0.1, seed: int = 1) -> Sent:
    """Return steps of eight layers, in each of which four pairs exchange as much, and gradients at the end."""
    rng, records = np.random.default_rng(seed), Sent()
    for _ in range(steps):
        for _ in range(8):
            records += [(jittered(rng, 50, sigma) if pair == 0 else 0.1, pair, MB) for pair in range(4)]
        records += [(jittered(rng, 50, sigma) if one == 0 else 0.1, 4, MB) for one in range(gradients)]
    return records


def test_a_step_is_what_comes_once_in_it() -> None:
    """Its layers are alike, but for the gradients after the last of them."""
    assert clock(layers(12, gradients=6)) == pytest.approx(38 * MB, rel=1e-3)


def test_layers_without_anything_that_comes_once_are_no_steps_of_eight() -> None:
    assert clock(layers(12, gradients=0)) == pytest.approx(4 * MB, rel=1e-2)


@pytest.mark.parametrize("sigma", [0.05, 0.35])
def test_times_may_vary(sigma: float) -> None:
    assert clock(layers(20, gradients=6, sigma=sigma)) == pytest.approx(38 * MB, rel=1e-3)


def test_a_pipeline_turns_once_in_a_step() -> None:
    assert clock(pipeline(12, micro_batches=8)) == pytest.approx(32 * MB, rel=1e-3)


def test_three_steps_are_enough_and_two_are_not() -> None:
    assert clock(layers(4, gradients=6)) == pytest.approx(38 * MB, rel=1e-3)
    assert clock(layers(2, gradients=6)) != pytest.approx(38 * MB, rel=1e-3)


def test_traffic_at_random_never_comes_again() -> None:
    rng = np.random.default_rng(5)
    records = [
        (float(rng.exponential(20)), int(rng.integers(6)), int(rng.integers(1, 40)) * 100_000) for _ in range(900)
    ]
    assert clock(records) is None


def alternating(other: int) -> Sent:
    """Return bursts of two pairs, the second of which is another one in every second burst."""
    rng = np.random.default_rng(2)
    turns = [(0, 1), (0, other)] * 40
    return [(jittered(rng, 100.0) if not at else 0.1, pair, MB) for turn in turns for at, pair in enumerate(turn)]


def test_what_is_left_beside_a_shorter_period_decides() -> None:
    """Bursts that differ by turns make two of them a step; bursts that are alike do not."""
    assert clock(alternating(1)) == pytest.approx(2 * MB, rel=1e-2)
    assert clock(alternating(2)) == pytest.approx(4 * MB, rel=1e-2)


def test_a_period_need_be_no_whole_number_of_portions() -> None:
    """Else several steps of 409.6 portions were told as one."""
    records: Sent = [(1000.0 if burst == 0 else 15.0, 0, 20 * MB) for _ in range(40) for burst in range(4)]
    assert clock(records) == pytest.approx(80 * MB, rel=1e-3)
