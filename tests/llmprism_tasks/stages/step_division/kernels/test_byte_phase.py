"""A step that moves the same bytes every time ends where it is quiet after the same of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.step_division.kernels.byte_phase import quiet_places

MS = 1_000_000
T0 = 1_760_000_000_000_000_000  # a real epoch time: differences of such numbers must not pass through floats
MB = 1_000_000

Transfer = tuple[float, int, int]
"""Silence before it in ms, its bytes, and whether it is of the size that comes once a period."""

BUCKETS: list[Transfer] = [(200, 4 * MB, 0), (100, 3 * MB, 0), (100, 6 * MB, 1), (100, 3 * MB, 0), (100, 4 * MB, 0)]


class Found(NamedTuple):
    """What `quiet_places` says of one series: ms, and the burst of each transfer."""

    rhythm: dict[str, float]
    numbers: list[int]

    @property
    def lengths(self) -> list[int]:
        """How many transfers each burst has."""
        return np.bincount(self.numbers).tolist() if self.numbers and self.numbers[0] >= 0 else []


def find(*series: Sequence[Transfer]) -> list[Found]:
    """Look at series of transfers that last 10 ms each."""
    rows = [row for one in series for row in one]
    starts = T0 + np.cumsum([round((gap + 10) * MS) for gap, _, _ in rows]).astype(np.int64)
    offsets = np.cumsum([0, *map(len, series)]).astype(np.int64)
    rhythms, numbers = quiet_places(
        *(starts, starts + 10 * MS),
        np.array([size for _, size, _ in rows], dtype=np.int64),
        np.array([marked for *_, marked in rows], dtype=np.int64),
        offsets,
        same_size=0.02,
        byte_tolerance=0.1,
        pace_tolerance=0.25,
        few_ratio=5.0,
    )
    each = np.split(numbers, offsets[1:-1])
    return [
        Found({name: float(column[i]) for name, column in rhythms._asdict().items()}, list(map(int, one)))
        for i, one in enumerate(each)
    ]


def jittered(step: Sequence[Transfer], count: int, *, by: float = 0.4, seed: int = 1) -> list[Transfer]:
    """Return steps whose silences all vary by a ratio, so that no gap is long enough to tell any of them."""
    draw = random.Random(seed)
    return [(gap * draw.uniform(1 - by, 1 + by), size, marked) for _ in range(count) for gap, size, marked in step]


def test_steps_meet_where_it_is_quiet_after_the_same_bytes() -> None:
    """The longest silence inside a step is longer than the shortest one between two."""
    (found,) = find(jittered(BUCKETS, 20))
    assert found.lengths == [5] * 20
    assert found.rhythm["period"] == pytest.approx(650 * MS, rel=0.1)
    assert found.rhythm["threshold"] == pytest.approx(200 * MS, rel=0.1)
    assert found.rhythm["clarity"] >= 0.7
    assert found.rhythm["bursts"] == 20


def test_a_step_whose_mark_is_missing_is_told_by_its_bytes() -> None:
    """The collector split it."""
    rows = jittered(BUCKETS, 20)
    split = [(rows[52][0], 2 * MB, 0), (30.0, 4 * MB, 0)]
    (found,) = find([*rows[:52], *split, *rows[53:]])
    assert found.lengths == [5] * 10 + [6] + [5] * 9


def test_other_traffic_may_shift_the_mark() -> None:
    """Blocks of 0.5 MB go round throughout the step; a bucket goes one earlier or later, as it happens."""
    draw = random.Random(3)
    rows: list[Transfer] = []
    for _ in range(20):
        step: list[Transfer] = [(20 + 30 * draw.random(), 500_000, 0) for _ in range(28)]
        for place, (_, size, marked) in zip((24, 20, 16, 12), reversed(BUCKETS[:-1]), strict=True):
            step.insert(place + draw.randint(-1, 1), (20 + 30 * draw.random(), size, marked))
        rows += [(60 + 30 * draw.random(), 500_000, 0), *step, (20, BUCKETS[-1][1], 0)]
    assert find(rows)[0].lengths == [34] * 20


@pytest.mark.parametrize(("other", "found"), [(5, True), (7, False)])
def test_most_silences_must_be_at_the_same_place(other: int, found: bool) -> None:
    """In so many of twenty steps the longest silence is before the third bucket."""
    rows = jittered(BUCKETS, 20, by=0.1)
    for step in range(other):
        rows[15 * step % 100 + 2] = (400, 6 * MB, 1)
    assert bool(find(rows)[0].lengths) == found


@pytest.mark.parametrize(("times", "found"), [(3, True), (4, False)])
def test_a_step_ends_with_what_comes_seldom(times: int, found: bool) -> None:
    """What comes in every layer may just as well end the forward pass."""
    step = [(300, 3 * MB, 0), (100, 6 * MB, 1), *[(100, 4 * MB, 0)] * times]
    assert bool(find(jittered(step, 20, by=0.1))[0].lengths) == found


@pytest.mark.parametrize(("vary", "found"), [(0.01, True), (0.3, False)])
def test_a_step_ends_with_the_same_tensor(vary: float, found: bool) -> None:
    """Tokens for experts have another size every time."""
    draw = random.Random(5)
    step: list[Transfer] = [(300, 9 * MB, 0), (100, 6 * MB, 1), (100, 9 * MB, 0), (100, 3 * MB, 0)]
    rows = jittered(step, 20, by=0.1)
    rows[3::4] = [(gap, round(size * (1 + draw.uniform(-vary, vary))), 0) for gap, size, _ in rows[3::4]]
    assert bool(find(rows)[0].lengths) == found


def test_a_mark_next_to_the_silence_needs_no_help() -> None:
    (found,) = find(jittered([(200, 6 * MB, 1), (100, 3 * MB, 0), (100, 4 * MB, 0)], 20, by=0.1))
    assert found.lengths == []
    assert np.isnan(found.rhythm["period"])


def test_what_comes_twice_a_period_marks_none() -> None:
    """The bytes between two marks are those of the first half, and those of the second, in turn."""
    step = [(200, 4 * MB, 0), (100, 6 * MB, 1), (100, 3 * MB, 0), (100, 6 * MB, 1), (100, 9 * MB, 0), (100, 5 * MB, 0)]
    assert find(jittered(step, 20, by=0.1))[0].lengths == []


@pytest.mark.parametrize(("count", "found"), [(4, False), (5, True)])
def test_a_few_steps_tell_nothing(count: int, found: bool) -> None:
    assert bool(find(jittered(BUCKETS, count, by=0.1))[0].lengths) == found


def test_without_marks_there_is_nothing_to_count_from() -> None:
    rows = [(gap, size, 0) for gap, size, _ in jittered(BUCKETS, 20)]
    assert find(rows)[0].lengths == []


def test_lost_records_shift_only_the_steps_they_are_in() -> None:
    """One of twenty blocks of a step is lost in every third step: bytes drift, and each is cut where it is quiet."""
    step: list[Transfer] = [
        (200, 4 * MB, 0),
        *[(50, 1 * MB, 0)] * 9,
        (60, 6 * MB, 1),
        *[(50, 1 * MB, 0)] * 9,
        (100, 4 * MB, 0),
    ]
    rows = jittered(step, 21, by=0.1)
    kept = [row for i, row in enumerate(rows) if i % 63 != 26]
    assert find(kept)[0].lengths == [21, 20, 21] * 7


@given(st.integers(1, 4), st.integers(0, 100), st.integers(5, 20))
def test_series_do_not_see_each_other(copies: int, seed: int, count: int) -> None:
    rows = jittered(BUCKETS, count, seed=seed)
    (alone,) = find(rows)
    for each in find(*[rows] * copies):
        assert each.numbers == alone.numbers
