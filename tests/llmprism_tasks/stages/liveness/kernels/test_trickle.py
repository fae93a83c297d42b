"""A transfer is a trickle if little is moved about it, or if it is small, begins something, and little follows; but
not if most bursts began with one of its size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.liveness.kernels.trickle import trickles

REACH, PAUSE, SMALL, LONGER, SAME, RECURS = 10, 2, 5, 0.25, 0.3, 2
TRANSFERS = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 9), st.integers(0, 5)), max_size=12, min_size=1)


def after_the_last_burst(some: list[tuple[int, int, int]], told: list[bool], begun: list[int]) -> list[bool]:
    """Return which transfers of a series are trickles, given which ones little is moved about, and how its bursts
    began: those after the last burst, too, whose size came among the bursts and comes after them."""
    told = list(told)

    def alike(sizes: list[int], size: int) -> int:
        return sum(abs(one - size) <= SAME * size for one in sizes)

    sizes = [size for _, size, _ in some]
    for place in range(len(some) - 1, 0, -1):
        size = sizes[place]
        if told[place]:
            continue
        if some[place][0] - some[place - 1][0] - some[place - 1][2] <= PAUSE:
            break
        starters = alike(begun, size)
        if starters >= RECURS and 2 * starters > len(begun):
            break
        if min(alike(sizes[:place], size), alike(sizes[place + 1 :], size)) < RECURS:
            break
        told[place] = True
    return told


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
        told: list[bool] = []
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
            told.append(later or (little and (alike < RECURS or 2 * alike <= len(begun))))
            soon = some[place + 1 : place + 2] and some[place + 1][0] - at - length <= PAUSE
            if begins and following >= bar and soon:
                begun.append(size)
        expected += after_the_last_burst(some, told, begun)
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("among", "after", "own", "isolated", "trickle"),
    [
        (2, 2, 7, True, True),
        (1, 2, 7, True, False),
        (2, 1, 7, True, False),
        (2, 2, 40, True, False),
        (2, 2, 7, False, False),
    ],
    ids=["as others", "none among the bursts", "none after it", "as bursts begin", "part of the last burst"],
)
def test_what_comes_soon_after_the_last_burst_is_a_trickle_if_its_like_came_among_and_comes_after_them(
    among: int, after: int, own: int, *, isolated: bool, trickle: bool
) -> None:
    bursts = [(at, 40) for at in range(0, 60, 6)] + [(at + 1, 60) for at in range(0, 60, 6)]
    checks = [(6 * place + 3, 7) for place in range(among)]
    last = (59 if isolated else 56, own)
    rows = sorted(bursts + checks) + [last] + [(80 + 15 * place, 7) for place in range(after)]
    starts, sizes = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    found = trickles(
        starts, starts, sizes, np.array([0, len(rows)]), np.array([30.0]),
        small=SMALL, reach=REACH, pause=PAUSE, longer=LONGER, same=SAME, recurs=2,
    )  # fmt: skip
    assert found[len(rows) - after - 1] == trickle
    assert not found[: len(rows) - after - 1].any()
