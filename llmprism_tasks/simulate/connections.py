"""What NCCL connects: a job's gradient rings, its pipeline's point-to-point links and the rings of small scalars."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.fabric import Indices, QueuePairs, path
from llmprism_tasks.simulate.scenario import Fabric, Job

LANES = 2  # channels of a ring, and queue pairs of a point-to-point connection
FIRST_PORT, PORTS = 49_152, 16_384  # the dynamic range

Edge = tuple[int, int, int]  # src rank, dst rank, lane


@dataclass(frozen=True)
class Connections:
    """A job's queue pairs by use: `rings` (dp), `pipeline` (pp), `scalars` (the gradient norm, other)."""

    rings: QueuePairs
    pipeline: QueuePairs
    scalars: QueuePairs

    @property
    def tables(self) -> tuple[QueuePairs, ...]:
        """All of them, in the order in which queue pairs are numbered."""
        return self.rings, self.pipeline, self.scalars


def place(job: Job, rank: int) -> tuple[int, int]:
    """Return a rank's host and GPU."""
    return job.hosts[rank // len(job.gpus)], job.gpus[rank % len(job.gpus)]


def rank_of(job: Job, tp: int, dp: int, pp: int) -> int:
    """Return the rank at a place of the layout, in Megatron's order."""
    return tp + job.tp * (dp + job.dp * pp)


def coordinates(job: Job, ranks: Indices) -> tuple[Indices, Indices, Indices]:
    """Return the tp, dp and pp coordinates of ranks."""
    return ranks % job.tp, ranks // job.tp % job.dp, ranks // (job.tp * job.dp)


def connect(fabric: Fabric, job: Job, seed: int) -> Connections:
    """Lay out all queue pairs of a job that leave a host; inside a host NVLink carries the traffic."""
    rings = [
        edge
        for pp in range(job.pp)
        for tp in range(job.tp)
        for edge in ring_edges(job, [rank_of(job, tp, dp, pp) for dp in range(job.dp)], LANES)
    ]
    replicas = [[rank_of(job, tp, dp, pp) for pp in range(job.pp) for tp in range(job.tp)] for dp in range(job.dp)]
    scalars = [edge for members in replicas for edge in ring_edges(job, members, 1)]
    return Connections(
        rings=_queue_pairs(fabric, job, rings, f"{seed} dp"),
        pipeline=_queue_pairs(fabric, job, list(_pipeline_edges(job)), f"{seed} pp"),
        scalars=_queue_pairs(fabric, job, scalars, f"{seed} norm"),
    )


def ring_edges(job: Job, members: list[int], lanes: int) -> list[Edge]:
    """Return a ring's edges between hosts, lane by lane.

    A ring visits its hosts one after the other. Inside a host each lane goes through the members in another order, so
    that lanes leave through different NICs where the host has several members.
    """
    by_host: dict[int, list[int]] = {}
    for rank in members:
        by_host.setdefault(place(job, rank)[0], []).append(rank)
    hosts = list(by_host.values())
    if len(hosts) < 2:
        return []
    edges = []
    for lane in range(lanes):
        turned = [host if lane % 2 == 0 else host[::-1] for host in hosts]
        edges += [(here[-1], there[0], lane) for here, there in zip(turned, turned[1:] + turned[:1], strict=True)]
    return edges


def _pipeline_edges(job: Job) -> Iterator[Edge]:
    for pp in range(job.pp - 1):
        for dp in range(job.dp):
            for tp in range(job.tp):
                here, there = rank_of(job, tp, dp, pp), rank_of(job, tp, dp, pp + 1)
                if place(job, here)[0] != place(job, there)[0]:
                    for lane in range(LANES):
                        yield here, there, lane
                        yield there, here, lane


def _queue_pairs(fabric: Fabric, job: Job, edges: list[Edge], salt: str) -> QueuePairs:
    src_rank, dst_rank, lane = np.array(edges, dtype=np.int64).reshape(-1, 3).T
    ends = [(place(job, src), place(job, dst)) for src, dst, _ in edges]
    ports = [_port(f"{salt} {src} {dst}", edge[2]) for (src, dst), edge in zip(ends, edges, strict=True)]
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
