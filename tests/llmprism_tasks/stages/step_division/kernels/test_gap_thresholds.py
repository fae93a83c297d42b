"""The ways to cut a series are those that sorting all of its gaps would show."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.jit import subroutine
from llmprism_tasks.numerics.robust import Floats
from llmprism_tasks.stages.step_division.kernels.gap_thresholds import MOST_CANDIDATES, ways_to_cut
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS

SHORTEST = 5_000_000.0


@subroutine
def _ways(gaps: Floats, others: bool, clearest_ratio: float, few_ratio: float) -> tuple[Floats, Floats]:
    thresholds, clarities = np.empty(MOST_CANDIDATES + 1), np.empty(MOST_CANDIDATES + 1)
    ways = ways_to_cut(gaps.copy(), gaps.size, others, SHORTEST, clearest_ratio, few_ratio, thresholds, clarities)
    return thresholds[:ways], clarities[:ways]


def _by_sorting(gaps: list[int], others: bool, clearest_ratio: float, few_ratio: float) -> list[tuple[float, float]]:
    falling = [*map(float, sorted(gaps, reverse=True)), *[SHORTEST] * others]
    apart = [(one / other, -rank, one, other) for rank, (one, other) in enumerate(itertools.pairwise(falling))]
    clear = [way for way in apart if way[0] >= min(clearest_ratio, few_ratio)]
    ways = [
        (float(np.sqrt(one * other)), ratio)
        for ratio, rank, one, other in sorted(clear, reverse=True)[:MOST_CANDIDATES]
        if ratio >= (clearest_ratio if -rank >= FEW_BURSTS - 1 else few_ratio)
    ]
    return ways if others else [*ways, (falling[-1] / 2, falling[-1] / SHORTEST)]


@given(
    st.lists(st.integers(5_000_001, 90_000_000_000) | st.integers(5_000_001, 5_000_100), min_size=1, max_size=80),
    st.booleans(),
    st.sampled_from([1.01, 1.1, 1.25, 1.5, 2.0, 3.0, 100.0]),
    st.sampled_from([1.01, 5.0]),
)
def test_thresholds_lie_between_neighbours_far_apart(
    gaps: list[int], others: bool, clearest_ratio: float, few_ratio: float
) -> None:
    thresholds, clarities = _ways(np.array(gaps, np.float64), others, clearest_ratio, few_ratio)
    assert list(zip(thresholds, clarities, strict=True)) == _by_sorting(gaps, others, clearest_ratio, few_ratio)


@pytest.mark.parametrize(("longer", "ways"), [(14_999_999, 0), (15_000_000, 1)])
def test_gaps_part_from_the_clearest_ratio_on(longer: int, ways: int) -> None:
    gaps = np.array([longer] * FEW_BURSTS + [10_000_000] * FEW_BURSTS, np.float64)
    assert _ways(gaps, True, 1.5, 5.0)[0].size == 1 + ways  # all of them are far from the shortest


def test_a_series_without_long_gaps_cannot_be_cut() -> None:
    assert _ways(np.empty(0), True, 1.5, 5.0)[0].size == 0
