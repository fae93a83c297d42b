"""Slow hosts that wait for each other over links that nobody sees."""

from __future__ import annotations

import numpy as np
import pytest
from job_evidence import DEFAULT, working

from llmprism_tasks.stages.diagnosis.compute import slow_compute
from llmprism_tasks.stages.diagnosis.compute.nvlink_peers import joined_unseen
from llmprism_tasks.stages.diagnosis.evidence import Evidence

STEPS = 12
DRAW = np.random.default_rng(3)
LATE = DRAW.normal(700, 15, STEPS)


def ready(own: float, seed: int) -> list[float]:
    """Return when a NIC that is well is ready, ms."""
    return list(500 + own * np.random.default_rng(seed).normal(0, 15, STEPS))


def two_slow(own: float) -> Evidence:
    """Return two rings of three hosts, one of each slow: the second like the first, but for deviations of its own."""
    late = LATE + own * np.random.default_rng(9).normal(0, 15, STEPS)
    rings = [
        {"a": ready(1, 1), "b": list(LATE), "c": ready(1, 2)},
        {"d": ready(1, 4), "e": list(late), "f": ready(1, 5)},
    ]
    return working(rings)


@pytest.mark.parametrize(("own", "groups"), [(0.4, [["host-b", "host-e"]]), (0.7, [["host-b"], ["host-e"]])])
def test_hosts_whose_work_varies_alike_wait_for_each_other(own: float, groups: list[list[str]]) -> None:
    """The difference varies by less than half of what each does, or by more."""
    evidence = two_slow(own)
    assert joined_unseen(["host-b", "host-e"], "j", evidence.window.start_ns, evidence) == groups


def test_hosts_of_one_ring_wait_for_each_other_over_the_network() -> None:
    ring = {"a": ready(1, 1), "b": list(LATE), "c": ready(1, 2), "d": list(LATE)}
    evidence = working([ring])
    found = joined_unseen(["host-b", "host-d"], "j", evidence.window.start_ns, evidence)
    assert found == [["host-b"], ["host-d"]]


def test_those_that_wait_for_each_other_are_the_candidates_of_one_finding() -> None:
    found = slow_compute.find(two_slow(0.1), DEFAULT)
    assert found.select("kind", "subject_type", "candidates", "odds").rows() == [
        ("slow_compute", "job", ["host-b", "host-e"], [0.5, 0.5])
    ]
    assert found["explanation"].item().startswith("One of host-b, host-e is slow, and the others wait for it")
    apart = slow_compute.find(two_slow(1), DEFAULT)
    assert sorted(apart["subject"].to_list()) == ["b", "e"]
