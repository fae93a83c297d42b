"""A long step is longer in all its parts, or stood still at one place; steps made by hand, in ms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from llmprism_tasks.stages.diagnosis.step_times.longer_throughout import longer_throughout

LENGTH, COUNT = 1000, 5
EVEN = (200, 400, 600, 800, 960)
AT_ONCE = (940, 945, 950, 955, 960)
"""When a usual step begins to send its five messages."""


def judged(places: Sequence[float], changed: Callable[[float], float], *, takes: float = 20.0) -> list[bool]:
    """Judge usual steps and one, the third, whose messages begin at changed times; its end is changed, too."""
    begins: list[float] = []
    starts, ends, at = [], [], 0.0
    for step in range(COUNT):
        move = changed if step == 2 else float
        begins += [at + move(place) for place in places]
        starts.append(at)
        at += move(LENGTH)
        ends.append(at)
    until = np.maximum.accumulate(np.array(begins) + takes)
    sizes = np.full(len(begins), 8.0)
    quick = np.arange(COUNT) != 2
    sent, over, from_, to = (np.array(values, dtype=np.int64) for values in (begins, until, starts, ends))
    flags: list[bool] = longer_throughout(sent, over, sizes, from_, to, quick).tolist()
    return flags


NONE = [False] * COUNT
THIRD = [False, False, True, False, False]


@pytest.mark.parametrize("ratio", [1.3, 2.0, 4.0])
def test_a_step_that_computes_for_longer_is_longer_throughout(ratio: float) -> None:
    assert judged(EVEN, lambda at: ratio * at) == THIRD


@pytest.mark.parametrize("place", [0, 300, 700, 980], ids=["at first", "early", "late", "at last"])
def test_a_step_that_stood_still_is_not(place: float) -> None:
    assert judged(EVEN, lambda at: at + 1000 * (at > place)) == NONE


@pytest.mark.parametrize(("still", "expected"), [(100, THIRD), (900, NONE)])
def test_of_both_the_larger_decides(still: float, expected: list[bool]) -> None:
    """It computes for twice as long, and stands still for a tenth of that time, or for nine tenths."""
    assert judged(EVEN, lambda at: 2 * at + still * (at > 500)) == expected


def test_of_a_step_that_sends_all_at_once_nobody_knows() -> None:
    assert judged(AT_ONCE, lambda at: at + 1000 * (at > 0)) == NONE


def test_silence_grows_where_transfers_do_not() -> None:
    """Three silences of 200 ms and the last of 10 ms grow by half, and three messages of 130 ms do not."""
    later = {200: 300, 530: 730, 860: 1160, LENGTH: 1305}
    assert judged((200, 530, 860), lambda at: later.get(int(at), at), takes=130) == THIRD


def test_a_step_that_sends_nothing_and_jobs_without_records_are_not_judged() -> None:
    none = np.array([], dtype=np.int64)
    starts, ends = np.array([0, 1000]), np.array([1000, 3000])
    assert not longer_throughout(none, none, none.astype(float), starts, ends, np.array([True, False])).any()
    one, size = np.array([500]), np.array([8.0])
    assert not longer_throughout(one, one + 10, size, starts, ends, np.array([True, False])).any()
    assert not longer_throughout(one, one + 10, size, starts, ends, np.array([False, False])).any()
