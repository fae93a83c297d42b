"""What a job sends before its first step: its ranks meet, and weights come from storage and from replica to replica."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.simulate.arrays import Indices
from llmprism_tasks.simulate.network.rank_layout import host_and_gpu
from llmprism_tasks.simulate.scenario.scenario import Scenario
from llmprism_tasks.simulate.scenario.training_job import Job
from llmprism_tasks.simulate.steps.job_model import JobModel
from llmprism_tasks.simulate.traffic.bursts import TCP, bursts, endpoint, in_chunks, link_bps, port, server, together
from llmprism_tasks.simulate.workload.message_sizes import PARAMETER_BYTES

RENDEZVOUS_S = 2.0  # processes come up, find each other and build their communicators
STORE_PORT = 29_500  # the default of torch's rendezvous (MASTER_PORT)
BOOTSTRAP_PORT = 40_001  # any; NCCL lets the system choose
STORE_MESSAGES = 12  # a rank's exchanges with the store
STATE_BYTES = 12  # per parameter in a checkpoint: fp32 weights and Adam's two moments
OBJECT_BYTES = 64e6  # what is read from storage at a time
HOP_S = 1e-3  # a tree's inner nodes pass on what they get after this
TREE_SHARE = 0.5  # an inner node sends to two children at a time


def startup_seconds(scenario: Scenario, model: JobModel) -> float:
    """Return the time from a job's first process to its first step."""
    return RENDEZVOUS_S + checkpoint_seconds(scenario, model) + _broadcast_seconds(scenario, model)


def startup_bursts(scenario: Scenario, model: JobModel, *, arrived_ns: int, seed: int) -> pl.DataFrame:
    """Return all of a start-up: meeting, loading a checkpoint, and broadcasting weights along a tree of replicas."""
    loading_ns = arrived_ns + round(RENDEZVOUS_S * 1e9)
    sending_ns = loading_ns + round(checkpoint_seconds(scenario, model) * 1e9)
    return together(
        [
            _meeting(scenario, model.job, arrived_ns, seed),
            _loading(scenario, model, loading_ns),
            _broadcast(scenario, model, sending_ns),
        ]
    )


def tree_edges(scenario: Scenario, job: Job) -> tuple[Indices, Indices, Indices]:
    """Return the edges between hosts of the binary trees that weights go along, and each edge's depth."""
    members = job_nics(scenario, job).reshape(job.pp, -1, job.tp)
    child = np.arange(1, members.shape[1])
    depth = np.repeat(np.floor(np.log2(child + 1)).astype(np.int64)[None, :, None], job.tp, axis=2)
    depth = np.broadcast_to(depth, (job.pp, len(child), job.tp)).ravel()
    src, dst = members[:, (child - 1) // 2].ravel(), members[:, child].ravel()
    width = scenario.fabric.gpus_per_host
    apart = src // width != dst // width
    return src[apart], dst[apart], depth[apart]


def startup_pairs(scenario: Scenario, job: Job) -> set[tuple[int, int]]:
    """Return the pairs of NICs that talk during a start-up: ranks with the store and their neighbours, and trees."""
    nics, width = job_nics(scenario, job), scenario.fabric.gpus_per_host
    src, dst, _ = tree_edges(scenario, job)
    first, after = np.full(len(nics), nics[0]), np.roll(nics, -1)
    ends = np.stack([np.concatenate([src, nics, first, nics]), np.concatenate([dst, first, nics, after])])
    return {(int(a), int(b)) for a, b in ends.T if a // width != b // width}


def job_nics(scenario: Scenario, job: Job) -> Indices:
    """Return the endpoints of a job's ranks."""
    return np.array([endpoint(scenario.fabric, *host_and_gpu(job, rank)) for rank in range(job.ranks)], dtype=np.int64)


def _load_bytes(model: JobModel) -> float:
    return model.parameters * (PARAMETER_BYTES + STATE_BYTES * model.job.pp * model.job.tp / model.job.ranks)


def checkpoint_seconds(scenario: Scenario, model: JobModel) -> float:
    """Return how long the rank with most to read or write of a checkpoint takes."""
    return _load_bytes(model) * 8 / (scenario.storage.gbps * 1e9) * 1.1  # headers, and the pauses between objects


def _broadcast_seconds(scenario: Scenario, model: JobModel) -> float:
    _, _, depth = tree_edges(scenario, model.job)
    if not len(depth):
        return 0.0
    sending = model.parameters * PARAMETER_BYTES * 8 / link_bps(scenario.fabric, TREE_SHARE)
    return float(1.1 * sending + HOP_S * depth.max())


def _meeting(scenario: Scenario, job: Job, arrived_ns: int, seed: int) -> pl.DataFrame:
    """Every host talks with the first one's store, every rank with its neighbours while they bootstrap NCCL."""
    rng = np.random.default_rng([seed, arrived_ns % 2**31, *job.name.encode()])
    nics = job_nics(scenario, job)
    there = np.repeat(nics, STORE_MESSAGES)
    asked = arrived_ns + np.sort(rng.uniform(0, RENDEZVOUS_S, (len(nics), STORE_MESSAGES)), axis=1).ravel() * 1e9
    first = np.full(len(there), nics[0])
    ask = bursts(
        there,
        first,
        asked.astype(np.int64),
        rng.integers(60, 600, len(there)),
        bps=1e9,
        src_port=port(there, first, "store"),
        dst_port=STORE_PORT,
        protocol=TCP,
    )
    tell = ask.with_columns(
        src="dst", dst="src", src_port="dst_port", dst_port="src_port", start_ns=pl.col("start_ns") + 80_000
    ).with_columns(end_ns=pl.col("start_ns") + 5_000, payload_bytes=pl.col("payload_bytes") // 2 + 20)
    after = np.roll(nics, -1)
    begun = np.full(len(nics), arrived_ns + round(RENDEZVOUS_S * 0.9e9)) + rng.integers(0, 10**8, len(nics))
    ring = bursts(
        *(nics, after, begun, np.full(len(nics), 128 * len(nics))),
        bps=1e9,
        src_port=port(nics, after, "bootstrap"),
        dst_port=BOOTSTRAP_PORT,
        protocol=TCP,
    )
    width = scenario.fabric.gpus_per_host
    return together([ask, tell, ring]).filter(pl.col("src") // width != pl.col("dst") // width)


def _loading(scenario: Scenario, model: JobModel, start_ns: int) -> pl.DataFrame:
    nics = job_nics(scenario, model.job)
    servers = np.array([server(scenario.fabric, int(nic) % scenario.storage.servers) for nic in nics])
    bps = scenario.storage.gbps * 1e9
    src, dst, size, index = in_chunks(servers, nics, np.full(len(nics), _load_bytes(model)), OBJECT_BYTES)
    every_ns = OBJECT_BYTES * 8e9 / bps * 1.08
    return bursts(
        src, dst, start_ns + (index * every_ns).astype(np.int64), size, bps=bps, src_port=port(src, dst, "read")
    )


def _broadcast(scenario: Scenario, model: JobModel, start_ns: int) -> pl.DataFrame:
    src, dst, depth = tree_edges(scenario, model.job)
    return bursts(
        src,
        dst,
        start_ns + (depth * HOP_S * 1e9).astype(np.int64),
        np.full(len(src), model.parameters * PARAMETER_BYTES),
        bps=link_bps(scenario.fabric, TREE_SHARE),
        src_port=port(src, dst, "broadcast"),
    )
