"""A template whose silences alone tell no steps is one of steps if it explains all, and no part of it does better."""

from __future__ import annotations

import numpy as np
import pytest

from llmprism_tasks.stages.step_division.groups.templates import CLOCKED_CLEAR_SIGMAS, EXPLAINED_BYTES, Steps

A_BIT = 1e-6


def steps(*, explained: float, clarity: float, of_parts: float = -np.inf) -> Steps:
    """Return steps of one stream."""
    times = np.array([10, 20, 30])
    like, share = np.ones((3, 1), np.bool_), np.ones(3)
    return Steps(np.ones(1), times, times, like, share, clarity, explained, clarity_of_parts=of_parts)


@pytest.mark.parametrize(("explained", "clear"), [(EXPLAINED_BYTES, True), (EXPLAINED_BYTES - A_BIT, False)])
def test_a_clear_template_explains_all(explained: float, clear: bool) -> None:
    assert steps(explained=explained, clarity=1.0).is_clear() == clear


@pytest.mark.parametrize(
    ("clarity", "clear"), [(CLOCKED_CLEAR_SIGMAS, True), (CLOCKED_CLEAR_SIGMAS - A_BIT, False), (np.nan, False)]
)
def test_silences_between_its_segments_are_longer(clarity: float, clear: bool) -> None:
    assert steps(explained=1.0, clarity=clarity).is_clear() == clear


@pytest.mark.parametrize(("of_parts", "clear"), [(1.4, True), (1.4 + A_BIT, False)])
def test_two_steps_yield_to_one(of_parts: float, clear: bool) -> None:
    assert steps(explained=1.0, clarity=1.4, of_parts=of_parts).is_clear() == clear
