"""Jobs of the kinds that a method made for another simulator does not know, with parameters drawn at random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from accuracy.second_source.folder import STORAGE, Bulk, Platform, nic
from accuracy.second_source.training import Training

END_S = 178.0


def _rows(hosts: range, gpus: range) -> tuple[str, ...]:
    """Return the NICs of hosts, those of one host together."""
    return tuple(nic(host, gpu) for host in hosts for gpu in gpus)


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


def experts(rng: np.random.Generator) -> Platform:
    """A mixture of experts over the NICs of several hosts; all-to-alls go directly, or by the rail of the receiver."""
    hosts = int(rng.choice([2, 4]))
    nics = _rows(range(hosts), range(8))
    ep = int(rng.choice([8, 16]))
    layers, step = int(rng.integers(2, 6)), rng.uniform(1.5, 6)
    job = Training(
        "jobA", "experts", nics, rng.uniform(0, 20), END_S, ep=ep, layers=layers, layer_s=step / 3 / layers,
        layer_bytes=2e8, bucket_bytes=4e8, activation_bytes=float(rng.uniform(3e7, 2e8)),
        relayed=bool(rng.integers(2)), channels=int(rng.choice([2, 8])), jitter=float(rng.uniform(0.01, 0.05)),
        unevenness=float(rng.choice([0.0, 0.1])),
    )  # fmt: skip
    # Replicas that hold the same experts are hosts apart, so that tokens do cross the network.
    order = tuple(nics[place + 8 * host] for place in range(8) for host in range(hosts)) if ep == 8 else nics
    return Platform([replace(job, nics=order)], hosts=hosts, inner=True, spines=2, lost=0.002)


def context_ring(rng: np.random.Generator) -> Platform:
    """Ring attention over hosts, beside replicas of it."""
    hosts = int(rng.choice([4, 8]))
    layers, step = int(rng.integers(3, 9)), rng.uniform(1, 8)
    return Platform([Training(
        "jobA", "ring", _rows(range(hosts), range(1)), rng.uniform(0, 20), END_S, cp=int(rng.choice([2, 4])),
        layers=layers, layer_s=step / 3 / layers, layer_bytes=1e8, bucket_bytes=2e8, channels=int(rng.choice([1, 2])),
        activation_bytes=float(rng.uniform(1e7, 1e8)), jitter=float(rng.uniform(0.01, 0.05)),
    )], hosts=hosts, rate=25e9, spines=2, lost=0.002)  # fmt: skip


def interleaved(rng: np.random.Generator) -> Platform:
    """Interleaved 1F1B: two or three parts of the model on each stage."""
    pp, tp = int(rng.choice([2, 4])), int(rng.choice([2, 8]))
    micro_batches, chunks, step = pp * int(rng.choice([2, 4])), int(rng.choice([2, 3])), rng.uniform(2, 9)
    return Platform([Training(
        "jobA", "1f1b", _rows(range(8), range(8)), rng.uniform(0, 20), END_S, tp=tp, pp=pp, chunks=chunks,
        micro_batches=micro_batches, layers=6, layer_s=step / (micro_batches + (pp - 1) / chunks) / 18,
        layer_bytes=2e8, bucket_bytes=4e8, activation_bytes=float(rng.choice([2e7, 8e7])),
        lengths=float(rng.choice([0.0, 0.1])), sharded_optimizer=bool(rng.integers(2)),
    )], hosts=8, inner=True, spines=2, lost=0.002)  # fmt: skip


def trees(rng: np.random.Generator) -> Platform:
    """Gradients along double binary trees."""
    tp, pp = int(rng.choice([4, 8])), int(rng.choice([1, 2]))
    micro_batches, step = 4 * pp, rng.uniform(1, 6)
    return Platform([Training(
        "jobA", "1f1b", _rows(range(8), range(8)), rng.uniform(0, 20), END_S, tp=tp, pp=pp, algorithm="tree",
        micro_batches=micro_batches, layers=8, layer_s=step / (micro_batches + pp - 1) / 24, layer_bytes=2e8,
        bucket_bytes=4e8, activation_bytes=6e7, channels=int(rng.choice([1, 2])), overlap=bool(rng.integers(2)),
    )], hosts=8, spines=2, lost=0.002)  # fmt: skip


def rails(rng: np.random.Generator) -> Platform:
    """Hosts of eight NICs: rings stay inside a host as long as they can, and each channel leaves it at another NIC."""
    layers, step = int(rng.integers(8, 48)), rng.uniform(2, 8)
    sharded_job = bool(rng.integers(2))
    return Platform([Training(
        "jobA", "fsdp" if sharded_job else "ddp", _rows(range(8), range(8)), rng.uniform(0, 20), 118.0, layers=layers,
        layer_s=step / 3 / layers, layer_bytes=rng.uniform(0.1, 0.8) * step / 3 / layers * 25e9, bucket_bytes=1e9,
        channels=int(rng.choice([8, 16])), jitter=float(rng.uniform(0.01, 0.05)), head=float(rng.uniform(0.2, 2.0)),
    )], hosts=8, inner=True, spines=4, idle_s=float(rng.choice([0.0002, 0.001, 0.005])), lost=0.002)  # fmt: skip


def damaged(rng: np.random.Generator) -> Platform:
    """Several jobs before a collector that loses, cuts and joins records, on clocks that are apart."""
    return replace(
        megatron(rng), lost=float(rng.uniform(0.005, 0.03)), split=0.02, merged=0.02, skew_s=0.001, idle_s=0.005
    )


def longest_steps(rng: np.random.Generator) -> Platform:
    """Steps of 45 to 90 s, of gradients that are accumulated or of a deep pipeline."""
    step, pp = rng.uniform(45, 90), int(rng.choice([1, 4, 8]))
    micro_batches = int(rng.choice([16, 32])) if pp > 1 else 8
    return Platform([Training(
        "jobA", "1f1b" if pp > 1 else "ddp", _rows(range(8), range(8)), rng.uniform(0, 30), 590.0,
        tp=8 if pp > 1 else 1, pp=pp, layers=8, micro_batches=micro_batches,
        layer_s=step / (micro_batches + pp - 1) / 24, layer_bytes=8e8, bucket_bytes=4e8, activation_bytes=1e8,
        unevenness=float(rng.choice([0.0, 0.1, 0.25])), jitter=float(rng.uniform(0.01, 0.05)),
        save_every=int(rng.choice([0, 3])), save_s=8.0, save_bytes=2e9, storage=STORAGE,
    )], hosts=8, inner=True, spines=2, lost=0.002, end_s=590.0)  # fmt: skip


def production(rng: np.random.Generator) -> Platform:
    """Steps of 46, 9 and 2 s whose times have the tails of production: slow steps, pauses, checkpoints."""
    jobs = []
    for number, (step, pp) in enumerate(((46.0, 4), (9.0, 2), (2.0, 1))):
        micro_batches = 16 if pp == 4 else 8 if pp == 2 else 1
        jobs.append(Training(
            f"job{number}", "1f1b" if pp > 1 else "ddp", _rows(range(4 * number, 4 * number + 4), range(8)),
            rng.uniform(0, 60), 415.0, tp=8 if pp == 4 else 4 if pp > 1 else 1, pp=pp, layers=8,
            micro_batches=micro_batches, layer_s=step / (micro_batches + pp - 1) / 24, layer_bytes=3e8,
            bucket_bytes=6e8, activation_bytes=8e7, tail=0.06, unevenness=float(rng.uniform(0.03, 0.12)),
            jitter=0.04, save_every=max(3, int(150 / step)), save_s=float(rng.uniform(2, 10)), save_bytes=4e9,
            storage=STORAGE, lengths=0.05,
        ))  # fmt: skip
    return Platform(jobs, hosts=12, inner=True, spines=2, lost=0.002, end_s=415.0)


def comes_back(rng: np.random.Generator) -> Platform:
    """A job stops midway in a window and comes back with one host replaced; another one just trains."""
    hosts = list(range(8))
    stopped, gone = rng.uniform(70, 110), int(rng.integers(8))
    pp = int(rng.choice([1, 2]))
    before = Training(
        "jobA", "1f1b", tuple(nic(host, gpu) for host in hosts for gpu in range(8)), rng.uniform(0, 10), stopped, tp=8,
        pp=pp, micro_batches=4 * pp, layers=8, layer_s=float(rng.uniform(1.5, 5)) / (5 * pp - 1) / 24,
        layer_bytes=3e8, bucket_bytes=6e8, activation_bytes=8e7,
    )  # fmt: skip
    hosts[gone] = 12
    after = replace(before, nics=tuple(nic(host, gpu) for host in hosts for gpu in range(8)),
                    start_s=stopped + rng.uniform(15, 50), end_s=238.0)  # fmt: skip
    other = replace(before, name="jobB", nics=_rows(range(8, 12), range(8)), end_s=238.0, start_s=3.0)
    return Platform([before, after, other], hosts=13, inner=True, spines=2, lost=0.002, end_s=238.0)


def busy_hosts(rng: np.random.Generator) -> Platform:
    """Chatter among all NICs, and copies between NICs of jobs that begin at any moment."""
    one = megatron(rng)
    nics = [member for job in one.jobs for member in job.nics]
    bulk = []
    for _ in range(int(rng.integers(3, 9))):
        src, dst = rng.choice(len(nics), 2, replace=False)
        start = float(rng.uniform(0, 150))
        bulk.append(Bulk(nics[src], nics[dst], start, min(END_S, start + float(rng.uniform(5, 90))),
                         float(rng.uniform(0.02, 0.4))))  # fmt: skip
    return replace(one, bulk=bulk, chatter_s=float(rng.uniform(0.2, 2.0)), inner=True, spines=2)


def platform(rng: np.random.Generator) -> Platform:
    """2,880 GPUs and twelve jobs of layouts taken at random."""
    jobs, host = [], 0
    for number, hosts in enumerate((64, 64, 32, 32, 32, 32, 32, 16, 16, 16, 16, 8)):
        pp = int(rng.choice([1, 2, 4]))
        tp = int(rng.choice([4, 8])) if pp > 1 else 8
        micro_batches, step = 2 * pp * int(rng.choice([1, 2])), rng.uniform(4, 11)
        jobs.append(Training(
            f"job{number:02d}", "1f1b", _rows(range(host, host + hosts), range(8)), float(rng.uniform(0, 20)), 118.0,
            tp=tp, pp=pp, micro_batches=micro_batches, layers=8, layer_s=step / (micro_batches + pp - 1) / 24,
            layer_bytes=3e8, bucket_bytes=8e8, activation_bytes=8e7, lengths=float(rng.choice([0.0, 0.1])),
            sharded_optimizer=bool(rng.integers(2)), overlap=bool(rng.integers(2)), channels=1,
        ))  # fmt: skip
        host += hosts
    return Platform(jobs, hosts=host, inner=True, spines=8, lost=0.001, end_s=118.0)


def hybrid_sharded(rng: np.random.Generator) -> Platform:
    """Parameters sharded inside groups of hosts, and their gradients reduced among these (HSDP)."""
    layers, step = int(rng.integers(8, 40)), rng.uniform(2, 8)
    hosts, shard = 8, int(rng.choice([16, 32]))
    return Platform([Training(
        "jobA", "fsdp", _rows(range(hosts), range(8)), rng.uniform(0, 20), 118.0, layers=layers, shard=shard,
        layer_s=step / 3 / layers, layer_bytes=rng.uniform(0.1, 0.5) * step / 3 / layers * 25e9,
        channels=int(rng.choice([4, 8])), jitter=float(rng.uniform(0.01, 0.05)), head=float(rng.uniform(0.2, 2.0)),
    )], hosts=hosts, inner=True, spines=4, idle_s=float(rng.choice([0.0002, 0.001, 0.005])), lost=0.002)  # fmt: skip


def gpipe(rng: np.random.Generator) -> Platform:
    """All forward passes of a step before its backward passes."""
    return _pipeline(rng, "gpipe")


def zero_bubble(rng: np.random.Generator) -> Platform:
    """A pipeline that puts gradients of weights off until it would have to wait."""
    return _pipeline(rng, "zero_bubble")


def expert_pipeline(rng: np.random.Generator) -> Platform:
    """Experts inside the stages of a pipeline: replicas on two hosts exchange tokens in each of its passes."""
    job = _pipeline(rng, "1f1b").jobs[0]
    nics = tuple(nic(2 * stage + host, gpu) for stage in range(4) for gpu in range(8) for host in range(2))
    return Platform([replace(
        job, tp=1, pp=4, nics=nics, ep=int(rng.choice([4, 8])), layers=int(rng.integers(2, 5)),
        layer_s=job.layers * job.layer_s / 3, block_bytes=float(rng.uniform(2e7, 1e8)),
        relayed=bool(rng.integers(2)),
    )], hosts=8, inner=True, spines=2, lost=0.002)  # fmt: skip


def context_pipeline(rng: np.random.Generator) -> Platform:
    """Rings of attention over hosts inside the stages of a pipeline."""
    job = _pipeline(rng, "1f1b").jobs[0]
    return Platform([replace(
        job, tp=8, pp=2, nics=_rows(range(8), range(8)), cp=2, layers=int(rng.integers(2, 5)),
        layer_s=job.layers * job.layer_s / 3, block_bytes=float(rng.uniform(1e7, 8e7)),
    )], hosts=8, spines=2, lost=0.002)  # fmt: skip


def _pipeline(rng: np.random.Generator, schedule: str) -> Platform:
    """Return a job of eight hosts with a pipeline of two to eight stages."""
    pp, tp = int(rng.choice([2, 4, 8])), int(rng.choice([2, 4]))
    micro_batches, step = int(rng.choice([1, 2, 4])) * pp, rng.uniform(2, 9)
    return Platform([Training(
        "jobA", schedule, _rows(range(8), range(8)), rng.uniform(0, 20), END_S, tp=tp, pp=pp,
        micro_batches=micro_batches, layers=8, layer_s=step / (micro_batches + pp - 1) / 24, layer_bytes=2e8,
        bucket_bytes=4e8, activation_bytes=float(rng.choice([2e7, 8e7])), lengths=float(rng.choice([0.0, 0.1])),
        sharded_optimizer=bool(rng.integers(2)), overlap=bool(rng.integers(2)), jitter=float(rng.uniform(0.01, 0.05)),
    )], hosts=8, spines=2, lost=0.002)  # fmt: skip


CASES: dict[str, Callable[[np.random.Generator], Platform]] = {
    one.__name__: one
    for one in (
        short_ddp, uneven_ddp, long_pipeline, bulk_between, sharded, uneven_replicas, long_steps, megatron, experts,
        context_ring, interleaved, trees, rails, damaged, longest_steps, production, comes_back, busy_hosts, platform,
        hybrid_sharded, gpipe, zero_bubble, expert_pipeline, context_pipeline,
    )
}  # fmt: skip
