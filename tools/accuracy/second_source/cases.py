"""Jobs of the kinds that a method made for another simulator does not know, with parameters drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from accuracy.second_source.execution import Training
from accuracy.second_source.folder import Bulk, Platform, nic

END_S = 178.0


def _rows(hosts: range, gpus: range) -> tuple[str, ...]:
    """Return the NICs of hosts, those of one host together."""
    return tuple(nic(host, gpu) for host in hosts for gpu in gpus)


def _rails(hosts: range, gpus: range) -> tuple[str, ...]:
    """Return the NICs of hosts, those of one rail together."""
    return tuple(nic(host, gpu) for gpu in gpus for host in hosts)


def short_ddp(rng: np.random.Generator) -> Platform:
    """Steps of a quarter of a second, small buckets."""
    job = Training("jobA", "ddp", _rows(range(4), range(1)), rng.uniform(0, 8), END_S, layers=int(rng.integers(3, 9)))
    step = rng.uniform(0.2, 0.35)
    return Platform([replace(
        job, layer_s=step * 0.6 / 3 / job.layers, layer_bytes=1.5e6, bucket_bytes=1e6, optimizer_s=0.01, channels=1,
        jitter=float(rng.uniform(0.02, 0.1)),
    )], hosts=4, gpus=2, rate=5e7 * rng.uniform(1.0, 3.0))  # fmt: skip


def uneven_ddp(rng: np.random.Generator) -> Platform:
    """Computing that varies from step to step, accumulated gradients, pauses for evaluation."""
    return Platform([Training(
        "jobA", "ddp", _rows(range(4), range(1)), rng.uniform(0, 8), END_S, layers=8,
        micro_batches=int(rng.choice([1, 2, 4, 8])), layer_s=float(rng.uniform(0.005, 0.03)), layer_bytes=3e6,
        bucket_bytes=float(rng.choice([1e6, 5e6, 25e6])), unevenness=0.35, jitter=float(rng.uniform(0.02, 0.1)),
        pause_every=25, pause_s=float(rng.uniform(2, 8)), channels=1,
    )], hosts=4, gpus=2, rate=5e7 * rng.uniform(1.0, 3.0))  # fmt: skip


def long_pipeline(rng: np.random.Generator) -> Platform:
    """Two stages, two replicas, twelve micro-batches, steps of seconds."""
    micro_batches = int(rng.choice([8, 12, 16]))
    step = rng.uniform(4, 9)
    return Platform([Training(
        "jobA", "1f1b", _rows(range(4), range(1)), rng.uniform(0, 8), END_S, pp=2, micro_batches=micro_batches,
        layers=4, layer_s=step / (micro_batches + 1) / 12, layer_bytes=3e6, bucket_bytes=2e6, channels=1,
        activation_bytes=float(rng.choice([5e5, 2e6])), jitter=float(rng.uniform(0.02, 0.08)),
    )], hosts=4, gpus=2, rate=5e7)  # fmt: skip


def bulk_between(rng: np.random.Generator) -> Platform:
    """Copies between NICs of the same job, and between jobs."""
    one = Training("jobA", "ddp", _rows(range(4), range(1)), 1.0, END_S, layers=8, layer_s=0.03, layer_bytes=4e6,
                   bucket_bytes=4e6, channels=1)  # fmt: skip
    two = Training("jobB", "1f1b", _rows(range(4), range(1, 2)), 4.0, END_S, pp=2, micro_batches=4, layers=4,
                   layer_s=0.05, layer_bytes=3e6, bucket_bytes=4e6, channels=1, activation_bytes=1e6)  # fmt: skip
    ends = [rng.choice(8, 2, replace=False) for _ in range(3)]
    nics = [*one.nics, *two.nics]
    bulk = [Bulk(nics[a], nics[b], start := float(rng.uniform(10, 100)), start + float(rng.uniform(20, 60)),
                 float(rng.uniform(0.1, 0.4))) for a, b in ends]  # fmt: skip
    return Platform([one, two], hosts=4, gpus=2, bulk=bulk, rate=5e7)


def sharded(rng: np.random.Generator) -> Platform:
    """Sharded parameters, sixteen channels, gathers one layer ahead; what comes once a step may be next to nothing."""
    layers, step = int(rng.integers(8, 64)), rng.uniform(2, 6)
    busy = rng.uniform(0.1, 0.9)  # of a layer's backward pass, in which one gather and one reduction go on
    return Platform([Training(
        "jobA", "fsdp", _rows(range(4), range(2)), rng.uniform(0, 5), 118.0, layers=layers, layer_s=step / 3 / layers,
        layer_bytes=busy * step / 3 / layers * 25e9, channels=16, head=float(np.exp(rng.uniform(-4, 0.7))),
        jitter=float(rng.uniform(0.01, 0.05)), optimizer_s=float(rng.uniform(0.02, 0.3)),
    )], hosts=4, rate=25e9, idle_s=float(rng.choice([0.0002, 0.001, 0.005])), lost=0.002)  # fmt: skip


def uneven_replicas(rng: np.random.Generator) -> Platform:
    """Tensor parallelism inside hosts, four stages, two replicas whose samples differ in length."""
    hosts = range(4)
    return Platform([Training(
        "jobA", "1f1b", _rows(hosts, range(8)), rng.uniform(0, 5), END_S, tp=4, pp=4, layers=8,
        micro_batches=int(rng.choice([4, 8, 16])), layer_s=float(rng.uniform(0.003, 0.012)),
        layer_bytes=2e8, bucket_bytes=float(rng.choice([1e8, 4e8])), activation_bytes=6e7,
        lengths=float(rng.uniform(0.1, 0.35)), sharded_optimizer=bool(rng.integers(2)), overlap=bool(rng.integers(2)),
    )], hosts=4, rate=25e9, lost=0.002)  # fmt: skip


def long_steps(rng: np.random.Generator) -> Platform:
    """Steps of 20 to 90 s."""
    micro_batches, step = int(rng.choice([16, 32])), rng.uniform(20, 90)
    return Platform([Training(
        "jobA", "1f1b", _rows(range(8), range(8)), rng.uniform(0, 30), 590.0, tp=8, pp=4, layers=8,
        micro_batches=micro_batches, layer_s=step / (micro_batches + 3) / 24, layer_bytes=8e8, bucket_bytes=4e8,
        activation_bytes=1e8, lengths=float(rng.uniform(0, 0.15)), sharded_optimizer=bool(rng.integers(2)),
    )], hosts=8, rate=25e9, lost=0.002)  # fmt: skip


def megatron(rng: np.random.Generator) -> Platform:
    """A platform of several jobs with layouts taken at random."""
    jobs, host = [], 0
    for number in range(4):
        tp, pp = int(rng.choice([1, 2, 4, 8])), int(rng.choice([1, 2, 4]))
        hosts = int(rng.choice([4, 8]))
        if hosts * 8 // (tp * pp) < 2:
            pp = 1
        micro_batches = int(rng.choice([4, 8, 16])) if pp > 1 else int(rng.choice([1, 2, 4]))
        step = rng.uniform(1, 12)
        jobs.append(Training(
            f"job{number}", "1f1b" if pp > 1 else "ddp", _rows(range(host, host + hosts), range(8)),
            float(rng.uniform(0, 40)), float(rng.choice([END_S, rng.uniform(110, 170)])), tp=tp if pp > 1 else 1, pp=pp,
            micro_batches=micro_batches, layers=8, layer_s=step / (micro_batches + pp - 1) / 24, layer_bytes=3e8,
            bucket_bytes=float(rng.choice([2e8, 8e8])), activation_bytes=float(rng.choice([2e7, 1e8])),
            lengths=float(rng.choice([0.0, 0.1, 0.2])), unevenness=float(rng.choice([0.0, 0.1, 0.3])),
            sharded_optimizer=bool(rng.integers(2)), overlap=bool(rng.integers(2)), channels=int(rng.choice([1, 2, 8])),
        ))  # fmt: skip
        host += hosts
    return Platform(jobs, hosts=host, rate=25e9, idle_s=float(rng.choice([0.001, 0.005, 0.02])), lost=0.002)


CASES: dict[str, Callable[[np.random.Generator], Platform]] = {
    one.__name__: one
    for one in (short_ddp, uneven_ddp, long_pipeline, bulk_between, sharded, uneven_replicas, long_steps, megatron)
}
