"""NICs and their addresses, and the path of a queue pair through the fabric."""

from __future__ import annotations

import zlib

import polars as pl

from llmprism_tasks.simulate.scenario.fabric import Fabric

ROCE_PORT = 4791  # RoCEv2's UDP destination port
UDP = 17


def addr(host: int, gpu: int) -> str:
    """Return a NIC's address: one subnet per rail."""
    return f"10.{1 + gpu}.{host // 256}.{host % 256}"


def host_name(host: int) -> str:
    """Return the name of a host, by its number from 0."""
    return f"node{host:04d}"


def topology(fabric: Fabric) -> pl.DataFrame:
    """Return one row per NIC: addr, host, gpu, leaf_switch, pod."""
    nics = [(host, gpu) for host in range(fabric.hosts) for gpu in range(fabric.gpus_per_host)]
    return pl.DataFrame(
        {
            "addr": [addr(host, gpu) for host, gpu in nics],
            "host": [host_name(host) for host, _ in nics],
            "gpu": pl.Series([gpu for _, gpu in nics], dtype=pl.Int32),
            "leaf_switch": [fabric.leaf(host, gpu) for host, gpu in nics],
            "pod": [f"pod-{host // fabric.hosts_per_leaf:02d}" for host, _ in nics],
        }
    )


def path(fabric: Fabric, src: tuple[int, int], dst: tuple[int, int], src_port: int) -> tuple[str, ...]:
    """Return the switches from one NIC (host, gpu) to another, in order.

    Between leaves the spine is chosen by a hash of the 5-tuple (ECMP), so a queue pair always takes the same one.
    """
    first, last = fabric.leaf(*src), fabric.leaf(*dst)
    if first == last:
        return (first,)
    five_tuple = f"{addr(*src)},{addr(*dst)},{src_port},{ROCE_PORT},{UDP}"
    return first, fabric.spine(zlib.crc32(five_tuple.encode()) % fabric.spines), last
