"""A job's queue pairs: from which NIC to which, across which switches, and for what."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.arrays import Indices
from llmprism_tasks.simulate.network.nccl_edges import edges
from llmprism_tasks.simulate.network.rank_layout import KIND_OF_USE, host_and_gpu, uses
from llmprism_tasks.simulate.network.topology import path
from llmprism_tasks.simulate.scenario.fabric import Fabric
from llmprism_tasks.simulate.scenario.training_job import Job

FIRST_PORT, PORTS = 49_152, 16_384  # the dynamic range


@dataclass(frozen=True)
class QueuePairs:
    """One-way connections between two ranks of a job; arrays of one length.

    Attributes
    ----------
    src_rank, dst_rank : ranks in the job
    lane : NCCL channel of a ring, or the queue pair's number in a point-to-point connection
    src, dst : NICs, as host x gpus_per_host + gpu
    src_port : UDP source port, in the dynamic range
    path : switches crossed, one tuple each
    """

    src_rank: Indices
    dst_rank: Indices
    lane: Indices
    src: Indices
    dst: Indices
    src_port: Indices
    path: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.path)


@dataclass(frozen=True)
class Connections:
    """A job's queue pairs by use, in the order in which they are numbered."""

    by_use: dict[str, QueuePairs]

    @property
    def tables(self) -> tuple[QueuePairs, ...]:
        """The queue pairs of each use, in the order of their numbers."""
        return tuple(self.by_use.values())

    def first(self, use: str) -> int:
        """Return the number of a use's first queue pair."""
        before = list(self.by_use)[: list(self.by_use).index(use)]
        return sum(len(self.by_use[other]) for other in before)

    def numbers(self, use: str) -> Indices:
        """Return the numbers of a use's queue pairs; ranks that are relayed to the same GPU share one.

        Source: NCCL, src/transport/net.cc: a proxy's connections to a remote rank are shared by those it serves.
        """
        pairs = self.by_use[use]
        ends = np.stack([pairs.src, pairs.dst, pairs.src_port])
        _, first, same = np.unique(ends, axis=1, return_index=True, return_inverse=True)
        return self.first(use) + first[same.ravel()]

    def __len__(self) -> int:
        return sum(len(pairs) for pairs in self.tables)


def connect(fabric: Fabric, job: Job, seed: int) -> Connections:
    """Lay out all queue pairs of a job that leave a host; inside a host NVLink carries the traffic."""
    by_use = {use: _queue_pairs(fabric, job, use, seed) for use in uses(job)}
    if job.clear_to_send == "seen":
        # Scalars come last in the order of numbers, and go unanswered.
        bulk = [pairs for use, pairs in by_use.items() if use != "norm"]
        by_use["control"] = _answers(fabric, bulk, f"{seed} control")
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


def _way_out(job: Job, use: str, src: int, dst: int) -> tuple[int, int]:
    """Return the NIC through which a rank's messages leave: with PXN, the one on the receiver's rail.

    Source: NCCL 2.12 and later, PXN (NCCL_PXN_DISABLE, NCCL_P2P_PXN_LEVEL): the GPU on that rail must be the job's.
    """
    host, gpu = host_and_gpu(job, src)
    rail = host_and_gpu(job, dst)[1]
    relayed = job.relay == "yes" and KIND_OF_USE[use] in ("pp", "ep", "cp") and rail in job.gpus
    return host, rail if relayed else gpu


def _queue_pairs(fabric: Fabric, job: Job, use: str, seed: int) -> QueuePairs:
    wanted, salt = list(dict.fromkeys(edges(job, use))), f"{seed} {use}"
    src_rank, dst_rank, lane = np.array(wanted, dtype=np.int64).reshape(-1, 3).T
    ends = [(_way_out(job, use, src, dst), host_and_gpu(job, dst)) for src, dst, _ in wanted]
    ports = [_port(f"{salt} {src} {dst}", edge[2]) for (src, dst), edge in zip(ends, wanted, strict=True)]
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
