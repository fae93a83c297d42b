"""Packets seen at the switches -> unidirectional flow records, as a switch's flow exporter cuts them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

NANOSECOND_MAGIC = 0xA1B23C4D
FILE_HEADER_BYTES, PACKET_HEADER_BYTES, ETHERNET_BYTES = 24, 16, 14
TCP, UDP = 6, 17
UDP_HEADER_BYTES = 8

KEY = ["src_addr", "dst_addr", "src_port", "dst_port", "protocol"]

PACKETS = pl.Schema(
    {
        "time_ns": pl.Int64,
        "src_addr": pl.String,
        "dst_addr": pl.String,
        "src_port": pl.Int32,
        "dst_port": pl.Int32,
        "protocol": pl.Int32,
        "bytes": pl.Int64,
    }
)


def read_packets(capture: Path) -> pl.DataFrame:
    """Read the TCP and UDP packets over IPv4 that carry payload from a pcap file with nanoseconds, little-endian.

    Returns
    -------
    columns of `PACKETS`; `bytes` is the payload as the headers tell, for packets are captured headers only. A last
    packet that was not written to its end is left out.
    """
    raw = capture.read_bytes()
    (magic,) = struct.unpack_from("<I", raw)
    if magic != NANOSECOND_MAGIC:
        raise ValueError(f"{capture}: magic {magic:#x}; expected a pcap with nanoseconds, as `tcpdump -w` of one")
    starts = _packet_starts(raw)
    headers = np.frombuffer(raw, np.uint8)

    def field(offset: int, size: int, *, order: str = "big") -> np.ndarray:
        """Return an unsigned integer of each packet; those that begin after an IP header vary with its length."""
        places = [offset + place for place in range(size)]
        value = np.zeros(len(starts), np.int64)
        for place in places if order == "big" else reversed(places):
            value = value << 8 | headers[starts + place]
        return value

    ip = PACKET_HEADER_BYTES + ETHERNET_BYTES
    transport = ip + 4 * (field(ip, 1) & 0x0F)
    protocol = field(ip + 9, 1)
    tcp_header = 4 * (headers[np.minimum(starts + transport + 12, len(headers) - 1)] >> 4).astype(np.int64)
    header = transport - ip + np.where(protocol == TCP, tcp_header, UDP_HEADER_BYTES)
    packets = pl.DataFrame(
        {
            "time_ns": field(0, 4, order="little") * 1_000_000_000 + field(4, 4, order="little"),
            "src_addr": _dotted(field(ip + 12, 4)),
            "dst_addr": _dotted(field(ip + 16, 4)),
            "src_port": _port(headers, starts + transport),
            "dst_port": _port(headers, starts + transport + 2),
            "protocol": protocol,
            "bytes": field(ip + 2, 2) - header,
        },
        schema=PACKETS,
        strict=False,
    )
    ipv4 = field(PACKET_HEADER_BYTES + 12, 2) == 0x0800
    return packets.filter(pl.lit(pl.Series(ipv4)), pl.col("protocol").is_in([TCP, UDP]), pl.col("bytes") > 0)


def cut(sightings: Mapping[str, pl.DataFrame], idle_ns: int) -> pl.DataFrame:
    """Cut each 5-tuple's packets into records wherever it is silent for longer than an idle timeout.

    Parameters
    ----------
    sightings : for each switch the packets it saw, columns of `PACKETS`; a packet is seen by every switch on its path
    idle_ns : the collector's idle timeout, nanoseconds

    Returns
    -------
    flow records as the data contract has them, by start. Times and counts are those at the first switch of the path.
    """
    seen = pl.concat([packets.with_columns(switch=pl.lit(switch)) for switch, packets in sightings.items()])
    paths = (
        seen.group_by(*KEY, "switch")
        .agg(pl.col("time_ns").min())
        .sort("time_ns", "switch")
        .group_by(KEY, maintain_order=True)
        .agg(switch_path="switch")
        .with_columns(switch=pl.col("switch_path").list.first())
    )
    gap = pl.col("time_ns").diff().over(KEY)
    return (
        seen.join(paths, on=[*KEY, "switch"])
        .sort(*KEY, "time_ns")
        .with_columns(record=(gap.fill_null(0) > idle_ns).cum_sum().over(KEY))
        .group_by(*KEY, "record")
        .agg(
            flow_start_ns=pl.col("time_ns").min(),
            flow_end_ns=pl.col("time_ns").max(),
            bytes=pl.col("bytes").sum(),
            packets=pl.len().cast(pl.Int64),
            switch_path=pl.col("switch_path").first(),
        )
        .select("flow_start_ns", "flow_end_ns", *KEY, "bytes", "packets", "switch_path")
        .sort("flow_start_ns", *KEY)
    )


def _packet_starts(raw: bytes) -> np.ndarray:
    """Return where each packet's header begins; a loop, for a packet's length tells where the next begins."""
    starts, start, length = [], FILE_HEADER_BYTES, struct.Struct("<I")
    while start + PACKET_HEADER_BYTES <= len(raw):
        end = start + PACKET_HEADER_BYTES + length.unpack_from(raw, start + 8)[0]
        if end > len(raw):
            break
        starts.append(start)
        start = end
    return np.array(starts, np.int64)


def _port(headers: np.ndarray, places: np.ndarray) -> np.ndarray:
    places = np.minimum(places, len(headers) - 2)
    return headers[places].astype(np.int64) << 8 | headers[places + 1]


def _dotted(addresses: np.ndarray) -> pl.Series:
    parts = [pl.Series(addresses >> shift & 0xFF).cast(pl.String) for shift in (24, 16, 8, 0)]
    return pl.select(pl.concat_str(parts, separator=".")).to_series()
