"""Misfits: pairs and NICs of a job that are not as any layout would have them, given what each pair is called."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics.graphs import RING_PEERS, connected_components
from llmprism_tasks.numerics.robust import MAJORITY, Floats, Integers

KINDS = ("other", "dp", "pp", "ep", "cp")
OTHER, DP, PP, EP, CP = range(len(KINDS))

TREE_PEERS = 4
"""Receivers of a member of two binary trees: parent and two children in one, in which it is no leaf, and a parent in
the other. Rings have fewer."""

Labels = npt.NDArray[np.int64]


class Job(NamedTuple):
    """A job's pairs as arrays of shape (pairs,), its NICs as arrays of shape (nics,).

    Attributes
    ----------
    src, dst : NICs
    link, back : numbers of the two hosts of a pair, in its order and in the other
    evidence : shape (pairs, kinds), logarithms of likelihoods
    voted : what each pair is by itself
    fills : whether what recurs in each goes on through the step
    gathers : whether each may gather parameters: it fills the step, both ways at the same time
    bytes_ : what each moves in a step
    role : which role each plays
    host, rail : of NICs; a rail is a NIC's place in its host
    """

    src: Integers
    dst: Integers
    link: Integers
    back: Integers
    evidence: Floats
    voted: Labels
    fills: npt.NDArray[np.bool_]
    gathers: npt.NDArray[np.bool_]
    bytes_: Floats
    role: Integers
    host: Integers
    rail: Integers


def misfits(job: Job, label: Labels) -> dict[str, int]:
    """Count what does not fit any layout."""
    n = job.host.size
    is_ = {kind: label == kind for kind in (DP, PP, EP, CP)}
    reducing = is_[DP] | is_[EP] | is_[CP]
    group = connected_components(job.src[reducing], job.dst[reducing], n)
    same = group[job.src] == group[job.dst]
    found = {"within": int((is_[PP] & same).sum())}
    found["partial"] = _count_partial_links(job, is_[PP] & ~same, group)
    of_roles = (np.flatnonzero(is_[PP] & (job.role == role)) for role in np.unique(job.role[is_[PP]]))
    found["closed"] = sum(int(closed_ways(job, some).sum()) for some in of_roles)
    of_rings = (np.flatnonzero(is_[DP] & (job.role == role)) for role in np.unique(job.role[is_[DP]]))
    found["ends"] = sum(_count_ends_of_lines(job, some) for some in of_rings)
    found["unanswered"] = int((is_[PP] & ~np.isin(job.back, job.link[is_[PP]])).sum())
    found["apart"] = _count_missing_pairs(job, is_[EP], is_[DP])
    found["crowded"] = _count_excess_peers(job, is_[CP], RING_PEERS) + _count_excess_peers(job, is_[DP], TREE_PEERS)
    shared = is_[DP] | _carries_gradients_too(job, is_[EP])
    ring = connected_components(job.src[shared], job.dst[shared], n)
    # Blocks may share the hops of a ring of gradients that they are part of, and gradients those of tokens and blocks.
    along = is_[CP] & (ring[job.src] == ring[job.dst])
    found["open"] = _count_open_ends(job, is_[CP] & ~along, is_[CP]) + _count_open_ends(job, along, is_[CP] | is_[DP])
    found["open"] += _count_open_ends(job, reducing, reducing) if is_[DP].any() else 0
    closed = np.isin(np.arange(n), job.src[is_[DP]]) & np.isin(np.arange(n), job.dst[is_[DP]])
    # Who exchanges tokens with several NICs of a host shares gradients with them, by hops inside the host.
    hopping = is_[CP] | (is_[EP] if not _has_rail_crossing(job, is_[EP]) else np.zeros_like(is_[EP]))
    bridges = hopping & (ring[job.src] != ring[job.dst]) & closed[job.src] & closed[job.dst]
    found["bridges"] = int(bridges.sum())
    used = np.zeros(n, bool)
    for kind in is_.values():
        used[job.src[kind]] = used[job.dst[kind]] = True
    found["idle"] = int((~used).sum())
    through = connected_components(*_joined_through_hosts(job, reducing), n)
    found["uneven"] = min(_count_uneven_nics(job, one, reducing) for one in (group, through))
    return found


def closed_ways(job: Job, pairs: Integers) -> npt.NDArray[np.bool_]:
    """Return which pairs of one role lead all around, by NICs with two neighbours each: rings do. A pipeline has two
    ends, and where parts of the model are interleaved the way from the last stage to the first carries less."""
    src, dst, nics = job.src[pairs], job.dst[pairs], job.host.size
    ways = np.unique(np.minimum(src, dst) * nics + np.maximum(src, dst))
    peers = np.bincount(np.r_[ways // nics, ways % nics], minlength=nics)
    part = connected_components(src, dst, nics)
    with_ends = np.zeros(nics, bool)
    with_ends[part[(peers > 0) & (peers != RING_PEERS)]] = True
    return ~with_ends[part[src]]


def _count_partial_links(job: Job, piped: npt.NDArray[np.bool_], group: Integers) -> int:
    """Count the pairs of a pipeline between two gradient groups of neither of which more than half take part: every
    replica of a stage sends to the next one, but a copy from one host to another is a single pair."""
    n, src, dst = job.host.size, job.src[piped], job.dst[piped]
    link = np.minimum(group[src], group[dst]) * n + np.maximum(group[src], group[dst])
    taking_part, nic = np.divmod(np.unique(np.r_[link, link] * n + np.r_[src, dst]), n)
    side, count = np.unique(taking_part * n + group[nic], return_counts=True)
    most = count > MAJORITY * np.bincount(group, minlength=n)[side % n]
    return int(np.isin(link, side[most] // n, invert=True).sum())


def _count_ends_of_lines(job: Job, some: Integers) -> int:
    """Count NICs that share gradients of one role with one other NIC alone, which does so with more: of a ring all have
    two neighbours, and who is a leaf of one binary tree is none of the other. Stages are a line with such ends. A ring
    that passes from NIC to NIC inside a host is a line with both ends there."""
    src, dst, nics = job.src[some], job.dst[some], job.host.size
    there, back = src * nics + dst, dst * nics + src
    peers = np.bincount(np.union1d(there, back) // nics, minlength=nics)
    end, onward = np.divmod(np.intersect1d(there, back), nics)
    ends = end[(peers[end] == 1) & (peers[onward] > 1)]
    line = connected_components(src, dst, nics)[ends]
    _, in_one_host = np.unique(line * nics + job.host[ends], return_counts=True)
    return int((in_one_host == 1).sum())


def _count_uneven_nics(job: Job, group: Integers, reducing: npt.NDArray[np.bool_]) -> int:
    """Count NICs whose group is not as large as most; a group may pass by a NIC inside its host, and not be seen."""
    seen = np.zeros(job.host.size, bool)
    seen[job.src[reducing]] = seen[job.dst[reducing]] = True
    counted = seen | ~np.isin(job.host, job.host[seen])
    sizes = np.bincount(group, minlength=job.host.size)[group[counted]]
    return int(sizes.size - np.bincount(sizes).max())


def _joined_through_hosts(job: Job, reducing: npt.NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """Return the pairs that reduce something, and pairs of NICs of one host that such a ring joins inside it: those it
    comes in by, and those that it passes by there. It has a channel at each of a few NICs then (NCCL), and goes through
    all GPUs."""
    src, dst = [job.src[reducing]], [job.dst[reducing]]
    for role in np.unique(job.role[reducing]):
        some = reducing & (job.role == role)
        taken = np.zeros(job.host.size, bool)
        taken[job.src[some]] = taken[job.dst[some]] = True
        first = np.full(int(job.host.max()) + 1, -1)
        first[job.host[taken]] = np.flatnonzero(taken)
        passed = np.flatnonzero(~taken & (first[job.host] >= 0))
        src.append(first[job.host[passed]])
        dst.append(passed)
        ends = np.flatnonzero(taken & np.isin(job.host, job.host[passed]))
        src.append(first[job.host[ends]])
        dst.append(ends)
    return np.concatenate(src), np.concatenate(dst)


def _count_excess_peers(job: Job, some: npt.NDArray[np.bool_], most: int) -> int:
    """Count by how many a NIC's peers of a kind are more than a collective needs."""
    ends = (np.bincount(end[some], minlength=job.host.size) for end in (job.src, job.dst))
    return int(sum(np.maximum(peers - most, 0).sum() for peers in ends))


def _count_open_ends(job: Job, ring: npt.NDArray[np.bool_], onward: npt.NDArray[np.bool_]) -> int:
    """Count NICs where a ring comes in and does not go on, or the other way round, but for those where it may go on
    through another NIC of the host.

    Parameters
    ----------
    ring : its pairs
    onward : those that it may go on by
    """
    n = int(job.host.max(initial=0)) + 1
    sending, receiving = (
        [np.bincount(job.host[np.unique(end[some])], minlength=n) for some in (ring, onward)]
        for end in (job.src, job.dst)
    )
    lost, found = sending[0] - receiving[1], receiving[0] - sending[1]
    return int((np.maximum(lost, 0) + np.maximum(found, 0)).sum())


def _carries_gradients_too(job: Job, exchange: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which pairs of an exchange carry more than its others do: gradients go along them as well."""
    more: npt.NDArray[np.bool_] = job.role > job.role[exchange].min(initial=job.role.max(initial=0))
    return exchange & more


def _has_rail_crossing(job: Job, exchange: npt.NDArray[np.bool_]) -> bool:
    """Return whether an exchange goes from rail to rail."""
    return bool((job.rail[job.src] != job.rail[job.dst])[exchange].any())


def _count_missing_pairs(job: Job, exchange: npt.NDArray[np.bool_], gradients: npt.NDArray[np.bool_]) -> int:
    """Count the pairs between hosts that an exchange of all with all would have, and which are not there.

    Gradients may share a pair with tokens. It carries more than tokens alone then, so one that carries less than all
    pairs of the exchange is none of it.
    """
    if not exchange.any():
        return 0
    group = connected_components(job.src[exchange], job.dst[exchange], job.host.size)
    crossing = _has_rail_crossing(job, exchange)
    members = np.unique(np.r_[job.src[exchange], job.dst[exchange]])
    place = group[members] if crossing else group[members] * (job.rail.max() + 1) + job.rail[members]
    _, place = np.unique(place, return_inverse=True)
    size = np.bincount(place)
    at_host = np.bincount(place * (job.host.max() + 1) + job.host[members])
    expected = int((size * size).sum() - (at_host * at_host).sum())
    within = np.full(job.host.size, -1)
    within[members] = place
    least = np.full(size.size, np.inf)
    np.minimum.at(least, within[job.src[exchange]], job.bytes_[exchange])
    met = (within[job.src] >= 0) & (within[job.src] == within[job.dst]) & (job.host[job.src] != job.host[job.dst])
    met &= exchange | (gradients & (job.bytes_ >= least[within[job.src]]))
    return max(0, expected - int(met.sum()))
