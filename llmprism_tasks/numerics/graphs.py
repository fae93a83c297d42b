"""Components of graphs: connected, strongly connected, and clusters merged because they share most of their hosts.

A component is labelled by its smallest item, so labels do not depend on the order of links.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from llmprism_tasks.contract.errors import ContractError, SettingsError
from llmprism_tasks.numerics.jit import FLOAT64, INT64, INT64S, kernel, subroutine
from llmprism_tasks.numerics.robust import Integers

RING_PEERS = 2
"""Receivers of a member of a ring whose channels run in both orders."""


def connected_components(left: npt.ArrayLike, right: npt.ArrayLike, n: int) -> Integers:
    """Label each of `n` items with the smallest item it is linked to, directly or through others.

    Parameters
    ----------
    left, right : shape (links,), items 0 to n - 1; a link joins `left[i]` and `right[i]`, in either direction
    n : how many items there are; those without links are groups of their own

    Returns
    -------
    int64, shape (n,). Nearly linear time: union by size with path halving (Tarjan and van Leeuwen, 1984).
    """
    a, b = _identifiers(left, n, "left"), _identifiers(right, n, "right")
    if len(a) != len(b):
        raise _fault(f"{len(a)} left and {len(b)} right ends of links", "as many of one as of the other")
    return _components(a, b, n)


def strong_components(source: Integers, target: Integers, n: int) -> Integers:
    """Label each of `n` items with the smallest item that it can reach and be reached from.

    Parameters
    ----------
    source, target : shape (arrows,), items 0 to n - 1; an arrow leads from `source[i]` to `target[i]`
    n : how many items there are; those on no circuit are groups of their own

    Returns
    -------
    int64, shape (n,). Linear time after a sort: Kosaraju's two walks (Sharir, 1981).
    """
    ahead, back = _adjacency(source, target, n), _adjacency(target, source, n)
    order = _finished(*ahead)
    return _strong_labels(*back, order)


def merge_by_jaccard(
    cluster: npt.ArrayLike, host: npt.ArrayLike, threshold: float, *, clusters: int | None = None
) -> Integers:
    """Label each cluster with the smallest cluster it is merged with, for clusters on nearly the same hosts.

    Two clusters are merged when the hosts they share are at least `threshold` of the hosts that either has; and with
    them all that is merged with either. Only clusters that share a host are compared, and of those on the same hosts
    only one.

    Parameters
    ----------
    cluster, host : shape (k,), both 0 or more: cluster `cluster[i]` has an endpoint on host `host[i]`; rows may repeat
    threshold : Jaccard similarity, ratio, above 0 and at most 1
    clusters : how many clusters there are; one more than the largest in `cluster` if not given

    Returns
    -------
    int64, shape (clusters,). A cluster without hosts stays alone.
    """
    if not 0 < threshold <= 1:
        raise SettingsError(
            found=f"threshold = {threshold!r}", expected="a ratio above 0 and at most 1", todo="Correct the value."
        )
    most = np.iinfo(np.int64).max
    hosts = _identifiers(host, most, "host")
    owners = _identifiers(cluster, most if clusters is None else clusters, "cluster")
    if len(owners) != len(hosts):
        raise _fault(f"{len(owners)} clusters and {len(hosts)} hosts", "as many of one as of the other")
    n = clusters if clusters is not None else int(owners.max(initial=-1)) + 1
    _, hosts = np.unique(hosts, return_inverse=True)
    rows = np.unique(np.stack([owners, hosts], axis=1), axis=0)
    bounds = np.searchsorted(rows[:, 0], np.arange(n + 1))
    twin = first_on_the_same_hosts(rows[:, 1], bounds)
    rows = rows[twin[rows[:, 0]] == rows[:, 0]]
    by_host = rows[np.argsort(rows[:, 1], kind="stable")]
    return _merge(
        np.ascontiguousarray(rows[:, 1]),
        np.searchsorted(rows[:, 0], np.arange(n + 1)),
        np.ascontiguousarray(by_host[:, 0]),
        np.searchsorted(by_host[:, 1], np.arange(len(hosts) + 1)),
        twin,
        threshold,
    )


def first_on_the_same_hosts(hosts: Integers, bounds: Integers) -> Integers:
    """Return for each cluster the first one with exactly its hosts; itself for a cluster without hosts."""
    first: dict[bytes, int] = {}
    return np.array(
        [
            first.setdefault(hosts[start:end].tobytes(), cluster) if end > start else cluster
            for cluster, (start, end) in enumerate(itertools.pairwise(bounds))
        ],
        dtype=np.int64,
    )


def _adjacency(source: Integers, target: Integers, n: int) -> tuple[Integers, Integers]:
    """Return where each item's arrows begin and end, shape (n + 1,), and where they lead to, shape (arrows,)."""
    order = np.argsort(source, kind="stable")
    bounds = np.searchsorted(source[order], np.arange(n + 1))
    return bounds.astype(np.int64), np.ascontiguousarray(target[order], dtype=np.int64)


def _identifiers(values: npt.ArrayLike, limit: int, name: str) -> Integers:
    checked = np.asarray(values)
    if checked.size == 0:
        checked = checked.astype(np.int64)
    if checked.ndim != 1 or not np.issubdtype(checked.dtype, np.integer):
        raise _fault(f"{name} of type {checked.dtype} and shape {checked.shape}", "integers in one dimension")
    bad = (checked < 0) | (checked >= limit)
    if bad.any():
        raise _fault(f"{name} {checked[int(np.argmax(bad))]}", f"0 to {limit - 1}")
    return np.ascontiguousarray(checked, dtype=np.int64)


def _fault(found: str, expected: str) -> ContractError:
    return ContractError(
        found=found, expected=expected, todo="This is a fault in the stage that made the links; please report it."
    )


@subroutine
def _root(parent: Integers, item: int) -> int:
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = parent[item]
    return item


@subroutine
def _join(parent: Integers, size: Integers, a: int, b: int) -> None:
    a, b = _root(parent, a), _root(parent, b)
    if a == b:
        return
    if size[a] < size[b]:
        a, b = b, a
    parent[b] = a
    size[a] += size[b]


@subroutine
def _labels(parent: Integers) -> Integers:
    smallest = np.full(len(parent), -1, np.int64)
    labels = np.empty(len(parent), np.int64)
    for item in range(len(parent)):
        root = _root(parent, item)
        if smallest[root] < 0:
            smallest[root] = item
        labels[item] = smallest[root]
    return labels


@kernel(INT64S, INT64S, INT64)
def _components(left: Integers, right: Integers, n: int) -> Integers:
    parent, size = np.arange(n), np.ones(n, np.int64)
    for link in range(len(left)):
        _join(parent, size, left[link], right[link])
    return _labels(parent)


@kernel(INT64S, INT64S, INT64S, INT64S, INT64S, FLOAT64)
def _merge(
    hosts: Integers,
    host_bounds: Integers,
    clusters: Integers,
    cluster_bounds: Integers,
    twin: Integers,
    threshold: float,
) -> Integers:
    """Compare each cluster with the later ones on its hosts: `hosts` by cluster, and `clusters` by host."""
    n = len(twin)
    parent, size = np.arange(n), np.ones(n, np.int64)
    shared, met = np.zeros(n, np.int64), np.empty(n, np.int64)
    for cluster in range(n):
        _join(parent, size, cluster, twin[cluster])
        own = host_bounds[cluster + 1] - host_bounds[cluster]
        others = 0
        for row in range(host_bounds[cluster], host_bounds[cluster + 1]):
            host = hosts[row]
            for place in range(cluster_bounds[host], cluster_bounds[host + 1]):
                other = clusters[place]
                if other <= cluster:
                    continue
                if shared[other] == 0:
                    met[others] = other
                    others += 1
                shared[other] += 1
        for place in range(others):
            other = met[place]
            either = own + host_bounds[other + 1] - host_bounds[other] - shared[other]
            if shared[other] / either >= threshold:
                _join(parent, size, cluster, other)
            shared[other] = 0
    return _labels(parent)


@kernel(INT64S, INT64S)
def _finished(bounds: Integers, targets: Integers) -> Integers:
    """Walk along the arrows depth first and return the items in the order in which they are left."""
    n = bounds.size - 1
    seen = np.zeros(n, np.bool_)
    following, path, order = bounds[:-1].copy(), np.empty(n, np.int64), np.empty(n, np.int64)
    left = 0
    for start in range(n):
        if seen[start]:
            continue
        seen[start] = True
        path[0], depth = start, 1
        while depth > 0:
            item = path[depth - 1]
            if following[item] == bounds[item + 1]:
                order[left] = item
                left += 1
                depth -= 1
                continue
            other = targets[following[item]]
            following[item] += 1
            if not seen[other]:
                seen[other] = True
                path[depth] = other
                depth += 1
    return order


@kernel(INT64S, INT64S, INT64S)
def _strong_labels(bounds: Integers, sources: Integers, order: Integers) -> Integers:
    """Walk against the arrows, from the item left last: what is reached is one component."""
    n = order.size
    labels, path = np.full(n, -1, np.int64), np.empty(n, np.int64)
    for place in range(n - 1, -1, -1):
        start = order[place]
        if labels[start] >= 0:
            continue
        labels[start] = start
        path[0], depth, smallest, first = start, 1, start, 0
        while first < depth:
            item = path[first]
            first += 1
            smallest = min(smallest, item)
            for arrow in range(bounds[item], bounds[item + 1]):
                other = sources[arrow]
                if labels[other] < 0:
                    labels[other] = start
                    path[depth] = other
                    depth += 1
        for i in range(depth):
            labels[path[i]] = smallest
    return labels
