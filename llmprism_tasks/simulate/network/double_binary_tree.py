"""NCCL's double binary tree: two trees over the hosts, each of which carries half of an all-reduce.

Source: Sanders, Speck and Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and scan (2009), as laid
out in NCCL, src/graph/trees.cc: a host that is a leaf of one tree is an inner node of the other.
"""

from __future__ import annotations


def parents(hosts: int) -> tuple[list[int], list[int]]:
    """Return each host's parent in both trees, -1 for a root.

    The second tree is the first one mirrored where the number of hosts is even, or else moved on by one host.
    """
    first = [_parent(host, hosts) for host in range(hosts)]
    second = [-1] * hosts
    for place, up in enumerate(first):
        if up >= 0:
            second[_in_second(place, hosts)] = _in_second(up, hosts)
    return first, second


def first_children(hosts: int) -> tuple[list[bool], list[bool]]:
    """Return whether each host is its parent's first child, in both trees; a root counts as none's."""
    first = [host < up for host, up in enumerate(parents(hosts)[0])]
    second = [False] * hosts
    for place, elder in enumerate(first):
        second[_in_second(place, hosts)] = elder
    return first, second


def _in_second(place: int, hosts: int) -> int:
    """Return which host stands in the second tree where a host stands in the first."""
    return hosts - 1 - place if hosts % 2 == 0 else (place + 1) % hosts


def depth(hosts: int) -> int:
    """Return how many edges the longest way to a root has."""
    up = parents(hosts)[0]

    def climb(host: int) -> int:
        return 0 if up[host] < 0 else 1 + climb(up[host])

    return max(climb(host) for host in range(hosts))


def _parent(host: int, hosts: int) -> int:
    """Return the parent in the first tree: the nearest number whose lowest bit is one place higher."""
    if host == 0:
        return -1
    lowest = host & -host
    up = (host ^ lowest) | (lowest << 1)
    return up if up < hosts else host ^ lowest
