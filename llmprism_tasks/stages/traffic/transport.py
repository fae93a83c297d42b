"""Which flows a transport makes by itself, and which transport carries a NIC's training.

NCCL opens RDMA connections between all NICs of a job, or sockets between all (NCCL user guide, environment variables:
NCCL_IB_DISABLE). Beside RDMA, logs, metrics, rendezvous and copies of data go by TCP, at any moment and of any size.
Both transports acknowledge what they receive, over the same connection, and NCCL tells a sender so that it may send.
A collector writes records of that as of all else. They begin and end with the data, and show nobody's work.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import Flags
from llmprism_tasks.stages.traffic.both_ways import IDLE_SHARE_OF_NIC
from llmprism_tasks.stages.traffic.opposite import opposite

UDP = 17
"""IANA's number of the protocol that RoCEv2 goes by."""

PORTS = ["src_port", "dst_port"]
"""Of a connection. RoCEv2 has the same ones both ways (`rdma_calc_flow_label` of Linux), TCP has them turned."""

PORT_BITS = 16
"""Bits of a port's number."""

MOST_ACKNOWLEDGED = 0.03
"""Ratio of what a connection acknowledges to what it receives: TCP answers each second segment (RFC 5681, section 4.2),
so with 66 bytes for 2,896, RoCE at most each packet of 4,096 bytes with 62. Data that comes back, as gradients do for
activations, is as much as what went."""


def connections(flows: pl.DataFrame, ports: pl.DataFrame | None) -> pl.Series:
    """Return for each flow the number of its connection: the same for a pair and two ports, and for the opposite pair
    but for the pair's own number, which is above these.

    Parameters
    ----------
    flows : `pair` and `row`, as `nic_pairs.numbered` returns
    ports : `PORTS` of each `row` of the flows table; None if they are not known
    """
    number = flows["pair"].cast(pl.Int64) * 2 ** (2 * PORT_BITS)
    if ports is not None:
        ordered = ports.select(pl.min_horizontal(PORTS).alias("low"), pl.max_horizontal(PORTS).alias("high"))
        both = ordered["low"].cast(pl.Int64) * 2**PORT_BITS + ordered["high"]
        number += both.gather(flows["row"]).fill_null(0)
    connection: pl.Series = number.alias("connection")
    return connection


def acknowledgements(flows: pl.DataFrame, pairs: pl.DataFrame, ports: pl.DataFrame | None) -> pl.Series:
    """Return which flows are of connections that carry at most `MOST_ACKNOWLEDGED` of what they carry the other way.

    A collector may have other ports for what acknowledges, or none. So whole pairs are asked, too, but for far less: a
    copy over another connection may be many times what training sends the other way.

    Parameters
    ----------
    flows, pairs : as `nic_pairs.numbered` returns
    ports : as in `connections`
    """
    found = _are_next_to_nothing(flows, pairs, connections(flows, None), IDLE_SHARE_OF_NIC)
    if ports is None:
        return found
    numbers = connections(flows, ports)
    have_ports: pl.Series = numbers % 2 ** (2 * PORT_BITS) > 0
    told: pl.Series = found | (have_ports & _are_next_to_nothing(flows, pairs, numbers, MOST_ACKNOWLEDGED))
    return told


def _are_next_to_nothing(flows: pl.DataFrame, pairs: pl.DataFrame, of_flows: pl.Series, most: float) -> pl.Series:
    """Return which flows are of connections that carry at most a ratio of what they carry the other way.

    Parameters
    ----------
    of_flows : number of each flow's connection, as `connections` returns
    """
    each = flows.select("pair", "bytes", of_flows).group_by("connection").agg(pl.first("pair"), pl.sum("bytes"))
    turned = pairs.join(opposite(pairs, "pair"), on=["src_addr", "dst_addr"]).select("pair", "back_pair")
    answers = each.join(turned, on="pair").with_columns(
        back=pl.col("connection") + (pl.col("back_pair") - pl.col("pair")).cast(pl.Int64) * 2 ** (2 * PORT_BITS)
    )
    received = answers.join(each.select(back="connection", received="bytes"), on="back")
    told = received.filter(pl.col("bytes") <= most * pl.col("received"))["connection"]
    return of_flows.is_in(told.implode())


def beside_rdma(flows: pl.DataFrame, protocol: pl.Series, *, control_bytes: int) -> Flags:
    """Return which flows are of another protocol than RoCEv2, between two NICs that both move data by RoCEv2.

    Parameters
    ----------
    flows : `src_addr`, `dst_addr` as codes, and `bytes`
    protocol : of each flow, as IANA numbers it; null if it is not known, which tells nothing
    control_bytes : larger flows carry data
    """
    other: Flags = (protocol != UDP).fill_null(value=False).to_numpy()
    if not other.any():
        return other
    ends = [flows[end].to_physical().to_numpy() for end in ("src_addr", "dst_addr")]
    rdma = (protocol == UDP).fill_null(value=False).to_numpy() & (flows["bytes"].to_numpy() > control_bytes)
    talks_rdma = np.zeros(max(end.max(initial=0) for end in ends) + 1, bool)
    for end in ends:
        talks_rdma[end[rdma]] = True
    between: Flags = talks_rdma[ends[0]] & talks_rdma[ends[1]]
    return other & between
