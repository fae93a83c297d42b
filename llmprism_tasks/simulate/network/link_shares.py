"""The share of each link that a queue pair gets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from llmprism_tasks.simulate.arrays import Indices, Reals
from llmprism_tasks.simulate.network.queue_pairs import QueuePairs
from llmprism_tasks.simulate.scenario.fabric import Fabric

LINE_EFFICIENCY = 0.9  # share of a link's rate that RDMA traffic reaches in practice


def fair_rates(fabric: Fabric, pairs: QueuePairs, group: Indices) -> Reals:
    """Share the links among queue pairs that send at the same time, and return each one's rate in bits per second.

    A link is shared equally by the queue pairs of one `group` that cross it, and the path's scarcest share
    counts. This is simpler than max-min fairness, and tenants are taken not to meet: their bursts are short.
    """
    shares: dict[tuple[object, ...], int] = {}
    crossed = [
        [(number, *link) for link in _links(int(src), int(dst), switches)]
        for number, src, dst, switches in zip(group, pairs.src, pairs.dst, pairs.path, strict=True)
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
