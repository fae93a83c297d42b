"""Ring hops inside hosts, which no flow record shows: from the NIC where a ring enters a host to the one where it
leaves.

Rings are seen only between hosts. A host may hold several pp_stages: so what is linked already is linked on where it
lies on the same hosts; then what still enters a host and never leaves it, or the other way round; and silent members
join their neighbours where these are of one ring.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics import ragged
from llmprism_tasks.numerics.graphs import connected_components, first_on_the_same_hosts
from llmprism_tasks.numerics.robust import Integers


class Links(NamedTuple):
    """Link `i` joins the members `left[i]` and `right[i]`, by their numbers."""

    left: Integers
    right: Integers


def unseen(hops: Links, host: Integers, place: Integers, rank: Integers) -> Links:
    """Link the members of a host between which rings pass unseen.

    Parameters
    ----------
    hops : from a member of one host to one of another
    host, place, rank : shape (members,): each one's host; its place there, counted through all hosts, for members of
        different places never belong together; and where it comes among its host's members

    Returns
    -------
    links inside hosts; those who belong together are linked one to the next
    """
    balance = np.bincount(hops.left, minlength=host.size) - np.bincount(hops.right, minlength=host.size)
    seen = np.unique(np.concatenate(hops))
    links = hops
    for join in (_link_rings_on_same_hosts, _link_ring_ends, _link_rings_on_same_hosts):
        ring = connected_components(*links, host.size)[seen]
        links = _join_links(links, join(seen, ring, host[seen], place[seen], balance[seen]))
    ring = np.full(host.size, -1)
    ring[seen] = connected_components(*links, host.size)[seen]
    links = _join_links(links, _link_silent_members(ring, place, rank))
    return Links(*(ends[hops.left.size :] for ends in links))


def _link_rings_on_same_hosts(
    members: Integers, ring: Integers, host: Integers, place: Integers, balance: Integers
) -> Links:
    """Link those of one place whose rings lie on the same hosts."""
    del balance
    return _chain_members(members, place, _host_set_numbers(ring, host))


def _link_ring_ends(members: Integers, ring: Integers, host: Integers, place: Integers, balance: Integers) -> Links:
    """Link those of one place whose rings leave the host more often than they enter it, or less."""
    _, visit = np.unique(ring * (host.max(initial=0) + 1) + host, return_inverse=True)
    ends = np.bincount(visit, balance)[visit] != 0
    return _chain_members(members[ends], place[ends])


def _link_silent_members(ring: Integers, place: Integers, rank: Integers) -> Links:
    """Link silent members, whose ring is -1, to the ring before and after them, or to the only one of their place."""
    order = np.lexsort((rank, place))
    joined = _assign_rings_to_silent(ring[order], ragged.bounds(place[order]))
    met = joined >= 0
    return _chain_members(order[met], place[order][met], joined[met])


def _join_links(links: Links, more: Links) -> Links:
    return Links(*(np.concatenate(ends) for ends in zip(links, more, strict=True)))


def _chain_members(members: Integers, *keys: Integers) -> Links:
    """Link members that agree on some keys, each to the next."""
    order = np.lexsort(keys)
    alike = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
    return Links(members[order][:-1][alike], members[order][1:][alike])


def _host_set_numbers(ring: Integers, host: Integers) -> Integers:
    """Number the sets of hosts on which rings lie, and return that of each member's ring."""
    rings, number = np.unique(ring, return_inverse=True)
    hosts = host.max(initial=0) + 1
    visits = np.unique(number * hosts + host)
    bounds = np.searchsorted(visits // hosts, np.arange(rings.size + 1))
    return first_on_the_same_hosts(visits % hosts, bounds)[number]


def _assign_rings_to_silent(ring: Integers, offsets: Integers) -> Integers:
    """Give silent members the ring of those before and after them, where it is one, or the only one of their place.

    Parameters
    ----------
    ring : of members place by place, in order of rank; -1 of silent ones
    offsets : shape (places + 1,)
    """
    row, first, counts = np.arange(ring.size), offsets[:-1], np.diff(offsets)
    before = np.maximum.accumulate(np.where(ring >= 0, row, -1))
    after = np.minimum.accumulate(np.where(ring >= 0, row, ring.size)[::-1])[::-1]
    before = np.where(before >= np.repeat(first, counts), ring[before], -1)
    after = np.where(after < np.repeat(offsets[1:], counts), np.append(ring, -1)[after], -1)
    most = np.maximum.reduceat(ring, first)
    alone = np.minimum.reduceat(np.where(ring >= 0, ring, most.max()), first) == most
    sure = np.repeat(alone, counts) | (before == after)
    return np.where(sure, np.where(before >= 0, before, after), ring)
