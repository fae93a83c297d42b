"""Where a job's ranks are, what they have in common, and what they use queue pairs for."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.simulate.arrays import Indices
from llmprism_tasks.simulate.scenario.training_job import Job

# What each use of queue pairs is called in the truth.
KIND_OF_USE = {
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


def host_and_gpu(job: Job, rank: int) -> tuple[int, int]:
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
