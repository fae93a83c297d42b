"""What NCCL connects: a job's rings and trees, its point-to-point links and the rings of small scalars."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from llmprism_tasks.simulate.fabric import Indices, QueuePairs, path
from llmprism_tasks.simulate.jobs import Job
from llmprism_tasks.simulate.scenario import Fabric
from llmprism_tasks.simulate.trees import first_children, parents

FIRST_PORT, PORTS = 49_152, 16_384  # the dynamic range

# What each use of queue pairs is called in the truth.
KINDS = {
    "dp": "dp",  # gradients and parameters of what all units of a pp_stage hold
    "shard": "dp",  # the same where everything is sharded
    "replicate": "dp",  # gradients between copies of a sharded model
    "expert_dp": "dp",  # gradients and parameters of experts
    "cp": "cp",
    "ep": "ep",
    "pp": "pp",
    "embedding": "other",  # the gradients of tied embeddings
    "norm": "other",  # scalars
    "control": "other",  # what receivers answer on all others' queue pairs
}

Edge = tuple[int, int, int]  # src rank, dst rank, lane


@dataclass(frozen=True)
class Connections:
    """A job's queue pairs by use, in the order in which they are numbered."""

    by_use: dict[str, QueuePairs]

    @property
    def tables(self) -> tuple[QueuePairs, ...]:
        return tuple(self.by_use.values())

    def first(self, use: str) -> int:
        """Return the number of a use's first queue pair."""
        uses = list(self.by_use)
        return sum(len(self.by_use[other]) for other in uses[: uses.index(use)])

    def __len__(self) -> int:
        return sum(len(pairs) for pairs in self.tables)


def place(job: Job, rank: int) -> tuple[int, int]:
    """Return a rank's host and GPU."""
    return job.hosts[rank // len(job.gpus)], job.gpus[rank % len(job.gpus)]


def rank_of(job: Job, tp: int, unit: int, pp: int) -> int:
    """Return the rank at a place of the layout, in Megatron's order; a unit is cp's place, then dp's."""
    return tp + job.tp * (unit + job.units * pp)


def coordinates(job: Job, ranks: Indices) -> tuple[Indices, Indices, Indices]:
    """Return the tp, unit and pp coordinates of ranks."""
    return ranks % job.tp, ranks // job.tp % job.units, ranks // (job.tp * job.units)


def groups(job: Job, use: str) -> Indices:
    """Return the units of each group that shares a use, shape (groups, members); the same in all pp_stages.

    Source: Megatron-LM, megatron/core/parallel_state.py: neighbours share experts, and those that hold the same ones
    reduce their gradients together.
    """
    neighbours = {"dp": job.units, "cp": job.cp, "ep": job.ep, "shard": job.shards}
    units = np.arange(job.units, dtype=np.int64)
    if use in neighbours:
        return units.reshape(-1, neighbours[use])
    return units.reshape(-1, job.ep if use == "expert_dp" else job.shards).T


def channels(job: Job, use: str) -> int:
    """Return how many NCCL channels a use has: few where a group has one NIC in each host to itself."""
    return job.peer_channels if use in ("cp", "ep", "pp", "replicate") else job.channels


def lanes(job: Job, use: str) -> int:
    """Return on how many queue pairs a message of a use is spread."""
    return channels(job, use) * job.queue_pairs


def uses(job: Job) -> tuple[str, ...]:
    """Return what a job uses queue pairs for, in the order in which they are numbered."""
    wanted = {
        "dp": not job.sharded,
        "shard": job.sharded,
        "replicate": job.shards < job.units and job.sharded,
        "expert_dp": job.ep > 1,
        "pp": job.pp > 1,
        "cp": job.cp > 1,
        "ep": job.ep > 1,
        "embedding": job.embeddings == "tied" and job.pp > 1,
        "norm": True,
    }
    return tuple(use for use, used in wanted.items() if used)


def connect(fabric: Fabric, job: Job, seed: int) -> Connections:
    """Lay out all queue pairs of a job that leave a host; inside a host NVLink carries the traffic."""
    by_use = {
        use: _queue_pairs(fabric, job, list(dict.fromkeys(_edges(job, use))), f"{seed} {use}") for use in uses(job)
    }
    if job.clear_to_send == "seen":
        by_use["control"] = _answers(fabric, list(by_use.values()), f"{seed} control")
    return Connections(by_use)


def _answers(fabric: Fabric, tables: list[QueuePairs], salt: str) -> QueuePairs:
    """Return the other directions of queue pairs, which have source ports of their own."""

    def of(name: str) -> Indices:
        return np.concatenate([getattr(table, name) for table in tables])

    src, dst, forth = of("dst"), of("src"), of("src_port")
    ports = [_port(f"{salt} {s} {d} {port}", 0) for s, d, port in zip(src, dst, forth, strict=True)]
    here, there = ([divmod(nic, fabric.gpus_per_host) for nic in ends.tolist()] for ends in (src, dst))
    return QueuePairs(
        src_rank=of("dst_rank"),
        dst_rank=of("src_rank"),
        lane=of("lane"),
        src=src,
        dst=dst,
        src_port=np.array(ports, dtype=np.int64),
        path=tuple(path(fabric, s, d, port) for s, d, port in zip(here, there, ports, strict=True)),
    )


def _edges(job: Job, use: str) -> Iterator[Edge]:
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
        hosts.setdefault(place(job, rank)[0], []).append(rank)
    return list(hosts.values())


def ring_edges(job: Job, members: list[int], channels: int, queue_pairs: int = 1) -> list[Edge]:
    """Return a ring's edges between hosts, channel by channel.

    A ring visits its hosts one after the other. Inside a host each channel goes through the members in another order,
    so that channels leave through different NICs where the host has several members.
    """
    hosts = _by_host(job, members)
    if len(hosts) < 2:
        return []
    edges = []
    for channel in range(channels):
        turned = [_turned(host, channel) for host in hosts]
        for here, there in zip(turned, turned[1:] + turned[:1], strict=True):
            edges += [(here[-1], there[0], channel * queue_pairs + pair) for pair in range(queue_pairs)]
    return edges


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
    edges, trees, elders = [], parents(len(hosts)), first_children(len(hosts))
    for channel in range(job.channels):
        chains = [_turned(host, channel // 2 * 2) for host in hosts]
        up, elder = trees[channel % 2], elders[channel % 2]
        for host in (host for host in range(len(hosts)) if up[host] >= 0):
            above = chains[up[host]]
            child, parent = chains[host][0], above[1 % len(above) if elder[host] else 0]
            for lane in range(channel * job.queue_pairs, (channel + 1) * job.queue_pairs):
                edges += [(child, parent, lane), (parent, child, lane)]
    return edges


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
    if place(job, here)[0] == place(job, there)[0]:
        return []
    return [(here, there, lane) for lane in range(lanes(job, "pp"))]


def _way_out(job: Job, use: str, src: int, dst: int) -> tuple[int, int]:
    """Return the NIC through which a rank's messages leave: with PXN, the one on the receiver's rail.

    Source: NCCL 2.12 and later, PXN (NCCL_PXN_DISABLE, NCCL_P2P_PXN_LEVEL): the GPU on that rail must be the job's.
    """
    host, gpu = place(job, src)
    rail = place(job, dst)[1]
    relayed = job.relay == "yes" and KINDS[use] in ("pp", "ep", "cp") and rail in job.gpus
    return host, rail if relayed else gpu


def _queue_pairs(fabric: Fabric, job: Job, edges: list[Edge], salt: str) -> QueuePairs:
    src_rank, dst_rank, lane = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    use = salt.rsplit(maxsplit=1)[-1]
    ends = [(_way_out(job, use, src, dst), place(job, dst)) for src, dst, _ in edges]
    # Connections that are relayed through one NIC are told apart by the rank they serve.
    served = ["" if place(job, edge[0]) == src else f" {edge[0]}" for (src, _), edge in zip(ends, edges, strict=True)]
    ports = [_port(f"{salt} {s} {d}{rank}", e[2]) for (s, d), rank, e in zip(ends, served, edges, strict=True)]
    return QueuePairs(
        src_rank=src_rank,
        dst_rank=dst_rank,
        lane=lane,
        src=np.array([host * fabric.gpus_per_host + gpu for (host, gpu), _ in ends], dtype=np.int64),
        dst=np.array([host * fabric.gpus_per_host + gpu for _, (host, gpu) in ends], dtype=np.int64),
        src_port=np.array(ports, dtype=np.int64),
        path=tuple(path(fabric, src, dst, port) for (src, dst), port in zip(ends, ports, strict=True)),
    )


def _port(connection: str, lane: int) -> int:
    # The golden-ratio step keeps a connection's lanes apart, as the hash of NCCL's queue pair numbers does.
    return FIRST_PORT + (zlib.crc32(connection.encode()) + lane * 10_127) % PORTS
