"""Most of what rails of one job send begins together, of what others send little more than by chance."""

from __future__ import annotations

import numpy as np
import pytest

from llmprism_tasks.stages.recognition.kernels.coincidence import reach, together


def compared(starts: list[int], others: list[int], *, tolerance: float = 3) -> tuple[tuple[float, float], float]:
    ours, theirs = np.array(starts, dtype=np.int64), np.array(others, dtype=np.int64)
    met = together(ours, np.ones_like(ours), theirs, np.ones_like(theirs), tolerance=tolerance)
    return met, max(reach(one, tolerance=tolerance) for one in (ours, theirs))


def test_one_series_is_together_with_itself() -> None:
    assert compared([0, 50, 94], [0, 50, 94]) == ((1.0, 1.0), 0.18)


@pytest.mark.parametrize(("late", "met"), [(3, 1.0), (4, 0.0)])
def test_what_begins_within_the_tolerance_begins_together(late: int, met: float) -> None:
    """Sooner or later."""
    assert compared([0, 100, 200], [late, 100 + late, 200 + late])[0] == (met, met)
    assert compared([late, 100 + late, 200 + late], [0, 100, 200])[0] == (met, met)


def test_one_side_may_have_more_in_common() -> None:
    assert compared([0, 100, 200, 300], [100, 200])[0] == (0.5, 1.0)
    assert compared([100, 200], [0, 100, 200, 300])[0] == (1.0, 0.5)


def test_transfers_count_by_their_bytes() -> None:
    starts, others = np.array([0, 50, 100]), np.array([0, 100])
    assert together(starts, np.array([45, 10, 45]), others, np.array([1, 1]), tolerance=3) == pytest.approx((0.9, 1.0))


def test_where_transfers_are_close_chance_reaches_all() -> None:
    assert compared(list(range(0, 100, 6)), [0, 90])[1] == 1.0


def test_series_that_have_nothing_in_common_meet_as_often_as_chance_says() -> None:
    draw = np.random.default_rng(5)
    ours, theirs = (np.sort(draw.integers(0, 1_000_000, 5_000)) for _ in range(2))
    met = together(ours, np.ones_like(ours), theirs, np.ones_like(theirs), tolerance=20)
    chance = max(reach(one, tolerance=20) for one in (ours, theirs))
    assert met == pytest.approx((chance, chance), abs=0.02)
