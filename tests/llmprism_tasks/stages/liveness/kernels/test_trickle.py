"""A transfer is a trickle if little is moved about it, or if it is small, begins something, and little follows; but
not if most bursts began with one of its size."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.liveness.kernels.trickle import trickles

REACH, PAUSE, SMALL, LONGER, SAME, RECURS = 10, 2, 5, 0.25, 0.3, 2
TRANSFERS = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 9), st.integers(0, 5)), max_size=12, min_size=1)


@given(st.lists(st.tuples(TRANSFERS, st.integers(0, 40)), max_size=4))
def test_what_is_near_counts(series: list[tuple[list[tuple[int, int, int]], int]]) -> None:
    ordered = [sorted(transfers) for transfers, _ in series]
    rows = np.array([row for some in ordered for row in some], dtype=np.int64).reshape(-1, 3)
    starts, sizes, lengths = (np.ascontiguousarray(column) for column in rows.T)
    offsets = np.cumsum([0, *(len(some) for some in ordered)])
    least = np.array([bar for _, bar in series], dtype=np.float64)
    found = trickles(
        starts,
        starts + lengths,
        sizes,
        offsets,
        least,
        small=SMALL,
        reach=REACH,
        pause=PAUSE,
        longer=LONGER,
        same=SAME,
        recurs=RECURS,
    )
    expected = []
    for some, (_, bar) in zip(ordered, series, strict=True):
        works: tuple[list[int], int] = ([], some[0][0] - PAUSE - 1)
        begun: list[int] = []
        for place, (at, size, length) in enumerate(some):
            near = sum(more for when, more, _ in some if abs(when - at) <= REACH)
            following = sum(more for when, more, _ in some[place:] if when <= at + REACH)
            last = max((when + took for when, _, took in some[:place]), default=at - PAUSE - 1)
            pauses, worked = works
            if near >= bar:
                works = ([*pauses, at - worked], max(worked, at + length))
            later = near < bar and at - worked > (1 + LONGER) * sorted([0, 0, *pauses])[-2]
            alike = sum(abs(first - size) <= SAME * size for first in begun)
            begins = at - last > PAUSE
            little = begins and following < bar and size < SMALL
            expected.append(later or (little and (alike < RECURS or 2 * alike <= len(begun))))
            soon = some[place + 1 : place + 2] and some[place + 1][0] - at - length <= PAUSE
            if begins and following >= bar and soon:
                begun.append(size)
    assert found.tolist() == expected
