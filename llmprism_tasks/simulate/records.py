"""The collector: messages on queue pairs become flow records, as a switch's exporter would cut and count them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from llmprism_tasks.simulate.fabric import Indices, Reals
from llmprism_tasks.simulate.scenario import Collector

PACKET_BYTES = 4096  # payload of a full RoCEv2 packet
HEADER_BYTES = 58  # Ethernet, IPv4, UDP, InfiniBand base transport header and checks
RESENT_PACKETS = 300  # a go-back-N retransmission repeats what was in flight, at most this
_NAMED_STREAMS = {"start": 1, "end": 2, "resent": 3, "lost": 4, "doubled": 5, "in flight": 6}


@dataclass(frozen=True)
class Messages:
    """Bursts on queue pairs, before or after the collector; arrays of one length, times in ns since the epoch."""

    queue_pair: Indices
    start_ns: Indices
    end_ns: Indices
    payload_bytes: Indices
    packets: Indices

    def __len__(self) -> int:
        return len(self.queue_pair)

    def take(self, chosen: NDArray[np.bool_] | Indices) -> Messages:
        """Return the chosen ones."""
        return Messages(**{column.name: getattr(self, column.name)[chosen] for column in fields(self)})


def joined(parts: list[Messages]) -> Messages:
    """Put messages together."""
    empty = [np.empty(0, dtype=np.int64)]
    return Messages(**{c.name: np.concatenate(empty + [getattr(p, c.name) for p in parts]) for c in fields(Messages)})


def packets_of(payload: Reals | Indices) -> Indices:
    """Return how many packets carry a payload."""
    return np.asarray(np.ceil(payload / PACKET_BYTES), dtype=np.int64)


def wire_bytes(payload: Reals | Indices) -> Reals:
    """Return the bytes on the wire: payload and a header per packet."""
    return np.asarray(payload + HEADER_BYTES * packets_of(payload), dtype=np.float64)


def noise(seed: int, stream: str, queue_pair: Indices, time_ns: Indices) -> Reals:
    """Return numbers in [0, 1) that depend on nothing but the arguments, so any part of a run can be made alone.

    Three rounds of the SplitMix64 finaliser (Steele, Lea and Flood, 2014).
    """
    first = (seed * 8 + _NAMED_STREAMS[stream]) % 2**64
    mixed = np.full(queue_pair.shape, first, dtype=np.uint64)
    for word in (queue_pair, time_ns, np.zeros_like(time_ns)):
        mixed = mixed + word.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) / 2**53)


def collect(messages: Messages, collector: Collector, *, seed: int, clock_ns: Indices) -> Messages:
    """Turn messages into flow records, sorted by start.

    Messages of a queue pair with less than the idle timeout between them make one record. Then packets are sent
    again, records lost and doubled, and clocks are off, each as often as the collector's settings say.

    Parameters
    ----------
    clock_ns : how far ahead the clock is at each queue pair's first switch
    """
    order = np.lexsort((messages.start_ns, messages.queue_pair))
    sent = messages.take(order)
    if not len(sent):
        return sent
    other = np.flatnonzero(np.diff(sent.queue_pair, prepend=-1))
    # Times of one queue pair lie far above those of the one before it, so one running maximum serves all of them.
    apart = np.repeat(np.arange(len(other)), np.diff(other, append=len(sent))) * (np.ptp(sent.end_ns) + 1)
    last_end = np.maximum.accumulate(sent.end_ns - sent.end_ns.min() + apart)
    silence = (sent.start_ns - sent.end_ns.min() + apart)[1:] - last_end[:-1]
    begins = np.append(True, silence >= collector.idle_timeout_ms * 1e6)
    begins[other] = True
    first = np.flatnonzero(begins)
    records = Messages(
        queue_pair=sent.queue_pair[first],
        start_ns=sent.start_ns[first],
        end_ns=np.maximum.reduceat(sent.end_ns, first),
        payload_bytes=np.add.reduceat(sent.payload_bytes, first),
        packets=np.add.reduceat(sent.packets, first),
    )
    return _imperfect(records, collector, seed, clock_ns)


def _imperfect(records: Messages, collector: Collector, seed: int, clock_ns: Indices) -> Messages:
    def struck(stream: str, share: float) -> NDArray[np.bool_]:
        return noise(seed, stream, records.queue_pair, records.start_ns) < share

    in_flight = 1 + np.floor(RESENT_PACKETS * noise(seed, "in flight", records.queue_pair, records.start_ns)).astype(
        int
    )
    again = np.where(struck("resent", collector.retransmitted), np.minimum(records.packets, in_flight), 0)
    per_packet = -(-records.payload_bytes // records.packets)
    ahead = clock_ns[records.queue_pair]
    seen = Messages(
        queue_pair=records.queue_pair,
        start_ns=records.start_ns + ahead,
        end_ns=records.end_ns + ahead,
        payload_bytes=records.payload_bytes + again * per_packet,
        packets=records.packets + again,
    )
    copies = np.where(struck("lost", collector.lost), 0, 1 + struck("doubled", collector.doubled))
    kept = np.repeat(np.arange(len(seen)), copies)
    return seen.take(kept[np.lexsort((seen.queue_pair[kept], seen.start_ns[kept]))])
