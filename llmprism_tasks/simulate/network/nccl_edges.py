"""Which ranks NCCL connects: rings, trees and point-to-point links between hosts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from llmprism_tasks.simulate.network.double_binary_tree import first_children, parents
from llmprism_tasks.simulate.network.rank_layout import channels, groups, host_and_gpu, lanes, rank_of
from llmprism_tasks.simulate.scenario.training_job import Job

Edge = tuple[int, int, int]  # src rank, dst rank, lane


def edges(job: Job, use: str) -> Iterator[Edge]:
    """Yield all edges of a use that leave a host, some of them perhaps twice."""
    if use == "pp":
        yield from _pipeline_edges(job)
    elif use == "norm":
        for unit in range(job.units):
            members = [rank_of(job, tp, unit, pp) for pp in range(job.pp) for tp in range(job.tp)]
            yield from ring_edges(job, members, 1)
    elif use == "embedding":
        for first in range(job.tp * job.units):
            yield from ring_edges(job, [first, first + job.ranks - job.tp * job.units], job.channels, job.queue_pairs)
    else:
        for pp in range(job.pp):
            for tp in range(job.tp):
                for group in groups(job, use).tolist():
                    yield from _group_edges(job, use, [rank_of(job, tp, unit, pp) for unit in group])


def _group_edges(job: Job, use: str, members: list[int]) -> Iterator[Edge]:
    if use == "cp":
        for here, there in zip(members, members[1:] + members[:1], strict=True):
            yield from _peer_edges(job, here, there)
    elif use == "ep":
        for here, there in permutations(members, 2):
            yield from _peer_edges(job, here, there)
    elif job.algorithm == "tree":
        yield from tree_edges(job, members)
    else:
        yield from ring_edges(job, members, channels(job, use), job.queue_pairs)


def _by_host(job: Job, members: list[int]) -> list[list[int]]:
    hosts: dict[int, list[int]] = {}
    for rank in members:
        hosts.setdefault(host_and_gpu(job, rank)[0], []).append(rank)
    return list(hosts.values())


def ring_edges(job: Job, members: list[int], channels: int, queue_pairs: int = 1) -> list[Edge]:
    """Return a ring's edges between hosts, channel by channel.

    A ring visits its hosts one after the other. Inside a host each channel goes through the members in another order,
    so that channels leave through different NICs where the host has several members.
    """
    hosts = _by_host(job, members)
    if len(hosts) < 2:
        return []
    found = list[Edge]()
    for channel in range(channels):
        turned = [_turned(host, channel) for host in hosts]
        for here, there in zip(turned, turned[1:] + turned[:1], strict=True):
            found += [(here[-1], there[0], channel * queue_pairs + pair) for pair in range(queue_pairs)]
    return found


def _turned(host: list[int], channel: int) -> list[int]:
    begin = channel // 2 * 2 % len(host)
    turned = host[begin:] + host[:begin]
    return turned if channel % 2 == 0 else turned[::-1]


def tree_edges(job: Job, members: list[int]) -> list[Edge]:
    """Return the edges between hosts of two trees, each on half of the channels, up and down.

    Inside a host the members are a chain, in another order for each pair of channels. Its first member is linked to
    the parent's host and to the second child's, its second member to the first child's.
    Source: NCCL, src/graph/connect.cc, ncclTopoPreset with the balanced tree.
    """
    hosts = _by_host(job, members)
    if len(hosts) < 2:
        return []
    found, trees, elders = list[Edge](), parents(len(hosts)), first_children(len(hosts))
    for channel in range(job.channels):
        chains = [_turned(host, channel // 2 * 2) for host in hosts]
        up, elder = trees[channel % 2], elders[channel % 2]
        for host in (host for host in range(len(hosts)) if up[host] >= 0):
            above = chains[up[host]]
            child, parent = chains[host][0], above[1 % len(above) if elder[host] else 0]
            for lane in range(channel * job.queue_pairs, (channel + 1) * job.queue_pairs):
                found += [(child, parent, lane), (parent, child, lane)]
    return found


def _pipeline_edges(job: Job) -> Iterator[Edge]:
    last = job.pp - 1
    links = [(pp, pp + 1) for pp in range(last)] + ([(last, 0)] if job.chunks > 1 and job.pp > 2 else [])
    for here_pp, there_pp in links:
        for unit in range(job.units):
            for tp in range(job.tp):
                here, there = rank_of(job, tp, unit, here_pp), rank_of(job, tp, unit, there_pp)
                for onward, back in zip(_peer_edges(job, here, there), _peer_edges(job, there, here), strict=True):
                    yield onward
                    yield back


def _peer_edges(job: Job, here: int, there: int) -> list[Edge]:
    if host_and_gpu(job, here)[0] == host_and_gpu(job, there)[0]:
        return []
    return [(here, there, lane) for lane in range(lanes(job, "pp"))]
