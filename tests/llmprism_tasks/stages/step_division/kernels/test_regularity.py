"""Bursts of equal bytes at a steady pace are periodic, as medians of all differences would say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.jit import subroutine
from llmprism_tasks.numerics.robust import Floats
from llmprism_tasks.stages.step_division.kernels.regularity import (
    EXACT_BURSTS,
    FEW_BURSTS,
    MANY_BURSTS,
    UNEVEN_PERIODS,
    rhythm,
)

BYTES, PACE = 0.1, 0.25
CLEAR = 5.0


@subroutine
def _rhythm(ends: Floats, carried: Floats, uneven: float, clarity: float) -> tuple[float, float, float]:
    return rhythm(ends - 1.0, ends, carried, ends.size, clarity, BYTES, PACE, uneven, CLEAR)


def _is_periodic(
    changes: float, carried: Sequence[float], *, clarity: float = 1.0, uneven: float = UNEVEN_PERIODS
) -> bool:
    """Tell of bursts whose periods change by a ratio from each to the next."""
    ends = np.cumsum([100 * (1 + changes / 2 * (-1) ** i) for i in range(len(carried))])
    return not np.isnan(_rhythm(ends, np.array(carried, np.float64), uneven, clarity)[0])


@pytest.mark.parametrize(("change", "periodic"), [(UNEVEN_PERIODS - 0.02, True), (UNEVEN_PERIODS + 0.02, False)])
def test_the_pace_of_many_bursts_of_equal_bytes_may_vary(change: float, periodic: bool) -> None:
    assert _is_periodic(change, [100.0] * (MANY_BURSTS + 3)) is periodic
    assert not _is_periodic(change, [100.0] * (MANY_BURSTS + 3), uneven=PACE)


def test_of_some_bursts_equal_bytes_tell_only_where_they_are_clear() -> None:
    some = [100.0] * (MANY_BURSTS + 1)
    assert not _is_periodic(0.35, some, clarity=CLEAR - 0.1)
    assert _is_periodic(0.35, some, clarity=CLEAR)


def test_bytes_tell_if_nearly_all_bursts_carry_the_same() -> None:
    whole = 21
    for other, periodic in ((round((1 - EXACT_BURSTS) * whole), True), (round((1 - EXACT_BURSTS) * whole) + 1, False)):
        carried = [100.0] * (whole + 2)
        carried[1 : 2 * other : 2] = [50.0] * other
        assert _is_periodic(0.35, carried) is periodic


def _change(values: Floats) -> float:
    return float(np.median(np.abs(np.diff(values))) / np.median(values))


@given(st.lists(st.tuples(st.integers(80, 130), st.integers(90, 112)), min_size=FEW_BURSTS + 1, max_size=40))
def test_what_changes_little_typically_is_periodic(bursts: list[tuple[int, int]]) -> None:
    pace, carried = (np.array(each, np.float64) for each in zip(*bursts, strict=True))
    ends = np.cumsum(pace)
    periods = np.diff(ends)
    periodic = _change(carried[1:-1]) <= BYTES and _change(periods) <= PACE
    expected = (np.median(periods), np.mean(periods), 1.0) if periodic else (np.nan,) * 3
    np.testing.assert_allclose(_rhythm(ends, carried, PACE, CLEAR), expected, rtol=1e-12)


def test_a_change_of_just_the_tolerance_is_steady_and_no_more() -> None:
    ends = np.arange(6.0) * 100
    carried = [np.array([0.0, 100.0, 100.0 + more, 100.0, 100.0 + more, 0.0]) for more in (10.0, 12.0)]
    assert [bool(np.isnan(_rhythm(ends, each, PACE, CLEAR)[0])) for each in carried] == [False, True]
