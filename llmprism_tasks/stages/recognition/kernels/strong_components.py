"""Circuits of a directed graph: what can be reached from each other, all along the arrows."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.numerics.jit import INT64S, kernel
from llmprism_tasks.numerics.robust import Integers


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
    return _collected(*back, order)


def _adjacency(source: Integers, target: Integers, n: int) -> tuple[Integers, Integers]:
    """Return where each item's arrows begin and end, shape (n + 1,), and where they lead to, shape (arrows,)."""
    order = np.argsort(source, kind="stable")
    bounds = np.searchsorted(source[order], np.arange(n + 1))
    return bounds.astype(np.int64), np.ascontiguousarray(target[order], dtype=np.int64)


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
def _collected(bounds: Integers, sources: Integers, order: Integers) -> Integers:
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
