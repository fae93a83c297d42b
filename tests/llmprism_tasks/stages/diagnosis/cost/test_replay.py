"""A replay ends when the operations that were waited for do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.diagnosis.cost.replay import finish


def played(durations: list[float], waits_for: list[list[int]], earliest: list[float] | None = None) -> list[float]:
    offsets = np.cumsum([0, *map(len, waits_for)]).astype(np.int64)
    predecessors = np.array([i for one in waits_for for i in one], dtype=np.int64)
    starts = np.full(len(durations), -np.inf) if earliest is None else np.array(earliest, dtype=np.float64)
    return finish(np.array(durations, dtype=np.float64), starts, offsets, predecessors).tolist()


@pytest.mark.parametrize(
    ("durations", "waits_for", "ends"),
    [
        ([], [], []),
        ([3], [[]], [3]),
        ([3, 4], [[], [0]], [3, 7]),
        ([3, 4, 1], [[], [], [0, 1]], [3, 4, 5]),
        ([3, 4, 0, 2, 1], [[], [], [0, 1], [2], [2]], [3, 4, 4, 6, 5]),
    ],
)
def test_an_operation_starts_when_all_it_waits_for_have_ended(
    durations: list[float], waits_for: list[list[int]], ends: list[float]
) -> None:
    assert played(durations, waits_for) == ends


def test_an_operation_does_not_start_before_its_earliest_time() -> None:
    assert played([3, 4], [[], [0]], [10, 20]) == [13, 24]


def test_a_long_last_pp_stage_costs_what_even_stages_would_save() -> None:
    """Two pp_stages of 1 and 3 s, two micro-batches forward: 1 + 3 + 3 s, and 2 + 2 + 2 s if they were even."""
    waits_for = [[], [0], [0], [1, 2]]
    uneven, even = ([first, first, last, last] for first, last in ((1.0, 3.0), (2.0, 2.0)))
    order = [0, 2, 1, 3]  # first 0, last 0, first 1, last 1
    measured, ideal = (played([d[i] for i in order], waits_for)[-1] for d in (uneven, even))
    assert (measured, ideal) == (7, 6)


@given(st.lists(st.tuples(st.integers(0, 100), st.sets(st.integers(0, 20))), min_size=1, max_size=20), st.data())
def test_a_shorter_operation_never_makes_the_replay_longer(
    drawn: list[tuple[int, set[int]]], data: st.DataObject
) -> None:
    durations = [float(duration) for duration, _ in drawn]
    waits_for = [sorted(i for i in before if i < position) for position, (_, before) in enumerate(drawn)]
    shorter = [float(data.draw(st.integers(0, int(duration)))) for duration in durations]
    for before, after in zip(played(durations, waits_for), played(shorter, waits_for), strict=True):
        assert after <= before
