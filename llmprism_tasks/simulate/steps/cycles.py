"""A job's cycles: everything between one gradient norm and the next, timed for many steps at once.

The norm of the gradients is reduced over the whole job before any rank may update its parameters, so all ranks leave
it together. Cut there, cycles depend on each other only by where they start: cycle k updates and gathers the
parameters of step k - 1, runs step k's micro-batches, synchronises its gradients and ends with their norm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.arrays import Indices, Reals
from llmprism_tasks.simulate.network.collectives import LAUNCH_S, Burst
from llmprism_tasks.simulate.network.messages import wire_bytes
from llmprism_tasks.simulate.network.rank_layout import coordinates, lanes
from llmprism_tasks.simulate.steps.communicators import communicators, pipeline_sends
from llmprism_tasks.simulate.steps.execution import Durations, Execution
from llmprism_tasks.simulate.steps.fault_effects import Conditions
from llmprism_tasks.simulate.steps.jitter import Jitter
from llmprism_tasks.simulate.steps.job_model import JobModel
from llmprism_tasks.simulate.workload.message_sizes import MEMORY_BYTES_PER_S, OPTIMIZER_BYTES, ring_bytes
from llmprism_tasks.simulate.workload.operations import BACKWARD, FORWARD, OVERHEAD, UPDATE, Compute, Launch

KERNELS_S = 2e-3  # least time for the norm or the update: many small kernels and a wait by the host
NORM_S = 5e-5  # the all-reduce of one number


@dataclass(frozen=True)
class Sent:
    """What a job's queue pairs carry in each cycle, arrays of shape (cycles, bursts); times as in `Burst`."""

    rows: Indices
    met: Reals
    start: Reals
    seconds: Reals
    payload: Reals
    alone: Reals


@dataclass(frozen=True)
class Cycles:
    """Times within each cycle, in seconds after its start; the first axis is the cycle.

    Attributes
    ----------
    sent : all that is sent, but scalars
    optimized : end of the last step's optimizer, with the gather of its parameters where that is not overlapped
    reduced : end of the reduction of gradients
    norm : when their norm is known on each rank
    length : end of the cycle
    """

    sent: Sent
    optimized: Reals
    reduced: Reals
    norm: Reals
    length: Reals


def run_cycles(model: JobModel, state: Conditions, jitter: Jitter, pause_s: Reals) -> Cycles:
    """Time all cycles under the same conditions; `pause_s`, shape (pp, steps, units), comes before each forward."""
    job, steps = model.job, len(jitter.update)
    execution = Execution(
        now=[np.zeros((steps, job.units)) for _ in range(job.pp)],
        communicators=communicators(job, model.connections, state.rates),
        pipeline_sends=pipeline_sends(job, model.connections, state.rates),
        durations=_durations(model, state, jitter, pause_s),
    )
    execution.play(model.programs)
    reduced = np.stack([execution.marks["reduced", stage] for stage in range(job.pp)], axis=1)
    if "embedding" in model.connections.by_use:
        burst, reduced[:, [0, -1]] = _tied(model, state, reduced)
        execution.bursts.append(burst)
    ended = reduced.max(axis=(1, 2))
    norm = ended + KERNELS_S + model.parameters / job.shards_of_gradients * job.gradient_bytes / MEMORY_BYTES_PER_S
    return Cycles(
        sent=_sent(execution.bursts, steps),
        optimized=np.stack([execution.marks["optimized", stage].max(axis=1) for stage in range(job.pp)]).max(axis=0),
        reduced=ended,
        norm=norm,
        length=norm + NORM_S,
    )


def _durations(model: JobModel, state: Conditions, jitter: Jitter, pause_s: Reals) -> Durations:
    job = model.job
    forward_s = job.forward_ms / 1e3 / job.chunks
    seconds = {FORWARD: forward_s, BACKWARD: forward_s * job.backward_ratio}
    update_s = KERNELS_S + model.parameters / job.shards_of_states * OPTIMIZER_BYTES / MEMORY_BYTES_PER_S

    def compute(op: Compute, stage: int) -> Reals:
        """Return for how many seconds a pp_stage computes, shape (steps, units)."""
        if op.phase == OVERHEAD:
            return np.asarray(job.overhead_ms / 1e3 + pause_s[stage])
        if op.phase == UPDATE:
            return np.asarray(update_s * jitter.update[:, stage] * state.slowdown[stage])
        factor = (jitter.forward if op.phase == FORWARD else jitter.backward)[:, stage, :, op.number]
        whole = seconds[op.phase] * op.share * factor * state.slowdown[stage] * jitter.length(op.number)
        return np.asarray(whole if op.load < 0 else whole * jitter.received(op.load, stage))

    def factor(op: Launch, stage: int) -> Reals:
        return jitter.of_launch(op, stage)

    return Durations(
        compute=compute, factor=factor, routed=jitter.routed, transfer=jitter.of_transfer, length=jitter.length
    )


def _tied(model: JobModel, state: Conditions, reduced: Reals) -> tuple[Burst, Reals]:
    """All-reduce the gradients of tied embeddings between the first and the last pp_stage, after all others.

    Source: Megatron-LM, megatron/core/distributed/finalize_model_grads.py.
    """
    job, pairs = model.job, model.connections.by_use["embedding"]
    data = job.vocabulary * job.hidden // job.tp * job.gradient_bytes
    payload = np.array(ring_bytes(data, 2, lanes(job, "embedding"), passes=2))
    start = reduced[:, [0, -1]].max(axis=1)
    _, unit, _ = coordinates(job, pairs.src_rank)
    row_s = 2 * LAUNCH_S + wire_bytes(payload) * 8 / state.rates["embedding"]
    unit_s = np.zeros(job.units)
    np.maximum.at(unit_s, unit, row_s)
    pp = coordinates(job, pairs.src_rank)[2]
    came = np.maximum(reduced[:, pp, unit], start[:, unit])
    rows = model.connections.first("embedding") + np.arange(len(pairs))
    burst = Burst(rows, came, came, np.broadcast_to(row_s, came.shape), payload)
    return burst, np.repeat((start + unit_s)[:, None], 2, axis=1)


def _sent(bursts: list[Burst], steps: int) -> Sent:
    """Put bursts side by side."""

    def joined(name: str) -> Reals:
        values = [burst.seconds if (value := getattr(burst, name)) is None else value for burst in bursts]
        each = [np.broadcast_to(value, (steps, len(burst.rows))) for value, burst in zip(values, bursts, strict=True)]
        return np.concatenate([np.empty((steps, 0)), *each], axis=1)

    return Sent(
        rows=joined("rows").astype(np.int32),
        met=joined("met"),
        start=joined("start"),
        seconds=joined("seconds"),
        payload=joined("payload"),
        alone=joined("alone"),
    )
