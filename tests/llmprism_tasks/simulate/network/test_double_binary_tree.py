"""Double binary trees: their shape, and what their edges carry."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_platforms import one_job, payload_per_pair, run

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.simulate.network.double_binary_tree import depth, first_children, parents
from llmprism_tasks.simulate.network.nccl_edges import tree_edges
from llmprism_tasks.simulate.workload.message_sizes import tensors


def test_twelve_hosts_stand_as_in_nccls_drawing() -> None:
    first, second = parents(12)
    assert first == [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 8, 10]
    assert second == [1, 3, 1, 11, 5, 7, 5, 3, 9, 7, 9, -1]


def test_thirteen_hosts_have_their_second_tree_moved_on() -> None:
    first, second = parents(13)
    assert first == [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8]
    assert second == [9, -1, 3, 5, 3, 9, 7, 5, 7, 1, 11, 0, 11]


@given(st.integers(1, 200))
def test_every_host_reaches_one_root_and_none_has_three_children(hosts: int) -> None:
    longest = depth(hosts)
    assert longest <= math.ceil(math.log2(hosts)) + 1
    for tree in parents(hosts):
        assert tree.count(-1) == 1
        assert max(Counter(up for up in tree if up >= 0).values(), default=0) <= 2
        for host in range(hosts):
            at, climbed = host, 0
            while tree[at] >= 0:
                at, climbed = tree[at], climbed + 1
            assert climbed <= longest


@given(st.integers(1, 300).map(lambda half: 2 * half))
def test_a_host_has_children_in_one_tree_alone(hosts: int) -> None:
    first, second = ({up for up in tree if up >= 0} for tree in parents(hosts))
    assert not {host for host in first & second if host not in (0, hosts - 1)}


def test_an_edge_carries_all_bytes_of_its_channels_up_and_down() -> None:
    scenario = one_job(hosts=[0, 1, 2, 3], dp=4, optimizer="replicated", algorithm="tree")
    (job,) = scenario.jobs
    sent = payload_per_pair(run(scenario), "dp")
    data = sum(tensor.parameters for tensor in tensors(job, 0)) * job.gradient_bytes
    # Trees 0-2, 2-1, 2-3 and 3-1, 1-0, 1-2: the hop 1-2 is in both, and carries both halves.
    assert sorted(sent.to_numpy() / data) == pytest.approx(sorted(([0.5] * 4 + [1.0]) * 2 * 4), rel=1e-3)


def test_a_chains_first_member_meets_the_parent_and_its_second_the_first_child() -> None:
    assert first_children(12)[0] == [False, True, True, False, True, True, False, False, False, True, False, False]
    scenario = one_job(hosts=[0, 1, 2, 3], tp=1, dp=16, optimizer="replicated", algorithm="tree")
    edges = {edge for edge in tree_edges(scenario.jobs[0], list(range(16))) if edge[0] < edge[1]}
    # The first tree is 0-2 and 2-1, 2-3; in it 1 comes before 2 and is its first child. The second mirrors it.
    first, second = {(0, 8, 0), (4, 9, 0), (8, 12, 0)}, {(4, 12, 1), (5, 8, 1), (0, 4, 1)}
    assert edges == first | second


def test_each_pair_of_channels_begins_its_chains_at_another_gpu() -> None:
    made = run(one_job(tp=1, dp=8, optimizer="replicated", algorithm="tree", channels=4))
    pairs = made.truth["truth_pairs"].filter(kind="dp")
    # The second host is the first one's second child, and the root where trees are mirrored: heads meet heads.
    assert pairs["src_addr"].n_unique() == 4
    assert pairs.height == 2 * 2


@pytest.mark.parametrize("optimizer", ["distributed"])
def test_nccl_has_no_tree_for_a_reduce_scatter(optimizer: str) -> None:
    with pytest.raises(SettingsError, match="replicated"):
        one_job(dp=2, optimizer=optimizer, algorithm="tree")
