"""What a job moves: gradient buckets, parameters and activations, in bytes, as Megatron-LM makes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.fabric import Reals
from llmprism_tasks.simulate.scenario import Job

GRADIENT_BYTES = 4  # gradients are accumulated and reduced in fp32
PARAMETER_BYTES = 2  # parameters and activations are bf16
OPTIMIZER_BYTES = 24  # read and written per parameter by Adam: fp32 master copy, two moments, gradient
MEMORY_BYTES_PER_S = 1.5e12  # what optimizer kernels reach of an accelerator's memory bandwidth


@dataclass(frozen=True)
class StageSizes:
    """One pp_stage's share of the model, per GPU.

    Attributes
    ----------
    buckets : parameters of each gradient bucket, in the order in which the backward pass fills them
    ready : when in the last backward pass each bucket is full, as a ratio of its duration
    """

    buckets: Reals
    ready: Reals

    @property
    def parameters(self) -> float:
        return float(self.buckets.sum())


def tensors(job: Job, pp_stage: int) -> list[int]:
    """Return the parameters of a pp_stage's tensors on one GPU, from the input's side to the output's.

    Matrices are split over TP, norms are not: query-key-value, projection and the two of a four times wider
    feed-forward (the shapes of a dense GPT).
    """
    width = job.hidden
    square = width * width // job.tp
    layer = [width, 3 * square, square, width, 4 * square, 4 * square]
    embedding = job.vocabulary * width // job.tp
    first = [embedding] if pp_stage == 0 else []
    last = [width, embedding] if pp_stage == job.pp - 1 else []
    return first + layer * (job.layers // job.pp) + last


def stage_sizes(job: Job, pp_stage: int) -> StageSizes:
    """Fill gradient buckets with whole tensors from the output's side, as Megatron's DDP does.

    A bucket is closed by the tensor that brings it to the bucket size. Without overlap there is one bucket.
    Source: Megatron-LM, megatron/core/distributed (bucket size max(40 M, 1 M x dp)).
    """
    limit = job.bucket_parameters or max(40_000_000, 1_000_000 * job.dp)
    if job.gradient_sync == "after":
        limit = 2**62
    buckets, filled = list[int](), 0
    for parameters in reversed(tensors(job, pp_stage)):
        filled += parameters
        if filled >= limit:
            buckets.append(filled)
            filled = 0
    if filled:
        buckets.append(filled)
    sizes = np.array(buckets, dtype=np.float64)
    return StageSizes(buckets=sizes, ready=np.cumsum(sizes) / sizes.sum())


def ring_bytes(parameters: Reals | float, bytes_each: int, members: int, lanes: int, passes: int = 1) -> Reals:
    """Return what each ring member sends on one lane: (n - 1) / n of the data in each pass.

    A reduce-scatter or all-gather is one pass, an all-reduce two.
    """
    return np.floor(np.asarray(parameters) * bytes_each * passes * (members - 1) / members / lanes)


def activation_bytes(job: Job, lanes: int) -> int:
    """Return what one queue pair carries of a micro-batch's activations, or of their gradients."""
    whole = job.micro_batch * job.sequence * job.hidden * PARAMETER_BYTES
    return max(1, whole // (job.tp if job.sequence_parallel == "yes" else 1) // lanes)
