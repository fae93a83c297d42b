"""Groups are those a plain search finds, whatever the order of the links."""

from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.contract.errors import ContractError, SettingsError
from llmprism_tasks.numerics.graphs import connected_components, merge_by_jaccard, strong_components

links = st.integers(1, 20).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
)
memberships = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 6)), max_size=40)
thresholds = st.sampled_from([0.01, 0.3, 1 / 3, 0.5, 0.6, 2 / 3, 0.8, 1.0])


def ends(pairs: list[tuple[int, int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    both = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def smallest_reachable(pairs: list[tuple[int, int]], n: int) -> list[int]:
    """Spread the smallest label along the links until nothing changes."""
    labels = list(range(n))
    for _ in range(n):
        for a, b in pairs:
            labels[a] = labels[b] = min(labels[a], labels[b])
    return labels


def test_nothing_is_no_groups() -> None:
    assert connected_components([], [], 0).tolist() == []
    assert merge_by_jaccard([], [], 0.5).tolist() == []


def test_items_without_links_stay_alone() -> None:
    assert connected_components([], [], 3).tolist() == [0, 1, 2]
    assert merge_by_jaccard([], [], 0.5, clusters=3).tolist() == [0, 1, 2]
    assert merge_by_jaccard([2], [5], 0.5).tolist() == [0, 1, 2]


def test_a_long_chain_is_one_group() -> None:
    items = np.arange(100_000)
    assert not connected_components(items[1:], items[:-1], len(items)).any()


@pytest.mark.parametrize(
    ("left", "right", "found"),
    [([3], [0], "left 3"), ([0], [-1], "right -1"), ([0, 1], [1], "2 left"), ([0.5], [1], "float64")],
)
def test_links_to_items_that_do_not_exist_are_refused(left: list[int], right: list[int], found: str) -> None:
    with pytest.raises(ContractError) as error:
        connected_components(left, right, 3)
    assert found in error.value.found


@pytest.mark.parametrize("threshold", [0.0, 1.1, float("nan")])
def test_a_threshold_that_is_no_ratio_is_refused(threshold: float) -> None:
    with pytest.raises(SettingsError, match="threshold"):
        merge_by_jaccard([0], [0], threshold)


def test_memberships_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(ContractError, match="2 clusters and 1 hosts"):
        merge_by_jaccard([0, 1], [0], 0.5)
    with pytest.raises(ContractError, match="cluster 4"):
        merge_by_jaccard([4], [0], 0.5, clusters=4)


@given(links)
def test_components_are_those_of_a_plain_search(case: tuple[int, list[tuple[int, int]]]) -> None:
    n, pairs = case
    assert connected_components(*ends(pairs), n).tolist() == smallest_reachable(pairs, n)


@given(links, st.randoms(use_true_random=False))
def test_components_do_not_depend_on_the_order_or_direction_of_links(
    case: tuple[int, list[tuple[int, int]]], random: Random
) -> None:
    n, pairs = case
    turned = [(b, a) if random.random() < 0.5 else (a, b) for a, b in random.sample(pairs, len(pairs))]
    assert connected_components(*ends(turned), n).tolist() == connected_components(*ends(pairs), n).tolist()


def test_the_rails_of_a_job_are_merged_and_its_neighbour_is_not() -> None:
    rails = [(rail, host) for rail in range(8) for host in range(16)]
    neighbour = [(8, host) for host in range(16, 20)]
    assert merge_by_jaccard(*ends(rails + neighbour), 0.6).tolist() == [0] * 8 + [8]


def test_similarity_at_the_threshold_merges() -> None:
    half_shared = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 3)]
    assert merge_by_jaccard(*ends(half_shared), 0.5).tolist() == [0, 0]
    assert merge_by_jaccard(*ends(half_shared), 0.51).tolist() == [0, 1]


def test_merging_goes_on_through_a_cluster_in_between() -> None:
    rows = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2)]
    assert merge_by_jaccard(*ends(rows), 0.6).tolist() == [0, 0, 0]
    assert merge_by_jaccard(*ends([row for row in rows if row[0] != 1]), 0.6).tolist() == [0, 1, 2]


@given(memberships, thresholds)
def test_merged_clusters_are_those_of_a_comparison_of_all_with_all(
    rows: list[tuple[int, int]], threshold: float
) -> None:
    n = 8
    sets = [{host for cluster, host in rows if cluster == c} for c in range(n)]
    similar = [
        (a, b)
        for a in range(n)
        for b in range(a)
        if sets[a] | sets[b] and len(sets[a] & sets[b]) / len(sets[a] | sets[b]) >= threshold
    ]
    assert merge_by_jaccard(*ends(rows), threshold, clusters=n).tolist() == smallest_reachable(similar, n)


@given(memberships, thresholds)
def test_merging_does_not_depend_on_the_order_repetition_or_names_of_rows(
    rows: list[tuple[int, int]], threshold: float
) -> None:
    renamed = [(cluster, 1_000_000_007 * (6 - host)) for cluster, host in reversed(rows + rows[:3])]
    merged = merge_by_jaccard(*ends(rows), threshold, clusters=8)
    assert merge_by_jaccard(*ends(renamed), threshold, clusters=8).tolist() == merged.tolist()


def strong_labels(arrows: list[tuple[int, int]], n: int) -> list[int]:
    source, target = np.array(arrows, dtype=np.int64).reshape(-1, 2).T
    return strong_components(source, target, n).tolist()


def test_no_arrows_no_circuits() -> None:
    assert strong_labels([], 3) == [0, 1, 2]
    assert strong_labels([], 0) == []


def test_a_ring_is_one_component_and_a_chain_none() -> None:
    assert strong_labels([(2, 1), (1, 0), (0, 2)], 4) == [0, 0, 0, 3]
    assert strong_labels([(0, 1), (1, 2)], 3) == [0, 1, 2]


def test_an_arrow_from_one_ring_to_another_does_not_join_them() -> None:
    rings = [(0, 1), (1, 0), (2, 3), (3, 2)]
    assert strong_labels([*rings, (0, 2)], 4) == [0, 0, 2, 2]
    assert strong_labels([*rings, (0, 2), (3, 1)], 4) == [0, 0, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=24))
def test_two_share_a_label_if_each_is_reached_from_the_other(arrows: list[tuple[int, int]]) -> None:
    reached = np.eye(8, dtype=bool)
    for source, target in arrows:
        reached[source, target] = True
    for _ in range(3):
        reached = (reached.astype(int) @ reached.astype(int)) > 0
    mutual = reached & reached.T
    assert strong_labels(arrows, 8) == np.argmax(mutual, axis=1).tolist()
