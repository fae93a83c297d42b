"""Bursts of equal bytes at a steady pace are periodic, as medians of all differences would say."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.jit import subroutine
from llmprism_tasks.numerics.robust import Floats
from llmprism_tasks.stages.step_division.kernels.regularity import FEW, rhythm

BYTES, PACE = 0.1, 0.25


@subroutine
def _rhythm(ends: Floats, carried: Floats) -> tuple[float, float, float]:
    return rhythm(ends - 1.0, ends, carried, ends.size, 5.0, BYTES, PACE, 5.0)


def _change(values: Floats) -> float:
    return float(np.median(np.abs(np.diff(values))) / np.median(values))


@given(st.lists(st.tuples(st.integers(80, 130), st.integers(90, 112)), min_size=FEW + 1, max_size=40))
def test_what_changes_little_typically_is_periodic(bursts: list[tuple[int, int]]) -> None:
    pace, carried = (np.array(each, np.float64) for each in zip(*bursts, strict=True))
    ends = np.cumsum(pace)
    periods = np.diff(ends)
    periodic = _change(carried[1:-1]) <= BYTES and _change(periods) <= PACE
    expected = (np.median(periods), np.mean(periods), 1.0) if periodic else (np.nan,) * 3
    np.testing.assert_allclose(_rhythm(ends, carried), expected, rtol=1e-12)


def test_a_change_of_just_the_tolerance_is_steady_and_no_more() -> None:
    ends = np.arange(6.0) * 100
    carried = [np.array([0.0, 100.0, 100.0 + more, 100.0, 100.0 + more, 0.0]) for more in (10.0, 12.0)]
    assert [bool(np.isnan(_rhythm(ends, each)[0])) for each in carried] == [False, True]
