"""Packets to records: which packets count, where they are cut, and at which switch they are counted."""

from __future__ import annotations

import struct
from pathlib import Path

import polars as pl
import pytest
import records
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

MS = 1_000_000
SNAP_BYTES = 96
EMPTY = records.PACKETS.to_frame()


def frame(payload: int, *, protocol: int = records.TCP, options: int = 12, ethertype: int = 0x0800) -> bytes:
    """Return an Ethernet frame from 10.0.1.1:4000 to 10.0.3.2:5000."""
    udp = protocol == records.UDP
    header = 8 if udp else 20 + options
    ip = struct.pack(">BBHHHBBH4B4B", 0x45, 0, 20 + header + payload, 0, 0, 64, protocol, 0, 10, 0, 1, 1, 10, 0, 3, 2)
    ports = struct.pack(">HH", 4000, 5000)
    transport = ports + (bytes(4) if udp else struct.pack(">IIB", 0, 0, header // 4 << 4) + bytes(header - 13))
    return bytes(12) + struct.pack(">H", ethertype) + ip + transport + bytes(payload)


def pcap(*packets: tuple[int, bytes]) -> bytes:
    """Return a capture of packets, each with its time in nanoseconds, headers only."""
    content = struct.pack("<IHHiIII", records.NANOSECOND_MAGIC, 2, 4, 0, 0, SNAP_BYTES, 1)
    for time_ns, packet in packets:
        kept = packet[:SNAP_BYTES]
        content += struct.pack("<IIII", *divmod(time_ns, 1_000_000_000), len(kept), len(packet)) + kept
    return content


def sent(*times_ns: int, src_port: int = 1) -> pl.DataFrame:
    rows = [(time_ns, "10.0.1.1", "10.0.3.2", src_port, 2, records.TCP, 100) for time_ns in times_ns]
    return pl.DataFrame(rows, schema=records.PACKETS, orient="row")


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return tmp_path / "leaf0.pcap"


@pytest.mark.parametrize(("protocol", "options"), [(records.TCP, 0), (records.TCP, 12), (records.UDP, 0)])
def test_a_packet_is_read_with_its_payload_only(capture: Path, protocol: int, options: int) -> None:
    time_ns = 1_795_170_309_425_534_699
    capture.write_bytes(pcap((time_ns, frame(8948, protocol=protocol, options=options))))
    expected = (time_ns, "10.0.1.1", "10.0.3.2", 4000, 5000, protocol, 8948)
    assert records.read_packets(capture).rows() == [expected]


def test_packets_without_payload_or_of_other_protocols_do_not_count(capture: Path) -> None:
    others = [frame(0), frame(100, protocol=1), frame(100, ethertype=0x86DD)]
    capture.write_bytes(pcap(*((number, packet) for number, packet in enumerate(others))))
    assert_frame_equal(records.read_packets(capture), EMPTY)


def test_a_capture_without_packets_is_an_empty_frame(capture: Path) -> None:
    capture.write_bytes(pcap())
    assert_frame_equal(records.read_packets(capture), EMPTY)


def test_a_packet_cut_off_at_the_files_end_is_left_out(capture: Path) -> None:
    capture.write_bytes(pcap((1, frame(100)), (2, frame(200)))[:-1])
    assert records.read_packets(capture)["bytes"].to_list() == [100]


def test_a_file_of_another_format_is_refused(capture: Path) -> None:
    capture.write_bytes(struct.pack("<I", 0x0A0D0D0A) + bytes(40))
    with pytest.raises(ValueError, match="expected a pcap with nanoseconds"):
        records.read_packets(capture)


def test_a_record_ends_when_the_silence_is_longer_than_the_timeout() -> None:
    packets = sent(0, 5 * MS, 10 * MS + 1)
    found = records.cut({"leaf0": packets}, 5 * MS)
    assert found.select("flow_start_ns", "flow_end_ns", "bytes", "packets").rows() == [
        (0, 5 * MS, 200, 2),
        (10 * MS + 1, 10 * MS + 1, 100, 1),
    ]


def test_each_5_tuple_has_its_own_records() -> None:
    packets = pl.concat([sent(0, 2 * MS), sent(MS, src_port=9)])
    assert records.cut({"leaf0": packets}, 5 * MS)["packets"].to_list() == [2, 1]


def test_times_and_counts_are_those_at_the_first_switch_of_the_path() -> None:
    sightings = {"spine0": sent(20, 40), "leaf1": sent(30, 50), "leaf0": sent(10, 35)}
    (record,) = records.cut(sightings, 5 * MS).to_dicts()
    assert record["switch_path"] == ["leaf0", "spine0", "leaf1"]
    assert (record["flow_start_ns"], record["flow_end_ns"], record["packets"]) == (10, 35, 2)


def test_no_packets_are_no_records() -> None:
    found = records.cut({"leaf0": EMPTY, "leaf1": EMPTY}, 5 * MS)
    assert found.is_empty()
    assert found.schema["switch_path"] == pl.List(pl.String)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50), st.integers(1, 10**8))
def test_no_packet_is_lost_and_records_are_silent_between(times_ns: list[int], idle_ns: int) -> None:
    found = records.cut({"leaf0": sent(*times_ns)}, idle_ns)
    assert found["packets"].sum() == len(times_ns)
    assert found["bytes"].sum() == 100 * len(times_ns)
    silence = found["flow_start_ns"] - found["flow_end_ns"].shift()
    assert (silence.drop_nulls() > idle_ns).all()
