"""Traffic of the platform itself, across all tenants: small talk, heartbeats, and copies of weights."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.simulate.network.topology import ROCE_PORT, UDP
from llmprism_tasks.simulate.scenario.scenario import Scenario
from llmprism_tasks.simulate.traffic.bursts import (
    FIRST_PORT,
    PORTS,
    TCP,
    bursts,
    endpoint,
    in_chunks,
    link_bps,
    port,
    together,
)

MINUTE_NS = 60 * 10**9
SERVICES = (22, 443, 6443, 9100, 9400)  # ssh, https, Kubernetes, node and GPU metrics
CHATTER_BYTES, CHATTER_SPREAD = 3000.0, 1.5  # median, and standard deviation of the logarithm
HEARTBEAT_PORT, HEARTBEAT_BYTES = 9090, 400
COPY_PIECE_BYTES = 256e6


def background_bursts(scenario: Scenario, *, minute: int, seed: int) -> pl.DataFrame:
    """Return what belongs to no tenant from one minute on; `minute` counts from the epoch."""
    streams = np.random.default_rng([seed, minute, 77]).spawn(3)
    start_ns = minute * MINUTE_NS
    return together(
        [
            _chatter(scenario, start_ns, streams[0]),
            _heartbeats(scenario, start_ns, streams[1]),
            _copies(scenario, start_ns, streams[2]),
        ]
    )


def _chatter(scenario: Scenario, start_ns: int, rng: np.random.Generator) -> pl.DataFrame:
    """Let any NIC open a connection to any other, or to a server, and be answered."""
    fabric, background = scenario.fabric, scenario.background
    count = int(rng.poisson(background.chatter_per_s * 60))
    nics = fabric.hosts * fabric.gpus_per_host
    src, dst = rng.integers(0, nics, count), rng.integers(0, nics, count)
    outside = rng.random(count) < background.outside
    dst = np.where(outside, nics + rng.integers(0, scenario.storage.servers, count), dst)
    ports = rng.integers(FIRST_PORT, FIRST_PORT + PORTS, count)
    services = rng.choice(SERVICES, count)
    roce = rng.random(count) < background.chatter_roce
    asked = bursts(
        *(src, dst, start_ns + rng.integers(0, MINUTE_NS, count)),
        CHATTER_BYTES * np.exp(CHATTER_SPREAD * rng.standard_normal(count)),
        bps=1e9,
        src_port=ports,
        dst_port=np.where(roce, ROCE_PORT, services),
        protocol=np.where(roce, UDP, TCP),
    )
    answered = asked.filter(protocol=TCP).with_columns(
        *(pl.col(a).alias(b) for a, b in (("src", "dst"), ("dst", "src"), ("src_port", "dst_port"))),
        pl.col("dst_port").alias("src_port"),
        pl.col("start_ns", "end_ns") + 60_000,
    )
    return together([asked, answered])


def _heartbeats(scenario: Scenario, start_ns: int, rng: np.random.Generator) -> pl.DataFrame:
    """Let every host report to the first one, from its first NIC."""
    fabric, every_s = scenario.fabric, scenario.background.heartbeat_s
    if not every_s:
        return together([])
    beats = np.arange(start_ns, start_ns + MINUTE_NS, round(every_s * 1e9))
    src = np.repeat([endpoint(fabric, host, 0) for host in range(fabric.hosts)], len(beats))
    dst = np.zeros_like(src)
    late = rng.integers(0, round(every_s * 2e8) + 1, len(src))
    return bursts(
        *(src, dst, np.tile(beats, fabric.hosts) + late, np.full(len(src), HEARTBEAT_BYTES)),
        bps=1e9,
        src_port=port(src, dst, "heartbeat"),
        dst_port=HEARTBEAT_PORT,
        protocol=TCP,
    )


def _copies(scenario: Scenario, start_ns: int, rng: np.random.Generator) -> pl.DataFrame:
    """Let hosts pull weights from others, over one NIC, in pieces."""
    fabric = scenario.fabric
    count = int(rng.poisson(scenario.background.copies_per_minute))
    rail = rng.integers(0, fabric.gpus_per_host, count)
    src, dst = (rng.integers(0, fabric.hosts, count) * fabric.gpus_per_host + rail for _ in range(2))
    size = scenario.background.copy_gb * 1e9 * np.exp(0.5 * rng.standard_normal(count))
    begun = start_ns + rng.integers(0, MINUTE_NS, count)
    bps = link_bps(fabric, 0.25)
    of = np.repeat(begun, np.maximum(1, np.ceil(size / COPY_PIECE_BYTES)).astype(np.int64))
    src, dst, piece, index = in_chunks(src, dst, size, COPY_PIECE_BYTES)
    every_ns = COPY_PIECE_BYTES * 8e9 / bps * 1.1
    return bursts(src, dst, of + (index * every_ns).astype(np.int64), piece, bps=bps, src_port=port(src, dst, "copy"))
