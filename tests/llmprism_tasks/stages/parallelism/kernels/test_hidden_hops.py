"""Members that rings pass through unseen are those that a plain search of each host finds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain, groupby, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmprism_tasks.numerics.graphs import connected_components
from llmprism_tasks.stages.parallelism.kernels.hidden_hops import Links, unseen

Pairs = list[tuple[int, int]]
HOSTS, GPUS, STRIDE = 4, 4, 2

hops = st.lists(
    st.tuples(st.integers(0, HOSTS * GPUS - 1), st.integers(0, HOSTS * GPUS - 1)).filter(
        lambda ends: ends[0] // GPUS != ends[1] // GPUS
    ),
    min_size=1,
    max_size=12,
)


def nic(host: int, gpu: int) -> int:
    return GPUS * host + gpu


def groups(pairs: Pairs) -> list[int]:
    """Return the smallest member of each one's group."""
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return connected_components(ends[:, 0], ends[:, 1], HOSTS * GPUS).tolist()


def found(pairs: Pairs) -> list[int]:
    member = np.arange(HOSTS * GPUS)
    host, rank = member // GPUS, member % GPUS
    ends = np.array(pairs, dtype=np.int64)
    links = unseen(Links(ends[:, 0], ends[:, 1]), host, STRIDE * host + rank % STRIDE, rank)
    return groups([*pairs, *zip(*(side.tolist() for side in links), strict=True)])


def chained(members: Iterable[int], key: Callable[[int], Hashable]) -> Pairs:
    alike = defaultdict(list)
    for member in members:
        alike[key(member)].append(member)
    return [link for of in alike.values() for link in pairwise(of)]


def place(member: int) -> tuple[int, int]:
    return member // GPUS, member % GPUS % STRIDE


def with_silent(ring: Sequence[int | None]) -> list[int | None]:
    """Fill what is None between two of one ring, or wherever there is one ring alone."""
    known = {one for one in ring if one is not None}
    if len(known) == 1:
        return [*known] * len(ring)
    filled = []
    for i, one in enumerate(ring):
        before = next((other for other in reversed(ring[:i]) if other is not None), None)
        after = next((other for other in ring[i + 1 :] if other is not None), None)
        filled.append(before if one is None and before == after else one)
    return filled


def plain(pairs: Pairs) -> list[int]:
    """Do the same member by member, host by host."""
    seen = sorted(set(chain.from_iterable(pairs)))
    links = list(pairs)

    def around() -> Pairs:
        ring = groups(links)
        visited = {one: frozenset(nic // GPUS for nic in seen if ring[nic] == ring[one]) for one in seen}
        return chained(seen, lambda one: (place(one), visited[one]))

    def ending() -> Pairs:
        ring, balance = groups(links), defaultdict(int)
        for src, dst in pairs:
            balance[ring[src], src // GPUS] += 1
            balance[ring[dst], dst // GPUS] -= 1
        return chained([one for one in seen if balance[ring[one], one // GPUS]], place)

    for joining in (around, ending, around):
        links += joining()
    ring = groups(links)
    for _, of in groupby(sorted(range(HOSTS * GPUS), key=lambda one: (place(one), one)), key=place):
        members = list(of)
        joined = dict(zip(members, with_silent([ring[one] if one in seen else None for one in members]), strict=True))
        links += chained([one for one in members if joined[one] is not None], lambda one, joined=joined: joined[one])
    return groups(links)


@given(hops)
def test_same_as_a_plain_search(pairs: Pairs) -> None:
    assert found(pairs) == plain(pairs)


def test_a_ring_is_followed_from_where_it_enters_a_host_to_where_it_leaves_it() -> None:
    ring = [(nic(host, 2), nic((host + 1) % HOSTS, 0)) for host in range(HOSTS)]
    label = found(ring)
    assert len({label[nic(host, gpu)] for host in range(HOSTS) for gpu in (0, 2)}) == 1
    assert all(label[nic(host, gpu)] == nic(host, gpu) for host in range(HOSTS) for gpu in (1, 3))


def test_a_silent_member_joins_the_only_ring_of_its_place() -> None:
    assert found([(nic(0, 0), nic(1, 0))])[nic(0, 2)] == nic(0, 0)


def test_hosts_that_no_ring_visits_are_left_alone() -> None:
    assert found([(nic(0, 0), nic(1, 0))])[GPUS * 2 :] == list(range(GPUS * 2, GPUS * HOSTS))
