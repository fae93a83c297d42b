"""The program of a rank whose parameters are sharded and gathered layer by layer: PyTorch FSDP2, ZeRO-3."""

from __future__ import annotations

from llmprism_tasks.simulate.network.rank_layout import lanes
from llmprism_tasks.simulate.scenario.training_job import Job
from llmprism_tasks.simulate.workload.message_sizes import PARAMETER_BYTES, ring_bytes, sharded_units
from llmprism_tasks.simulate.workload.operations import (
    BACKWARD,
    FORWARD,
    OVERHEAD,
    UPDATE,
    Await,
    Compute,
    Launch,
    Mark,
    Program,
)


def sharded_program(job: Job) -> Program:
    """Return the program from one gradient norm to the next.

    Each transformer block is a unit of its own, and embeddings, last norm and output are the root's. A unit's
    parameters are gathered in bf16, one unit ahead of the computing, in the forward and again in the backward pass
    (the root keeps its own between the two). The gradients of a unit are reduce-scattered as soon as its backward is
    done. All collectives of a group of ranks share one NCCL stream, so they queue in the order of their launch.
    With `shard_ranks` (HSDP), copies of the model then all-reduce their shards on a stream of their own.
    Source: PyTorch, torch/distributed/fsdp/_fully_shard (FSDPParamGroup, implicit prefetching; reshard_after_forward).
    """
    program: Program = [Compute(UPDATE), Mark("optimized"), Compute(OVERHEAD)]
    reduced: list[str] = []
    for i in range(job.micro_batches):
        program += _forward(job, i)
        reducing = i == job.micro_batches - 1 or job.reduce_every_micro_batch == "yes"
        backward = _backward(job, i, reducing=reducing)
        reduced += [op.key for op in backward if isinstance(op, Launch) and not op.key.startswith("gather")]
        program += backward
    return [*program, *map(Await, reduced), Mark("reduced")]


def _gather(job: Job, phase: str, micro_batch: int, unit: int) -> Launch:
    data = sharded_units(job)[unit] * PARAMETER_BYTES
    sent = ring_bytes(data, job.shards, lanes(job, "shard"))
    return Launch("shard", f"gather {phase} {micro_batch} {unit}", sent)


def _reduce(job: Job, micro_batch: int, unit: int) -> Program:
    data = sharded_units(job)[unit] * job.gradient_bytes
    key = f"reduce {micro_batch} {unit}"
    scattered: Program = [Launch("shard", key, ring_bytes(data, job.shards, lanes(job, "shard")))]
    copies = job.units // job.shards
    if copies == 1:
        return scattered
    shard = ring_bytes(data / job.shards, copies, lanes(job, "replicate"), passes=2)
    return [*scattered, Launch("replicate", f"copies {micro_batch} {unit}", shard, after=key)]


def _forward(job: Job, micro_batch: int) -> Program:
    layers, share = job.layers, 1 / (job.layers + 1)  # the output takes as long as a layer
    gathers = [_gather(job, FORWARD, micro_batch, unit) for unit in range(layers + 1)]
    program: Program = [*gathers[:2], Await(gathers[0].key)]
    for layer in range(1, layers + 1):
        program += [Await(gathers[layer].key), *gathers[layer + 1 : layer + 2], Compute(FORWARD, micro_batch, share)]
    return [*program, Compute(FORWARD, micro_batch, share)]


def _backward(job: Job, micro_batch: int, *, reducing: bool) -> Program:
    layers, share = job.layers, 1 / (job.layers + 1)
    gathers = {layer: _gather(job, BACKWARD, micro_batch, layer) for layer in range(1, layers + 1)}
    program: Program = [gathers[layers], Compute(BACKWARD, micro_batch, share)]
    for layer in range(layers, 0, -1):
        ahead = [gathers[layer - 1]] if layer > 1 else []
        program += [Await(gathers[layer].key), *ahead, Compute(BACKWARD, micro_batch, share)]
        program += _reduce(job, micro_batch, layer) if reducing else []
    return program + (_reduce(job, micro_batch, 0) if reducing else [])
