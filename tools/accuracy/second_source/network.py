"""The switches between NICs, what slows a part of them, and how long a message takes then."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


class Slow(NamedTuple):
    """A device that has a share of its rate for a while: `addr:…`, `switch:…`, `link:…` or one way of it, `hop:…`."""

    device: str
    start_s: float
    end_s: float
    share: float


@dataclass
class Network:
    """Leaves and spines, each leaf linked with each spine.

    Attributes
    ----------
    leaf_of : the leaf of each NIC and of each address outside the topology
    spines : number of them; which one a connection takes is decided by its 5-tuple
    slow : what is slow, and when
    """

    leaf_of: dict[str, str]
    spines: int = 2
    slow: Sequence[Slow] = ()
    struck: dict[tuple[str, str, int], tuple[Slow, ...]] = field(default_factory=dict)
    """What slows a connection, by sender, receiver and channel."""

    def path(self, src: str, dst: str, channel: int) -> tuple[str, ...]:
        """Return the switches that a connection crosses."""
        one, other = self.leaf_of[src], self.leaf_of[dst]
        if one == other:
            return (one,)
        return one, f"spine{zlib.crc32(f'{src} {dst} {channel}'.encode()) % self.spines}", other

    def slowed(self, src: str, dst: str, channel: int) -> tuple[Slow, ...]:
        """Return what slows a connection at any time."""
        if not self.slow:
            return ()
        known = self.struck.get((src, dst, channel))
        if known is None:
            path = self.path(src, dst, channel)
            hops = list(pairwise(path))
            devices = {f"addr:{src}", f"addr:{dst}", *(f"switch:{one}" for one in path)}
            devices |= {f"hop:{one} > {other}" for one, other in hops}
            devices |= {f"link:{link_name(one, other)}" for one, other in hops}
            known = tuple(one for one in self.slow if one.device in devices)
            self.struck[src, dst, channel] = known
        return known


def link_name(one: str, other: str) -> str:
    """Return a link's name, as a truth folder has it."""
    return " - ".join(sorted((one, other)))


def end_of(at: float, seconds: float, slow: Iterable[Slow]) -> float:
    """Return when a message that takes so long at full rate is through, if it meets slow devices on its way.

    The slowest device at a time sets the pace.
    """
    slow = tuple(slow)
    if not slow or not math.isfinite(at):
        return at + seconds
    left = seconds
    while True:
        share = min((one.share for one in slow if one.start_s <= at < one.end_s), default=1.0)
        edges = [edge for one in slow for edge in (one.start_s, one.end_s) if edge > at]
        until = min(edges, default=math.inf)
        if at + left / share <= until:
            return at + left / share
        left -= (until - at) * share
        at = until
