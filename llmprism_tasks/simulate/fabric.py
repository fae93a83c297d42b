"""The fabric: NICs and their addresses, the path of a queue pair, and the share of each link it gets."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from llmprism_tasks.simulate.scenario import Fabric

ROCE_PORT = 4791  # RoCEv2's UDP destination port
UDP = 17
LINE_EFFICIENCY = 0.9  # share of a link's rate that RDMA traffic reaches in practice

Indices = NDArray[np.int64]
Reals = NDArray[np.float64]


def addr(host: int, gpu: int) -> str:
    """Return a NIC's address: one subnet per rail."""
    return f"10.{1 + gpu}.{host // 256}.{host % 256}"


def host_name(host: int) -> str:
    return f"node{host:04d}"


def topology(fabric: Fabric) -> pl.DataFrame:
    """Return one row per NIC: addr, host, gpu, leaf_switch, pod."""
    nics = [(host, gpu) for host in range(fabric.hosts) for gpu in range(fabric.gpus_per_host)]
    return pl.DataFrame(
        {
            "addr": [addr(host, gpu) for host, gpu in nics],
            "host": [host_name(host) for host, _ in nics],
            "gpu": pl.Series([gpu for _, gpu in nics], dtype=pl.Int32),
            "leaf_switch": [fabric.leaf(host, gpu) for host, gpu in nics],
            "pod": [f"pod-{host // fabric.hosts_per_leaf:02d}" for host, _ in nics],
        }
    )


def path(fabric: Fabric, src: tuple[int, int], dst: tuple[int, int], src_port: int) -> tuple[str, ...]:
    """Return the switches from one NIC (host, gpu) to another, in order.

    Between leaves the spine is chosen by a hash of the 5-tuple (ECMP), so a queue pair always takes the same one.
    """
    first, last = fabric.leaf(*src), fabric.leaf(*dst)
    if first == last:
        return (first,)
    five_tuple = f"{addr(*src)},{addr(*dst)},{src_port},{ROCE_PORT},{UDP}"
    return first, fabric.spine(zlib.crc32(five_tuple.encode()) % fabric.spines), last


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


def fair_rates(fabric: Fabric, pairs: QueuePairs, together: Indices) -> Reals:
    """Share the links among queue pairs that send at the same time, and return each one's rate in bits per second.

    A link is shared equally by the queue pairs of one `together` number that cross it, and the path's scarcest share
    counts. This is simpler than max-min fairness, and tenants are taken not to meet: their bursts are short.
    """
    shares: dict[tuple[object, ...], int] = {}
    crossed = [
        [(group, *link) for link in _links(int(src), int(dst), switches)]
        for group, src, dst, switches in zip(together, pairs.src, pairs.dst, pairs.path, strict=True)
    ]
    for links in crossed:
        for link in links:
            shares[link] = shares.get(link, 0) + 1
    capacity = {"nic": fabric.link_gbps, "fabric": fabric.uplink_gbps}
    scarcest = [min(capacity[str(link[1])] / shares[link] for link in links) for links in crossed]
    return np.array(scarcest, dtype=np.float64) * 1e9 * LINE_EFFICIENCY


def _links(src: int, dst: int, switches: tuple[str, ...]) -> list[tuple[str, object, object]]:
    inside = [("fabric", a, b) for a, b in pairwise(switches)]
    return [("nic", "out", src), ("nic", "in", dst), *inside]
