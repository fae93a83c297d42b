"""Circuits: what can be reached from each other along arrows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.stages.recognition.kernels.strong_components import strong_components


def labels(arrows: list[tuple[int, int]], n: int) -> list[int]:
    source, target = np.array(arrows, dtype=np.int64).reshape(-1, 2).T
    return strong_components(source, target, n).tolist()


def test_no_arrows_no_circuits() -> None:
    assert labels([], 3) == [0, 1, 2]
    assert labels([], 0) == []


def test_a_ring_is_one_component_and_a_chain_none() -> None:
    assert labels([(2, 1), (1, 0), (0, 2)], 4) == [0, 0, 0, 3]
    assert labels([(0, 1), (1, 2)], 3) == [0, 1, 2]


def test_an_arrow_from_one_ring_to_another_does_not_join_them() -> None:
    rings = [(0, 1), (1, 0), (2, 3), (3, 2)]
    assert labels([*rings, (0, 2)], 4) == [0, 0, 2, 2]
    assert labels([*rings, (0, 2), (3, 1)], 4) == [0, 0, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=24))
def test_two_share_a_label_if_each_is_reached_from_the_other(arrows: list[tuple[int, int]]) -> None:
    reached = np.eye(8, dtype=bool)
    for source, target in arrows:
        reached[source, target] = True
    for _ in range(3):
        reached = (reached.astype(int) @ reached.astype(int)) > 0
    mutual = reached & reached.T
    assert labels(arrows, 8) == np.argmax(mutual, axis=1).tolist()
