"""Messages on queue pairs, which the collector makes flow records of: their sizes on the wire, and noise for them."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from llmprism_tasks.simulate.arrays import Indices, Reals

PACKET_BYTES = 4096  # payload of a full RoCEv2 packet
HEADER_BYTES = 58  # Ethernet, IPv4, UDP, InfiniBand base transport header and checks
_STREAMS = (
    *("", "start", "end", "resent", "lost", "doubled", "in flight", ""),
    *("sampled", "sampled more", "first sample", "last sample", "copy", "row", "path", ""),
)


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


def packets_of(payload: Reals | Indices, packet_bytes: int = PACKET_BYTES) -> Indices:
    """Return how many packets of a size carry a payload."""
    return np.asarray(np.ceil(payload / packet_bytes), dtype=np.int64)


def wire_bytes(payload: Reals | Indices) -> Reals:
    """Return the bytes on the wire: payload and a header per packet."""
    return np.asarray(payload + HEADER_BYTES * packets_of(payload), dtype=np.float64)


def noise(seed: int, stream: str, queue_pair: Indices, time_ns: Indices) -> Reals:
    """Return numbers in [0, 1) that depend on nothing but the arguments, so any part of a run can be made alone.

    Three rounds of the SplitMix64 finaliser (Steele, Lea and Flood, 2014).
    """
    octet, place = divmod(_STREAMS.index(stream), 8)
    mixed = np.full(queue_pair.shape, (seed * 8 + place) % 2**64, dtype=np.uint64)
    for word in (queue_pair, time_ns, np.full_like(time_ns, octet)):
        mixed = mixed + word.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) / 2**53)
