"""The collector: what it merges, cuts, samples, loses, doubles and mistimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmprism_tasks.simulate.collector.exporter import collect
from llmprism_tasks.simulate.network.messages import Messages
from llmprism_tasks.simulate.scenario.collector import Collector

MS = 1_000_000


def _messages(rows: list[tuple[int, int, int]], packets: int = 1) -> Messages:
    pairs, starts, ends = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return Messages(pairs, starts, ends, np.full(len(rows), 4096 * packets), np.full(len(rows), packets))


def _collect(messages: Messages, **changes: Any) -> Messages:
    return collect(messages, Collector(**changes), seed=1, clock_ns=np.zeros(3, dtype=np.int64))


def _far_apart(count: int, lasting_ns: int = 1000) -> list[tuple[int, int, int]]:
    return [(i % 3, i * 2 * MS, i * 2 * MS + lasting_ns) for i in range(count)]


def test_the_collector_ends_a_record_after_silence_on_its_queue_pair() -> None:
    rows = [
        (1, 2_500_000, 3_000_000),
        (0, 0, 1_000_000),
        (0, 1_999_999, 2_000_000),
        (0, 3_000_000, 3_000_001),
        (1, 0, 9),
    ]
    records = _collect(_messages(rows), idle_timeout_ms=1.0)
    assert list(zip(records.queue_pair, records.start_ns, records.end_ns, records.packets, strict=True)) == [
        (0, 0, 2_000_000, 2),
        (1, 0, 9, 1),
        (1, 2_500_000, 3_000_000, 1),
        (0, 3_000_000, 3_000_001, 1),
    ]
    assert len(_collect(_messages([]))) == 0


def test_the_collector_loses_and_doubles_as_many_records_as_it_is_told() -> None:
    rows = _far_apart(20_000)
    kept = _collect(_messages(rows), lost=0.1)
    assert len(kept) == pytest.approx(18_000, rel=0.02)
    doubled = _collect(_messages(rows), doubled=0.05)
    assert len(doubled) == pytest.approx(21_000, rel=0.02)
    assert len(np.unique(doubled.start_ns)) == 20_000
    again = _collect(_messages(rows), retransmitted=0.2)
    assert (again.packets > 1).mean() == pytest.approx(0.2, abs=0.02)
    assert (again.payload_bytes == 4096 * again.packets).all()


def test_a_clock_that_is_off_moves_records_whole() -> None:
    rows = [(0, 0, 9), (1, 2_000_000, 2_000_100)]
    moved = collect(_messages(rows), Collector(), seed=1, clock_ns=np.array([500, -300]))
    assert moved.start_ns.tolist() == [500, 1_999_700]
    assert (moved.end_ns - moved.start_ns).tolist() == [9, 100]


def test_a_copy_from_another_switch_has_times_of_its_own() -> None:
    seen = _collect(_messages(_far_apart(3000)), doubled=0.1, doubled_us=40)
    off = seen.start_ns % (2 * MS)
    copies = (off != 0).sum()
    assert copies == pytest.approx(300, rel=0.2)
    assert np.abs((seen.start_ns + MS) % (2 * MS) - MS).max() <= 40_000
    assert (seen.end_ns - seen.start_ns == 1000).all()


@pytest.mark.parametrize(("lasting_ms", "pieces"), [(999, 1), (1000, 1), (1001, 2), (3500, 4)])
def test_a_record_longer_than_the_active_timeout_is_cut_and_loses_nothing(lasting_ms: int, pieces: int) -> None:
    seen = _collect(_messages([(0, 5, 5 + lasting_ms * MS)], packets=10_000), active_timeout_s=1.0)
    assert len(seen) == pieces
    assert seen.packets.sum() == 10_000
    assert seen.payload_bytes.sum() == 10_000 * 4096
    assert (seen.start_ns[1:] == seen.end_ns[:-1]).all()
    assert (seen.start_ns[0], seen.end_ns[-1]) == (5, 5 + lasting_ms * MS)


@pytest.mark.parametrize("packets", [50, 500, 50_000])
def test_sampling_estimates_without_bias_and_moves_ends_inwards(packets: int) -> None:
    sent = _messages(_far_apart(4000, lasting_ns=500_000), packets=packets)
    seen = _collect(sent, sampled=100)
    assert (seen.packets % 100 == 0).all()
    spread = 5 * np.sqrt(100 / (packets * len(sent)))
    assert seen.packets.sum() == pytest.approx(packets * len(sent), rel=spread)
    assert (seen.payload_bytes == 4096 * seen.packets).all()
    vanished = (1 - 1 / 100) ** packets
    assert 1 - len(seen) / len(sent) == pytest.approx(vanished, abs=0.04)
    assert (seen.start_ns % (2 * MS) >= 0).all()
    assert (seen.start_ns < seen.end_ns).all()
    assert (seen.end_ns % (2 * MS) <= 500_000).all()
    # k samples leave 2 / (k + 1) of a message's time outside them.
    if packets == 50_000:
        assert (seen.end_ns - seen.start_ns).mean() == pytest.approx(500_000 * 499 / 501, rel=0.002)


def test_a_coarse_clock_cuts_times_to_its_ticks() -> None:
    seen = _collect(_messages([(0, 1_999, 3_000), (1, 2_000, 2_999)]), clock_us=1)
    assert sorted(zip(seen.queue_pair, seen.start_ns, seen.end_ns, strict=True)) == [(0, 1000, 3000), (1, 2000, 2000)]


def test_disorder_moves_rows_no_further_than_it_says() -> None:
    seen = _collect(_messages(_far_apart(2000)), disorder_ms=10)
    assert (np.diff(seen.start_ns) < 0).any()
    late = np.maximum.accumulate(seen.start_ns) - seen.start_ns
    assert 4 * MS < late.max() <= 10 * MS
    assert np.sort(seen.start_ns).tolist() == [row[1] for row in _far_apart(2000)]


@settings(max_examples=30)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**10), st.integers(1, 10**9)), min_size=1, max_size=30),
    idle_ms=st.floats(0, 50),
    active_s=st.sampled_from([0.0, 0.01, 0.5]),
)
def test_merging_and_cutting_keep_every_byte(rows: list[tuple[int, int, int]], idle_ms: float, active_s: float) -> None:
    sent = _messages([(pair, start, start + lasted) for pair, start, lasted in rows], packets=7000)
    seen = _collect(sent, idle_timeout_ms=idle_ms, active_timeout_s=active_s)
    assert seen.payload_bytes.sum() == sent.payload_bytes.sum()
    assert seen.packets.sum() == sent.packets.sum()
    assert (seen.start_ns.min(), seen.end_ns.max()) == (sent.start_ns.min(), sent.end_ns.max())
