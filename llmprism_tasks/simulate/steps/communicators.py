"""A job's communicators: its queue pairs by use and pp_stage, at the rates of the moment."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from llmprism_tasks.simulate.arrays import Indices, Reals
from llmprism_tasks.simulate.network.collectives import (
    LAUNCH_S,
    AllToAll,
    Collective,
    PipelineSends,
    RingExchange,
    StageQueuePairs,
)
from llmprism_tasks.simulate.network.double_binary_tree import depth
from llmprism_tasks.simulate.network.queue_pairs import Connections
from llmprism_tasks.simulate.network.rank_layout import coordinates, groups, host_and_gpu, lanes, rank_of
from llmprism_tasks.simulate.scenario.training_job import Job
from llmprism_tasks.simulate.steps.execution import Communicator
from llmprism_tasks.simulate.workload.message_sizes import activation_bytes

RING_STEP_S = 8e-6  # latency of a hop between hosts: one of a ring's n - 1 steps
NVLINK_STEP_S = 1e-6  # latency of a hop inside a host
COLLECTIVES = ("dp", "shard", "replicate", "expert_dp")


def communicators(
    job: Job, connections: Connections, rates: Mapping[str, Reals]
) -> dict[tuple[str, int], Communicator]:
    """Return the communicator of each use in each pp_stage, at the given rates."""
    return {
        (use, stage): _communicator(job, stage_queue_pairs(job, connections, rates, use, stage), use, stage)
        for use in connections.by_use
        if use in (*COLLECTIVES, "cp", "ep")
        for stage in range(job.pp)
    }


def _communicator(job: Job, wires: StageQueuePairs, use: str, stage: int) -> Communicator:
    members = groups(job, use)
    if use == "cp":
        return RingExchange(wires, members, lanes(job, use))
    if use == "ep":
        return AllToAll(wires, job.units, _turned(wires))
    return Collective(wires, members, job.tp, lanes(job, use), _latency_s(job, members, stage))


def stage_queue_pairs(
    job: Job, connections: Connections, rates: Mapping[str, Reals], use: str, stage: int
) -> StageQueuePairs:
    """Return a use's queue pairs in one pp_stage."""
    pairs = connections.by_use[use]
    return _chosen(job, connections, rates, use, np.flatnonzero(coordinates(job, pairs.src_rank)[2] == stage))


def pipeline_sends(
    job: Job, connections: Connections, rates: Mapping[str, Reals]
) -> dict[tuple[int, int], PipelineSends]:
    """Return the transfers from each pp_stage to each neighbour, at the given rates."""
    if job.pp == 1:
        return {}
    pairs = connections.by_use["pp"]
    src_pp, dst_pp = coordinates(job, pairs.src_rank)[2], coordinates(job, pairs.dst_rank)[2]
    sent = float(activation_bytes(job, lanes(job, "pp")))
    made = {}
    for here in range(job.pp):
        for there in {(here + 1) % job.pp, (here - 1) % job.pp}:
            found = _chosen(job, connections, rates, "pp", np.flatnonzero((src_pp == here) & (dst_pp == there)))
            made[here, there] = PipelineSends(found, job.units, sent, lanes(job, "pp"))
    return made


def _chosen(
    job: Job, connections: Connections, rates: Mapping[str, Reals], use: str, chosen: Indices
) -> StageQueuePairs:
    pairs = connections.by_use[use]
    tp, src, _ = coordinates(job, pairs.src_rank[chosen])
    _, dst, _ = coordinates(job, pairs.dst_rank[chosen])
    rows = connections.numbers(use)[chosen]
    return StageQueuePairs(rows=rows, src=src, dst=dst, tp=tp, lane=pairs.lane[chosen], bps=rates[use][chosen])


def _turned(wires: StageQueuePairs) -> Indices:
    """Return for each queue pair the place of the one that goes the other way."""
    here = np.lexsort((wires.lane, wires.tp, wires.dst, wires.src))
    there = np.lexsort((wires.lane, wires.tp, wires.src, wires.dst))
    turned = np.empty(len(here), dtype=np.int64)
    turned[here] = there
    return turned


def _latency_s(job: Job, members: Indices, stage: int) -> float:
    """Return how long a collective's first byte takes through the largest of its groups."""
    hosts = max(len({host_and_gpu(job, rank_of(job, 0, int(unit), stage))[0] for unit in group}) for group in members)
    inside = NVLINK_STEP_S * (members.shape[1] - hosts)
    between = 2 * depth(hosts) if job.algorithm == "tree" else hosts - 1
    return float(LAUNCH_S + RING_STEP_S * between + inside)
