"""What NICs send and do not get back goes one way."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import Row, flows, messages

from llmprism_tasks.stages.step_division.weight_loads import OneWay, ends_of_pairs, one_way
from llmprism_tasks.stages.traffic import nic_pairs

PARTS = 3


def measured(*rows: list[Row], of: str = "all") -> OneWay:
    """Measure in parts of a second; of all pairs, or of one of them, all pairs being a row each."""
    bulk = nic_pairs.in_order(flows(*rows))
    pairs = nic_pairs.pairs_of(bulk, [*nic_pairs.PAIR]).select(nic_pairs.PAIR).rows()
    wanted = np.array([at for at, pair in enumerate(pairs) if of in ("all", "".join(pair))])
    starts = bulk["flow_start_ns"].to_numpy()
    return one_way(bulk, np.arange(len(pairs)), wanted, (starts - starts.min()) // 10**9, PARTS)


def test_round_a_ring_all_comes_back_and_weights_do_not() -> None:
    ring = [messages(*ends, [0, 1000, 2000], 1000) for ends in ("ab", "bc", "ca")]
    found = measured(*ring, messages("a", "b", [1500], 600))
    # A hundredth of what all have sent and got, and 600 that one has sent and another got.
    assert found.bytes.tolist() == [[60, 1200, 60]]
    assert found.replicated.tolist() == [True]
    assert found.groups.tolist() == [0, 0, 0]


def test_groups_are_of_those_that_pairs_join() -> None:
    line = [messages(*ends, [0], 1000) for ends in ("ab", "ba", "bc", "cb")]
    found = measured(*line, messages("x", "y", [0], 500))
    groups = dict(zip(["ab", "ba", "bc", "cb", "xy"], found.groups.tolist(), strict=True))
    assert len({groups[pair] for pair in ("ab", "ba", "bc", "cb")}) == 1
    assert groups["xy"] != groups["ab"]
    assert not found.replicated.any()
    assert found.bytes[groups["xy"]].tolist() == [1000, 0, 0]


@pytest.mark.parametrize(("of", "expected"), [("ab", [1000, 0, 0]), ("all", [2000, 0, 0])])
def test_only_what_the_nics_in_question_send_each_other_counts(of: str, expected: list[int]) -> None:
    found = measured(messages("a", "b", [0], 500), messages("b", "c", [0], 1000), of=of)
    assert found.bytes[found.groups[0]].tolist() == expected


def test_nics_are_numbered_through() -> None:
    bulk = nic_pairs.in_order(flows(messages("b", "a", [0], 1), messages("c", "a", [0], 1)))
    source, target, count = ends_of_pairs(bulk)
    assert (source.tolist(), target.tolist(), count) == ([1, 2], [0, 0], 3)
