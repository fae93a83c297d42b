"""What is sent layer by layer comes again after the bytes of a step, whatever time the step takes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from llmprism_tasks.numerics.robust import LEAST_RECURRENCES
from llmprism_tasks.stages.step_division.kernels.byte_lag import repeating_bytes

MS = 1_000_000
T0 = 1_760_000_000_000_000_000  # a real epoch time: differences of such numbers must not pass through floats
MB = 1_000_000

Transfer = tuple[float, float, float]
"""Silence before it and how long it lasts, both in ms, and MB."""


def sharded(steps: int, layers: int = 20, *, uneven: float = 0.0, seed: int = 1) -> list[Transfer]:
    """Return gathers of the forward pass, then gathers and reductions of the backward pass, all layers alike."""
    draw, rows = random.Random(seed), list[Transfer]()
    for _ in range(steps):
        pace = draw.lognormvariate(0, uneven)
        for silence, size in [(20, 10)] * layers + [(30, 20)] * layers:
            rows.append((silence * pace * draw.uniform(0.95, 1.05), size, size))
    return rows


def find(rows: Sequence[Transfer]) -> tuple[float, list[int]]:
    """Return the period in ms, and how many transfers each burst has."""
    ends = np.cumsum([silence + lasts for silence, lasts, _ in rows])
    starts = ends - [lasts for _, lasts, _ in rows]
    times = [T0 + np.round(each * MS).astype(np.int64) for each in (starts, ends)]
    sizes = np.array([round(size * MB) for *_, size in rows], dtype=np.int64)
    rhythms, numbers = repeating_bytes(
        *(*times, sizes, np.array([0, len(rows)], dtype=np.int64)),
        byte_tolerance=0.1,
        pace_tolerance=0.25,
        few_ratio=5.0,
    )
    lengths = np.bincount(numbers).tolist() if numbers[0] >= 0 else []
    return float(rhythms.period[0] / MS), lengths


@pytest.mark.parametrize("layers", [6, 20, 80])
def test_steps_of_equal_layers_are_found_where_the_forward_pass_begins(layers: int) -> None:
    period, lengths = find(sharded(12, layers))
    assert period == pytest.approx(layers * (20 + 10 + 30 + 20), rel=0.02)
    assert lengths[1:-1] == pytest.approx([2 * layers] * (len(lengths) - 2), rel=0.05)


def test_a_step_may_take_longer_than_the_one_before() -> None:
    _, lengths = find(sharded(20, uneven=0.15))
    assert lengths[1:-1] == pytest.approx([40] * (len(lengths) - 2), abs=1)


def test_what_a_collector_lost_does_not_move_the_steps() -> None:
    draw = random.Random(3)
    kept = [row for row in sharded(30) if draw.random() >= 0.01]
    _, lengths = find(kept)
    assert min(lengths[1:-1]) >= 36
    assert max(lengths) <= 40


@pytest.mark.parametrize(("steps", "found"), [(LEAST_RECURRENCES + 1, True), (LEAST_RECURRENCES - 1, False)])
def test_few_steps_are_not_told(steps: int, found: bool) -> None:
    assert bool(find(sharded(steps))[1]) is found


def test_what_early_ranks_push_belongs_to_the_layer_that_waits_for_them() -> None:
    rows: list[Transfer] = []
    for silence, lasts, size in sharded(12):
        rows += [(silence / 3, 0.1, 0.5), (silence * 2 / 3, lasts, size)]
    _, lengths = find(rows)
    assert lengths[1:-1] == [80] * (len(lengths) - 2)


@pytest.mark.parametrize("seed", range(5))
def test_what_comes_at_random_does_not_come_again(seed: int) -> None:
    draw = random.Random(seed)
    at_random = [(draw.expovariate(1 / 30), 10, draw.choice([10, 20, 40])) for _ in range(600)]
    alike = [(draw.uniform(25, 35), 10, 10) for _ in range(600)]
    assert find(at_random)[1] == find(alike)[1] == []


def test_a_short_series_has_no_period() -> None:
    assert find(sharded(1, 3)) == (pytest.approx(np.nan, nan_ok=True), [])
