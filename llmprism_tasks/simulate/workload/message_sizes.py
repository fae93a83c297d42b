"""What a job moves: gradient buckets, parameters, activations, keys and values, tokens; in bytes, as frameworks do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.arrays import Reals
from llmprism_tasks.simulate.scenario.training_job import Job

PARAMETER_BYTES = 2  # parameters and activations are bf16
OPTIMIZER_BYTES = 24  # read and written per parameter by Adam: fp32 master copy, two moments, gradient
MEMORY_BYTES_PER_S = 1.5e12  # what optimizer kernels reach of an accelerator's memory bandwidth


@dataclass(frozen=True)
class Buckets:
    """Gradient buckets of one kind of parameters in one chunk of the model, per GPU.

    Attributes
    ----------
    parameters : of each bucket, in the order in which the backward pass fills them
    ready : when in the last backward pass each bucket is full, as a ratio of its duration
    """

    parameters: Reals
    ready: Reals


@dataclass(frozen=True)
class Tensor:
    """Some parameters on one GPU; `expert` when they belong to experts that only some ranks hold."""

    parameters: int
    expert: bool = False


def has_experts(job: Job, layer: int) -> bool:
    """Whether a layer, counted within its chunk of the model, is a MoE layer."""
    return job.experts > 0 and layer % job.moe_every == job.moe_every - 1


def layer_tensors(job: Job, layer: int) -> list[Tensor]:
    """Return a layer's tensors: norms, query-key-value, projection, feed-forward or router and experts.

    Matrices are split over TP, norms are not. A dense feed-forward is four times wider than the model.
    """
    width = job.hidden
    attention = [width, round(width * width * (1 + 2 * job.key_value_ratio)) // job.tp, width * width // job.tp, width]
    if not has_experts(job, layer):
        return [Tensor(size) for size in (*attention, 4 * width * width // job.tp, 4 * width * width // job.tp)]
    expert = width * (job.expert_hidden or 4 * width) // job.tp
    mine = [Tensor(expert, expert=job.ep > 1)] * (2 * job.experts // job.ep)
    return [*(Tensor(size) for size in (*attention, width * job.experts)), *mine]


def tensors(job: Job, pp_stage: int, chunk: int = 0) -> list[Tensor]:
    """Return the tensors of a chunk of the model on one GPU, from the input's side to the output's."""
    embedding = Tensor(job.vocabulary * job.hidden // job.tp)
    first = [embedding] if (pp_stage, chunk) == (0, 0) else []
    end = (pp_stage, chunk) == (job.pp - 1, job.chunks - 1)
    output = [] if job.embeddings == "tied" and job.pp == 1 else [embedding]
    last = [Tensor(job.hidden), *output] if end else []
    layers = [tensor for layer in range(job.layers // (job.pp * job.chunks)) for tensor in layer_tensors(job, layer)]
    return first + layers + last


def parameters(job: Job, pp_stage: int) -> float:
    """Return how many parameters a GPU of a pp_stage holds, were they not sharded."""
    return float(sum(tensor.parameters for chunk in range(job.chunks) for tensor in tensors(job, pp_stage, chunk)))


def buckets(job: Job, pp_stage: int, chunk: int, *, expert: bool) -> Buckets:
    """Fill gradient buckets with whole tensors from the output's side, as Megatron's DDP does.

    A bucket is closed by the tensor that brings it to the bucket size. Without overlap there is one bucket. Experts'
    parameters have buckets of their own.
    Source: Megatron-LM, megatron/core/distributed (bucket size max(40 M, 1 M x dp)).
    """
    limit = job.bucket_parameters or max(40_000_000, 1_000_000 * job.units)
    if job.gradient_sync == "after":
        limit = 2**62
    filled, passed, sizes, ready = 0, 0, list[int](), list[int]()
    for tensor in reversed(tensors(job, pp_stage, chunk)):
        passed += tensor.parameters
        if tensor.expert == expert:
            filled += tensor.parameters
            if filled >= limit:
                sizes, ready, filled = [*sizes, filled], [*ready, passed], 0
    if filled:
        sizes, ready = [*sizes, filled], [*ready, passed]
    return Buckets(np.array(sizes, dtype=np.float64), np.array(ready, dtype=np.float64) / max(passed, 1))


def ring_bytes(data: float, members: int, lanes: int, passes: int = 1) -> float:
    """Return what each ring member sends on one lane: (n - 1) / n of the data, in bytes, in each pass.

    A reduce-scatter or all-gather is one pass, an all-reduce two.
    """
    return float(np.floor(data * passes * (members - 1) / members / lanes))


def tree_bytes(data: float, members: int, lanes: int) -> float:
    """Return what each edge of a tree carries on one lane of an all-reduce, up as down: all of the lane's data."""
    return float(np.floor(data / lanes)) if members > 1 else 0.0


def micro_batch_tokens(job: Job) -> int:
    """Return the tokens of a micro-batch that a GPU holds between layers."""
    mine = job.micro_batch * job.sequence // job.cp
    return mine // job.tp if job.sequence_parallel == "yes" else mine


def activation_bytes(job: Job, lanes: int) -> int:
    """Return what one queue pair carries of a micro-batch's activations, or of their gradients."""
    return max(1, micro_batch_tokens(job) * job.hidden * PARAMETER_BYTES // lanes)


def key_value_bytes(job: Job, lanes: int) -> int:
    """Return what one queue pair carries of a rank's keys and values of a layer, or of their gradients."""
    heads = round(2 * job.hidden * job.key_value_ratio) // job.tp
    return max(1, job.micro_batch * job.sequence // job.cp * heads * PARAMETER_BYTES // lanes)


def sharded_units(job: Job) -> list[float]:
    """Return the parameters of what FSDP gathers at once: the root (embeddings, norm, output), and each layer."""
    width = job.hidden
    root = 2 * (job.vocabulary * width // job.tp) + width
    return [float(root)] + [float(sum(t.parameters for t in layer_tensors(job, i))) for i in range(job.layers)]
