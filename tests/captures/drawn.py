"""A capture drawn by its seed: what trains, beside whom, and what goes wrong.

Kinds of training and of trouble go by turns, so that a few seeds have all; everything else is drawn.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import cluster
from setups import NIC_ADDRS, Fault, Job, Scenario, Traffic, chatter

KINDS = ("ddp", "fsdp", "pipeline", "interleaved", "replicas", "experts", "ring", "tensors")
TROUBLES = (
    "none", "slow_rank", "limited_nic", "stopped_rank", "none", "link_flap", "killed_rank", "limited_uplink",
    "slow_storage", "throttled_rank", "none",
)  # fmt: skip
"""Eleven against eight kinds: no kind meets the same trouble again before the 88th seed."""

NIC_BYTES = cluster.NIC_MBIT * 1e6 / 8
LAYER_BYTES = 3.2e6
"""Gradients of a layer of models.py, bytes."""

ENDS_BYTES = 1.1e6
"""Those of embedding and head."""

PASSES = 3.0
"""A layer's forward and backward pass, in forward passes."""


def draw(seed: int) -> Scenario:
    """Return what a seed draws."""
    dice = random.Random(seed)
    turn, odd = divmod(seed, 2)
    trouble = TROUBLES[(3 * turn + 5 * odd) % len(TROUBLES)]
    job = _job(dice, KINDS[turn % len(KINDS)], _step_s(dice), most=6 if trouble == "killed_rank" else 8)
    job = _habits(dice, job, checkpoints=trouble == "slow_storage")
    jobs = [job]
    free = [addr for addr in NIC_ADDRS if addr not in job.addrs]
    if len(free) >= 2 and (trouble == "killed_rank" or dice.random() < 0.5):
        jobs.append(_tenant(dice, free))
    traffic: list[Traffic] = []
    if dice.random() < 0.35:
        traffic += chatter(160.0)
    if dice.random() < 0.45:
        traffic += [_copy(dice) for _ in range(dice.randint(1, 3))]
    faults = () if trouble == "none" else (_fault(dice, trouble, job),)
    return Scenario(tuple(jobs), tuple(traffic), faults)


def words(seed: int) -> str:
    """Return in a line what a seed draws."""
    scenario = draw(seed)
    said = [_words(job) for job in scenario.jobs]
    kinds = sorted({one.kind for one in scenario.traffic})
    said += [f"{sum(one.kind == kind for one in scenario.traffic)} x {kind}" for kind in kinds]
    said += [
        f"{one.kind} {one.addr} from {one.start_s:.0f} s for {one.seconds:.0f} s, severity {one.severity:.2f}"
        for one in scenario.faults
    ]
    return "; ".join(said)


def _words(job: Job) -> str:
    degrees = " ".join(f"{name} {getattr(job, name)}" for name in ("tp", "pp", "dp", "cp", "ep", "virtual"))
    habits = {
        "accumulates": job.accumulate if job.accumulate > 1 else 0,
        "evaluates every": job.evaluate_every,
        "saves every": job.checkpoint_every,
        "unevenness": round(job.unevenness, 2),
        "jitter": round(job.jitter, 2),
    }
    return (
        f"{job.name}: {job.kind} {degrees}, {job.micro_batches} micro-batches, {job.layers} layers of "
        f"{job.layer_s:.3f} s, buckets of {job.bucket_mb:.0f} MB, {job.optimizer}, "
        + ", ".join(f"{name} {value}" for name, value in habits.items() if value)
        + f", from {job.start_s:.0f} s"
    )


def _step_s(dice: random.Random) -> float:
    return math.exp(dice.uniform(math.log(0.25), math.log(12.0)))


def _job(dice: random.Random, kind: str, step_s: float, most: int) -> Job:
    """Draw a job of a kind on at most so many NICs, whose step takes about so long."""
    small = [(4, 1), (5, 1), (6, 1), (7, 1), (8, 1)]
    dp, pp = dice.choice(
        [
            (dp, pp)
            for dp, pp in {
                "fsdp": [(4, 1), (6, 1), (8, 1)],
                "pipeline": [(1, 4), (1, 6), (1, 8)],
                "interleaved": [(2, 2), (1, 4), (3, 2), (2, 4)],
                "replicas": [(2, 2), (3, 2), (2, 3), (4, 2), (2, 4)],
                "experts": [(4, 1), (6, 1), (8, 1)],
                "ring": [(4, 1), (6, 1), (8, 1)],
                "tensors": [(2, 1), (3, 1), (4, 1), (1, 2), (2, 2), (1, 4)],
            }.get(kind, small)
            if dp * pp * (2 if kind == "tensors" else 1) <= most
        ]
    )
    tp = 2 if kind == "tensors" else 1
    piped = pp > 1
    # PyTorch's 1F1B refuses fewer micro-batches than stages.
    micro_batches = max(dice.choice([2, 4, 6, 8, 12, 16]), pp) if piped else 1
    virtual = 2 if kind == "interleaved" else 1
    micro_batches += -micro_batches % pp if virtual > 1 else 0
    layers = pp * virtual * dice.choice([1, 2]) if piped else dice.choice([2, 3, 4, 6, 8])
    # Messages may take most of a step, not all of it.
    while not piped and layers > 1 and _sync_s(kind, layers, dp) > 0.8 * step_s:
        layers -= 1
    slots = (micro_batches + pp - 1) * layers / pp if piped else layers
    job_kind = {"ddp": "ddp", "fsdp": "fsdp", "experts": "experts", "ring": "ring"}.get(
        kind, "pipeline" if piped else "ddp"
    )
    return Job(
        "jobA",
        job_kind,  # type: ignore[arg-type]
        _places(dice, dp * pp * tp, tp),
        seconds=max(115.0, min(170.0, 14 * step_s + 30.0)),
        dp=dp,
        pp=pp,
        tp=tp,
        ep=dice.choice([dp, dp // 2]) if kind == "experts" else 1,
        cp=dice.choice([dp, dp // 2] if dp > 4 else [dp]) if kind == "ring" else 1,
        virtual=virtual,
        layers=layers,
        layer_s=max(0.003, (step_s - 0.4 * _sync_s(kind, layers / pp, dp)) / PASSES / slots),
        micro_batches=micro_batches,
        tokens=256 if kind == "ring" else dice.choice([256, 512, 1024]),
        direction=dice.choice([1, -1]),
        bucket_mb=float(dice.choice([1, 2, 5, 12, 25])),
        optimizer=dice.choice(["adamw", "adamw", "sgd"]),
        unevenness=dice.choice([0.0, 0.0, dice.uniform(0.05, 0.35)]),
        jitter=dice.choice([0.03, dice.uniform(0.02, 0.15)]),
        seed=dice.randrange(1, 10_000),
    )


def _sync_s(kind: str, layers: float, ranks: int) -> float:
    """Return about how long a step's gradients, and parameters where they are sharded, are on the wire."""
    passes = 3 if kind == "fsdp" else 2
    return passes * (ranks - 1) / ranks * (layers * LAYER_BYTES + ENDS_BYTES) / NIC_BYTES


def _places(dice: random.Random, ranks: int, tp: int) -> tuple[str, ...]:
    """Return NICs host by host, or rail by rail as two tenants on the same hosts have them."""
    rails = [addr for gpu in range(2) for addr in NIC_ADDRS[gpu::2]]
    order = NIC_ADDRS if tp > 1 or dice.random() < 0.4 else rails
    return tuple(order[:ranks])


def _habits(dice: random.Random, job: Job, *, checkpoints: bool) -> Job:
    """Draw what a job does beside its steps: accumulation, evaluation, checkpoints."""
    if job.kind == "ddp" and dice.random() < 0.35:
        accumulate = dice.choice([2, 4])
        job = replace(job, accumulate=accumulate, layer_s=max(0.003, job.layer_s / accumulate))
    step_s = PASSES * job.layer_s * job.accumulate * job.layers * (job.micro_batches + job.pp - 1) / job.pp
    if dice.random() < 0.35:
        every = max(4, round(dice.uniform(20.0, 45.0) / step_s))
        job = replace(job, evaluate_every=every, evaluation_s=dice.uniform(1.0, 5.0))
    if checkpoints or dice.random() < 0.25:
        job = replace(job, checkpoint_every=max(3, round(dice.uniform(15.0, 35.0) / step_s)))
    return job


def _tenant(dice: random.Random, free: Sequence[str]) -> Job:
    """Draw another tenant on NICs that the first left, from any moment on."""
    start = dice.uniform(1.0, 70.0)
    addrs = tuple(free)
    piped = len(addrs) >= 4 and dice.random() < 0.5
    addrs = addrs[:4] if piped else addrs[: dice.randint(2, len(addrs))]
    dp, pp = (2, 2) if piped else (len(addrs), 1)
    micro_batches, layers = (dice.choice([4, 8]), 4) if piped else (1, dice.choice([3, 4, 6]))
    slots = (micro_batches + pp - 1) * layers / pp if piped else layers
    step_s = max(0.5, math.exp(dice.uniform(math.log(0.5), math.log(4.0))))
    layer_s = max(0.004, (step_s - 0.4 * _sync_s("ddp", layers / pp, dp)) / PASSES / slots)
    return Job("jobB", "pipeline" if piped else "ddp", addrs, max(50.0, 135.0 - start), dp=dp, pp=pp, layers=layers,
               layer_s=layer_s, micro_batches=micro_batches, bucket_mb=float(dice.choice([1, 4, 25])), start_s=start,
               seed=dice.randrange(1, 10_000), port=29600)  # fmt: skip


def _copy(dice: random.Random) -> Traffic:
    """Draw a bulk transfer between two NICs, or to or from a node outside the topology."""
    src, dst = dice.sample(NIC_ADDRS, 2)
    start, seconds, mbit = dice.uniform(8.0, 100.0), dice.uniform(15.0, 60.0), dice.uniform(40.0, 160.0)
    if dice.random() < 0.3:
        return Traffic("bulk_outside", src, (cluster.STORAGE.addr,), start, seconds, mbit)
    return Traffic("host_copy", src, (dst,), start, seconds, mbit)


def _fault(dice: random.Random, kind: str, job: Job) -> Fault:
    """Draw a trouble of a job: when, how long and how bad."""
    start = dice.uniform(50.0, 85.0)
    seconds, severity = {
        "slow_rank": (dice.uniform(30.0, 50.0), dice.uniform(1.4, 2.5)),
        "throttled_rank": (dice.uniform(30.0, 45.0), dice.uniform(0.06, 0.12)),
        "limited_nic": (dice.uniform(30.0, 50.0), 1 / dice.choice([2, 3, 5, 8])),
        "limited_uplink": (dice.uniform(30.0, 50.0), 1 / dice.choice([2, 4, 8])),
        "link_flap": (3.0, 0.0),
        "stopped_rank": (dice.uniform(12.0, 30.0), 1.0),
        "killed_rank": (2.0, 1.0),
        "slow_storage": (200.0, 1 / dice.choice([2, 4, 8])),
    }[kind]
    return Fault(kind, job.name, dice.choice(job.addrs), start, seconds, severity)  # type: ignore[arg-type]
