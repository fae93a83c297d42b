"""The program of a rank of a Megatron job: its micro-batches layer by layer, its gradients bucket by bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmprism_tasks.simulate.network.rank_layout import groups, lanes
from llmprism_tasks.simulate.scenario.training_job import Job
from llmprism_tasks.simulate.workload.message_sizes import (
    PARAMETER_BYTES,
    Buckets,
    buckets,
    has_experts,
    key_value_bytes,
    ring_bytes,
    tree_bytes,
)
from llmprism_tasks.simulate.workload.operations import (
    BACKWARD,
    FORWARD,
    OVERHEAD,
    UPDATE,
    Await,
    Compute,
    Launch,
    Mark,
    Operation,
    Program,
    launched_at,
)
from llmprism_tasks.simulate.workload.pipeline_schedule import Pass, schedule

ATTENTION_SHARE = 0.3  # of a layer's computing, where context-parallel ranks exchange keys and values meanwhile
EXPERT_SHARE = 0.5  # of a MoE layer's computing
OUTPUT_SHARE = 0.02  # of a pass, after the last layer: norm, output and loss


def megatron_program(job: Job, pp_stage: int) -> Program:
    """Return a pp_stage's program from one gradient norm to the next.

    Parameters are updated and gathered, at once or bucket by bucket while the first micro-batch needs them; the
    pipeline runs; gradients are reduced while the last micro-batch's backward fills their buckets, or after it.
    Source: Megatron-LM, megatron/core/distributed/param_and_grad_buffer.py and megatron/training/training.py.
    """
    program: Program = [Compute(UPDATE)]
    gathers = {chunk: _gathers(job, pp_stage, chunk) for chunk in range(job.chunks)}
    overlapped = job.overlap_param_gather == "yes"
    if not overlapped:
        whole = [launch for chunk in gathers.values() for _, launch in chunk]
        program += [*whole, *(Await(launch.key) for launch in whole)]
    program += [Mark("optimized"), Compute(OVERHEAD)]
    sync = {chunk: _reductions(job, pp_stage, chunk) for chunk in range(job.chunks)}
    for op in schedule(pp_stage, job.pp, job.chunks, job.micro_batches):
        if not isinstance(op, Pass):
            program.append(op)
            continue
        work = micro_batch_program(job, op)
        if overlapped and op.phase == FORWARD and op.micro_batch == 0:
            work = _gathered_on_the_way(work, gathers[op.chunk])
        if job.gradient_sync == "overlap" and op.phase == BACKWARD and op.micro_batch == job.micro_batches - 1:
            work = launched_at(work, [(ready, [launch]) for ready, launch in sync[op.chunk]])
        program += work
    reductions = [launch for chunk in sync.values() for _, launch in chunk]
    after: Sequence[Operation] = reductions if job.gradient_sync == "after" else ()
    return [*program, *after, *(Await(launch.key) for launch in reductions), Mark("reduced")]


def _filled(job: Job, pp_stage: int, chunk: int) -> Iterator[tuple[str, int, Buckets]]:
    """Yield the buckets that several ranks share, with the use that reduces them and how many ranks there are."""
    for use, expert in (("dp", False), ("expert_dp", True)):
        members = groups(job, use).shape[1] if not expert or job.ep > 1 else 1
        if members > 1:
            yield use, members, buckets(job, pp_stage, chunk, expert=expert)


def _reductions(job: Job, pp_stage: int, chunk: int) -> list[tuple[float, Launch]]:
    """Return a chunk's reductions, with the ratio of its last backward at which each may begin."""
    due: list[tuple[float, Launch]] = []
    for use, members, filled in _filled(job, pp_stage, chunk):
        for k, (parameters, ready) in enumerate(zip(filled.parameters, filled.ready, strict=True)):
            data = float(parameters) * job.gradient_bytes
            if job.algorithm == "tree":
                sent = tree_bytes(data, members, lanes(job, use))
            else:
                sent = ring_bytes(data, members, lanes(job, use), passes=1 if job.optimizer == "distributed" else 2)
            due.append((float(ready), Launch(use, f"reduce {use} {chunk} {k}", sent)))
    return sorted(due, key=lambda pair: pair[0])


def _gathers(job: Job, pp_stage: int, chunk: int) -> list[tuple[float, Launch]]:
    """Return a chunk's gathers, with the ratio of its first forward at which their parameters are needed."""
    if job.optimizer != "distributed":
        return []
    due: list[tuple[float, Launch]] = []
    for use, members, filled in _filled(job, pp_stage, chunk):
        sizes, needed = filled.parameters[::-1], 1 - filled.ready[::-1]
        if job.overlap_param_gather == "no":
            sizes, needed = sizes.sum(keepdims=True), needed[:1]
        for k, (parameters, ratio) in enumerate(zip(sizes, needed, strict=True)):
            sent = ring_bytes(float(parameters) * PARAMETER_BYTES, members, lanes(job, use))
            due.append((float(ratio), Launch(use, f"gather {use} {chunk} {k}", sent)))
    return sorted(due, key=lambda pair: pair[0])


def _gathered_on_the_way(work: Program, gathers: list[tuple[float, Launch]]) -> Program:
    """Gather each bucket before it is needed; the next one is launched when this one is waited for."""
    launches = [launch for _, launch in gathers]
    due: list[tuple[float, list[Operation]]] = [
        (ratio, [Await(launch.key), *launches[k + 1 : k + 2]]) for k, (ratio, launch) in enumerate(gathers)
    ]
    return [*launches[:1], *launched_at(work, due)]


def micro_batch_program(job: Job, one: Pass) -> Program:
    """Return a micro-batch's pass through a chunk, layer by layer where layers communicate."""
    number = one.chunk * job.micro_batches + one.micro_batch
    layers = job.layers // (job.pp * job.chunks)
    if job.cp == 1 and job.ep == 1:
        return [Compute(one.phase, number)]
    program: Program = []
    for layer in range(layers) if one.phase == FORWARD else reversed(range(layers)):
        work = Compute(one.phase, number, (1 - OUTPUT_SHARE) / layers)
        attention = _attention(job, work, f"{one.phase} {number} {layer}")
        rest = work.part((1 - ATTENTION_SHARE) if job.cp > 1 else 1.0)
        if has_experts(job, layer) and job.ep > 1:
            mine = _experts(rest, number * layers + layer, f"{one.phase} {number} {layer}")
        else:
            mine = [rest]
        program += [*attention, *mine] if one.phase == FORWARD else [*mine, *attention]
    output = Compute(one.phase, number, OUTPUT_SHARE)
    return [*program, output] if one.phase == FORWARD else [output, *program]


def _attention(job: Job, layer: Compute, key: str) -> Program:
    """Attend to one rank's block of the sequence after the other's, while the next one's keys and values come.

    In the backward pass the blocks go round again, with the gradients collected so far from the second hop on, and a
    last hop takes the gradients home.
    Source: TransformerEngine, AttnFuncWithCPAndKVP2P (ring attention of Liu, Zaharia and Abbeel, 2023).
    """
    if job.cp == 1:
        return []
    one = key_value_bytes(job, lanes(job, "cp"))
    hops = [one] * (job.cp - 1) if layer.phase == FORWARD else [one, *[2 * one] * (job.cp - 2), one]
    block, program = layer.part(ATTENTION_SHARE / job.cp), Program()
    for i in range(job.cp):
        hop = [Launch("cp", f"{key} hop {i}", float(hops[i]))] if i < len(hops) else []
        program += [*hop, block, *(Await(launch.key) for launch in hop)]
    return program


def _experts(rest: Compute, load: int, key: str) -> Program:
    """Send tokens to their experts and back, all to all.

    The backward pass goes the same ways: gradients of the outputs to the experts, gradients of the inputs back.
    Source: Megatron-LM, megatron/core/transformer/moe, class MoEAlltoAllTokenDispatcher.
    """
    there = Launch("ep", f"{key} dispatch", load=load)
    back = Launch("ep", f"{key} combine", load=load, back=True)
    experts = Compute(rest.phase, rest.number, rest.share * EXPERT_SHARE, load)
    others = rest.part(1 - EXPERT_SHARE)
    routed: Program = [there, Await(there.key), experts, back, Await(back.key)]
    return [others, *routed] if rest.phase == FORWARD else [*routed, others]
