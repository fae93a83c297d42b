"""Bursts of traffic that no training step makes: where from, where to, when and how much, one row each."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import polars as pl

from llmprism_tasks.simulate.arrays import Indices, Reals
from llmprism_tasks.simulate.network.link_shares import LINE_EFFICIENCY
from llmprism_tasks.simulate.network.messages import packets_of, wire_bytes
from llmprism_tasks.simulate.network.topology import ROCE_PORT, UDP, path
from llmprism_tasks.simulate.scenario.fabric import Fabric

TCP = 6
FIVE_TUPLE = ("src", "dst", "src_port", "dst_port", "protocol")
SCHEMA = dict.fromkeys((*FIVE_TUPLE, "start_ns", "end_ns", "payload_bytes", "packets"), pl.Int64)
"""`src` and `dst` are endpoints: NICs as host x gpus_per_host + gpu, then the servers outside the topology."""

FIRST_PORT, PORTS = 32_768, 28_232  # Linux's range for clients, net.ipv4.ip_local_port_range


def bursts(
    src: Indices,
    dst: Indices,
    start_ns: Indices,
    payload: Reals | Indices,
    *,
    bps: float,
    src_port: Indices,
    dst_port: int | Indices = ROCE_PORT,
    protocol: int | Indices = UDP,
) -> pl.DataFrame:
    """Return one burst per element, sent at a given rate; bursts from an endpoint to itself are left out."""
    size = np.maximum(np.rint(payload), 1).astype(np.int64)
    lasting = np.rint(wire_bytes(size) * 8e9 / bps).astype(np.int64)
    columns = {
        "src": src,
        "dst": dst,
        "src_port": src_port,
        "dst_port": np.full(len(src), dst_port),
        "protocol": np.full(len(src), protocol),
        "start_ns": start_ns,
        "end_ns": start_ns + np.maximum(lasting, 1000),
        "payload_bytes": size,
        "packets": packets_of(size),
    }
    return pl.DataFrame(columns, schema=SCHEMA).filter(pl.col("src") != pl.col("dst"))


def port(src: Indices, dst: Indices, salt: str = "") -> Indices:
    """Return the source port that a lasting connection between two endpoints has."""
    mixed = src * 1_000_003 + dst * 7_919 + zlib.crc32(salt.encode())
    return np.asarray(FIRST_PORT + mixed % PORTS, dtype=np.int64)


def in_chunks(src: Indices, dst: Indices, total: Reals, chunk: float) -> tuple[Indices, Indices, Reals, Indices]:
    """Split transfers into chunks; return each chunk's ends, size, and number within its transfer."""
    pieces = np.maximum(1, np.ceil(total / chunk)).astype(np.int64)
    of = np.repeat(np.arange(len(total)), pieces)
    index = np.arange(len(of)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return src[of], dst[of], np.minimum(chunk, total[of] - index * chunk), index


def together(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Put bursts together."""
    return pl.concat([pl.DataFrame(schema=SCHEMA), *parts])


def link_bps(fabric: Fabric, share: float = 1.0) -> float:
    """Return a share of the rate that RDMA reaches on a NIC."""
    return fabric.link_gbps * 1e9 * LINE_EFFICIENCY * share


def endpoint(fabric: Fabric, host: int, gpu: int) -> int:
    """Return the number of a NIC among the endpoints."""
    return host * fabric.gpus_per_host + gpu


def server(fabric: Fabric, index: int) -> int:
    """Return the number of a server outside the topology among the endpoints."""
    return fabric.hosts * fabric.gpus_per_host + index


def server_addr(index: int) -> str:
    """Return a server's address, in a subnet that no rail has."""
    return f"10.0.{index // 250}.{1 + index % 250}"


def route(fabric: Fabric, src: int, dst: int, src_port: int) -> tuple[str, ...]:
    """Return the switches between two endpoints; servers hang on a leaf of their own."""
    nics = fabric.hosts * fabric.gpus_per_host
    if src < nics and dst < nics:
        width = fabric.gpus_per_host
        return path(fabric, (src // width, src % width), (dst // width, dst % width), src_port)
    spine = fabric.spine(zlib.crc32(f"{src},{dst},{src_port}".encode()) % fabric.spines)
    first, last = (
        "leaf-storage" if end >= nics else fabric.leaf(end // fabric.gpus_per_host, end % fabric.gpus_per_host)
        for end in (src, dst)
    )
    return (first, spine, last)
