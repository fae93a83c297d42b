"""A job's cycles: everything between one gradient norm and the next, timed for many steps at once.

The norm of the gradients is reduced over the whole job before any rank may update its parameters, so all ranks leave
it together. Cut there, cycles depend on each other only by where they start: cycle k updates and gathers the
parameters of step k - 1, runs step k's pipeline, synchronises its gradients and ends with their norm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.connections import LANES, Connections, connect, coordinates
from llmprism_tasks.simulate.fabric import Reals, fair_rates
from llmprism_tasks.simulate.pipeline import run_pipeline
from llmprism_tasks.simulate.records import wire_bytes
from llmprism_tasks.simulate.scenario import Fault, Job, Scenario
from llmprism_tasks.simulate.sizes import (
    GRADIENT_BYTES,
    MEMORY_BYTES_PER_S,
    OPTIMIZER_BYTES,
    PARAMETER_BYTES,
    StageSizes,
    activation_bytes,
    ring_bytes,
    stage_sizes,
)

OPERATION_JITTER = 0.01  # standard deviation of one operation's time, as a ratio
GPU_JITTER = 0.004  # standard deviation of a GPU's lasting speed, as a ratio
NVLINK_BPS = 1.6e12  # bits per second inside a host
LAUNCH_S = 2e-5  # slack within which peers launch an operation's first packets and see its last
RING_STEP_S = 8e-6  # latency of one of a ring's n - 1 steps
KERNELS_S = 2e-3  # least time for the norm or the update: many small kernels and a wait by the host
NORM_S = 5e-5  # the all-reduce of one number


@dataclass(frozen=True)
class JobModel:
    """What stays the same for a job as long as it runs; `gpu` is each rank's compute factor, about 1."""

    job: Job
    connections: Connections
    sizes: tuple[StageSizes, ...]
    gpu: Reals
    ring_bps: Reals
    pipeline_bps: Reals

    @property
    def parameters(self) -> float:
        """Parameters on a GPU of the largest pp_stage."""
        return max(stage.parameters for stage in self.sizes)


@dataclass(frozen=True)
class Jitter:
    """Random factors about 1, of shapes as in `pipeline` and `Rings`."""

    forward: Reals
    backward: Reals
    transfer: Reals
    sync: Reals
    gather: Reals
    update: Reals

    def first(self, steps: int) -> Jitter:
        """Return the factors of the first steps alone."""
        return Jitter(**{name: values[:steps] for name, values in vars(self).items()})


@dataclass(frozen=True)
class Conditions:
    """What the faults of the moment leave: compute factors by (pp, dp), rates by ring (pp, tp, lane) and queue pair."""

    slowdown: Reals
    ring_bps: Reals
    pipeline_bps: Reals


@dataclass(frozen=True)
class Rings:
    """Collectives of all DP rings of a job, one after the other in each ring, in seconds.

    Attributes
    ----------
    ready : when each rank comes to it, shape (steps, pp, dp, collectives)
    start : when the last rank has come and the ring before has ended, shape (steps, pp, tp, collectives)
    seconds : how long it takes, shape (steps, pp, tp, lanes, collectives)
    """

    ready: Reals
    start: Reals
    seconds: Reals

    @property
    def end(self) -> Reals:
        """When a collective has ended on all lanes, shape (steps, pp, tp, collectives)."""
        return np.asarray(self.start + self.seconds.max(axis=3))


@dataclass(frozen=True)
class Cycles:
    """Times within each cycle, in seconds after its start; the first axis is the cycle."""

    gather: Rings
    transfer_start: Reals
    transfer_factor: Reals
    sync: Rings
    updated: Reals
    synced: Reals
    norm: Reals
    length: Reals


def job_model(scenario: Scenario, index: int, seed: int) -> JobModel:
    """Build what stays the same for a scenario's job."""
    job = scenario.jobs[index]
    connections = connect(scenario.fabric, job, seed)
    rng = np.random.default_rng([seed, index])
    _, _, src_pp = coordinates(job, connections.pipeline.src_rank)
    _, _, dst_pp = coordinates(job, connections.pipeline.dst_rank)
    return JobModel(
        job=job,
        connections=connections,
        sizes=tuple(stage_sizes(job, stage) for stage in range(job.pp)),
        gpu=1 + GPU_JITTER * rng.standard_normal((job.pp, job.dp, job.tp)),
        ring_bps=fair_rates(scenario.fabric, connections.rings, np.zeros(len(connections.rings), dtype=np.int64)),
        pipeline_bps=fair_rates(scenario.fabric, connections.pipeline, src_pp * job.pp + dst_pp),
    )


def draw(model: JobModel, steps: int, rng: np.random.Generator) -> Jitter:
    """Draw the random factors of that many steps."""
    job = model.job
    buckets = volumes(model)[0].shape[1]
    streams = iter(rng.spawn(6))

    def factors(*shape: int) -> Reals:
        return np.asarray(1 + OPERATION_JITTER * next(streams).standard_normal((steps, *shape)))

    return Jitter(
        forward=factors(job.pp, job.dp, job.micro_batches),
        backward=factors(job.pp, job.dp, job.micro_batches),
        transfer=np.maximum(factors(2, job.pp - 1, job.dp, job.micro_batches), 1),
        sync=np.maximum(factors(job.pp, job.tp, buckets), 1),
        gather=np.maximum(factors(job.pp, job.tp, 1), 1),
        update=factors(job.pp, job.dp),
    )


def volumes(model: JobModel) -> tuple[Reals, Reals]:
    """Return the bytes each ring member sends per lane, for gradients and for parameters, shape (pp, collectives).

    Stages with fewer buckets than others have empty ones at the end.
    """
    job, most = model.job, max(len(stage.buckets) for stage in model.sizes)
    buckets = np.array([np.pad(stage.buckets, (0, most - len(stage.buckets))) for stage in model.sizes])
    distributed = job.optimizer == "distributed"
    gradients = ring_bytes(buckets, GRADIENT_BYTES, job.dp, LANES, 1 if distributed else 2)
    whole = buckets.sum(axis=1, keepdims=True) if distributed else np.zeros((job.pp, 1))
    return gradients, ring_bytes(whole, PARAMETER_BYTES, job.dp, LANES)


def conditions(model: JobModel, faults: tuple[Fault, ...]) -> Conditions:
    """Apply faults to a job: TP peers compute in lock-step, and a ring is as fast as its slowest hop."""
    job, gpu = model.job, model.gpu.copy()
    for fault in faults:
        if fault.kind == "slow_gpu" and fault.job == job.name:
            (tp,), (dp,), (pp,) = coordinates(job, np.array([fault.rank]))
            gpu[pp, dp, tp] *= fault.factor
    switches = {fault.switch: fault.factor for fault in faults if fault.kind == "degraded_switch"}

    def degraded(path: tuple[str, ...]) -> float:
        return min(switches.get(switch, 1.0) for switch in path)

    rings, pipeline = model.connections.rings, model.connections.pipeline
    tp, _, pp = coordinates(job, rings.src_rank)
    ring_bps = np.full((job.pp, job.tp, LANES), np.inf)
    np.minimum.at(ring_bps, (pp, tp, rings.lane), model.ring_bps * np.array([degraded(path) for path in rings.path]))
    return Conditions(
        slowdown=gpu.max(axis=2),
        ring_bps=np.where(np.isinf(ring_bps), NVLINK_BPS, ring_bps),
        pipeline_bps=model.pipeline_bps * np.array([degraded(path) for path in pipeline.path]),
    )


def run_cycles(model: JobModel, state: Conditions, jitter: Jitter, pause_s: float = 0.0) -> Cycles:
    """Time all cycles under the same conditions; `pause_s` is waited before each step's first forward."""
    job = model.job
    gradients, parameters = volumes(model)
    shards = job.dp if job.optimizer == "distributed" else 1
    update_s = KERNELS_S + model.parameters / shards * OPTIMIZER_BYTES / MEMORY_BYTES_PER_S
    updated = update_s * jitter.update * state.slowdown
    gather = _rings(job, state, updated[..., None], parameters, jitter.gather)
    begin = np.maximum(updated, gather.end.max(axis=(2, 3))[:, :, None]) + job.overhead_ms / 1e3 + pause_s
    forward = job.forward_ms / 1e3 * jitter.forward * state.slowdown[..., None]
    backward = job.backward_ratio * job.forward_ms / 1e3 * jitter.backward * state.slowdown[..., None]
    times = run_pipeline(begin, forward, backward, _transfer_seconds(model, state)[..., None] * jitter.transfer)
    ratio = np.array([np.pad(s.ready, (0, gradients.shape[1] - len(s.ready)), constant_values=1) for s in model.sizes])
    full = times.last_backward[..., None] + backward[..., -1:] * ratio[:, None, :]
    if job.gradient_sync == "after":
        full = times.end[..., None]
    sync = _rings(job, state, full, gradients, jitter.sync)
    synced = np.maximum(times.end.max(axis=(1, 2)), sync.end.max(axis=(1, 2, 3)))
    norm = synced + KERNELS_S + model.parameters * GRADIENT_BYTES / MEMORY_BYTES_PER_S
    return Cycles(
        gather=gather,
        transfer_start=times.transfer_start,
        transfer_factor=jitter.transfer,
        sync=sync,
        updated=updated.max(axis=(1, 2)),
        synced=synced,
        norm=norm,
        length=norm + NORM_S,
    )


def _transfer_seconds(model: JobModel, state: Conditions) -> Reals:
    """Return how long a transfer takes, shape (2, pp - 1, dp): TP peers and queue pairs wait for the last of them."""
    job, pairs = model.job, model.connections.pipeline
    sent = activation_bytes(job, LANES)
    seconds = np.full((2, job.pp - 1, job.dp), sent * LANES * 8 / NVLINK_BPS)
    _, dp, src_pp = coordinates(job, pairs.src_rank)
    _, _, dst_pp = coordinates(job, pairs.dst_rank)
    where = ((dst_pp < src_pp).astype(np.int64), np.minimum(src_pp, dst_pp), dp)
    np.maximum.at(seconds, where, LAUNCH_S + wire_bytes(np.array([sent])) * 8 / state.pipeline_bps)
    return seconds


def _rings(job: Job, state: Conditions, ready: Reals, volume: Reals, factor: Reals) -> Rings:
    """Run collectives of given bytes per lane, shape (pp, collectives), through all rings of a job."""
    latency = np.where(volume > 0, LAUNCH_S + RING_STEP_S * (job.dp - 1), 0.0)
    pure = wire_bytes(volume)[:, None, None, :] * 8 / state.ring_bps[..., None] + latency[:, None, None, :]
    seconds = pure * factor[:, :, :, None, :]
    start = np.empty(factor.shape)
    free: Reals | float = -np.inf
    for k in range(volume.shape[1]):
        start[..., k] = np.maximum(ready[..., k].max(axis=2)[:, :, None], free)
        free = start[..., k] + seconds[..., k].max(axis=3)
    return Rings(ready=np.broadcast_to(ready, (*ready.shape[:3], volume.shape[1])), start=start, seconds=seconds)
