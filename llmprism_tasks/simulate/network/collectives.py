"""How long the ranks of one pp_stage communicate, and when each of their queue pairs carries what.

Each kind of communication is timed for many steps at once: the first axis of all times is the step, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.arrays import Indices, Reals
from llmprism_tasks.simulate.network.messages import wire_bytes

NVLINK_BPS = 1.6e12  # bits per second inside a host
LAUNCH_S = 2e-5  # slack within which peers launch an operation's first packets and see its last


@dataclass(frozen=True)
class Burst:
    """What some queue pairs carry once in each step.

    Attributes
    ----------
    rows : the queue pairs, numbered in the job, shape (rows,)
    met : when both ends have come to it, shape (steps, rows)
    start, seconds : when it flows, and how long, shape (steps, rows)
    payload : bytes, broadcasts to (steps, rows)
    alone : seconds that it would take by itself, not at the pace of a group; broadcasts to (steps, rows). None for what
        is in no group
    """

    rows: Indices
    met: Reals
    start: Reals
    seconds: Reals
    payload: Reals
    alone: Reals | None = None


@dataclass(frozen=True)
class StageQueuePairs:
    """The queue pairs of one use in one pp_stage; arrays of one length.

    Attributes
    ----------
    rows : numbers of the queue pairs in the job
    src, dst : units at their ends
    tp, lane : tensor-parallel place, and lane
    bps : rates at the moment
    """

    rows: Indices
    src: Indices
    dst: Indices
    tp: Indices
    lane: Indices
    bps: Reals


class Collective:
    """Rings or trees over groups of units: as fast as the slowest hop, and begun when the last member has come.

    Parameters
    ----------
    groups : units of each group, shape (groups, members)
    tp, lanes : how many tensor-parallel peers have groups of their own, and how many lanes each group has
    latency_s : how long the first byte takes through the group
    """

    def __init__(self, wires: StageQueuePairs, groups: Indices, tp: int, lanes: int, latency_s: float) -> None:
        self._wires, self._groups, self._latency_s = wires, groups, latency_s
        self._group = np.empty(groups.size, dtype=np.int64)
        self._group[groups] = np.arange(len(groups))[:, None]
        self._rows = self._group[wires.src], wires.tp
        self._bps = np.full((len(groups), tp, lanes), np.inf)
        np.minimum.at(self._bps, (*self._rows, wires.lane), wires.bps)
        self._bps[np.isinf(self._bps)] = NVLINK_BPS
        self._free: Reals | None = None

    def launch(self, ready: Reals, payload: float, factor: Reals) -> tuple[Burst, Reals]:
        """Return the burst and when each unit has its result, shape (steps, units).

        Parameters
        ----------
        ready : when each unit comes, shape (steps, units)
        payload : bytes on each lane of each hop
        factor : of its time, shape (steps, groups, tp)
        """
        wires = self._wires
        came = ready[:, self._groups].max(axis=2)[:, :, None]
        free = np.full(factor.shape, -np.inf) if self._free is None else self._free
        start = np.maximum(came, free)
        pure = wire_bytes(np.array(payload)) * 8 / self._bps + self._latency_s
        seconds = pure * factor[..., None]
        end = self._free = start + seconds.max(axis=3)
        met = np.maximum(np.maximum(ready[:, wires.src], ready[:, wires.dst]), free[:, *self._rows])
        alone = (wire_bytes(np.array(payload)) * 8 / wires.bps + self._latency_s) * factor[:, *self._rows]
        paced = seconds[:, *self._rows, wires.lane]
        burst = Burst(wires.rows, met, start[:, *self._rows], paced, np.array(payload), alone)
        return burst, end.max(axis=2)[:, self._group]


class RingExchange:
    """Each unit sends to the next one of its group; a hop is a rendezvous of the two."""

    def __init__(self, wires: StageQueuePairs, groups: Indices, lanes: int) -> None:
        self._wires = wires
        self._following = np.empty(groups.size, dtype=np.int64)
        self._following[groups] = np.roll(groups, -1, axis=1)
        self._preceding = np.argsort(self._following)
        self._bps = np.full(groups.size, np.inf)
        np.minimum.at(self._bps, wires.src, wires.bps)
        self._bps[np.isinf(self._bps)] = NVLINK_BPS / lanes

    def launch(self, ready: Reals, payload: float, factor: Reals) -> tuple[Burst, Reals]:
        """Return the burst and when each unit has sent and received; `factor` has shape (steps, units)."""
        wires = self._wires
        start = np.maximum(ready, ready[:, self._following])
        on_wire = wire_bytes(np.array(payload)) * 8
        sent = start + (LAUNCH_S + on_wire / self._bps) * factor
        begin, seconds = start[:, wires.src], (LAUNCH_S + on_wire / wires.bps) * factor[:, wires.src]
        return Burst(wires.rows, begin, begin, seconds, np.array(payload)), np.maximum(sent, sent[:, self._preceding])


class AllToAll:
    """Each unit sends to every other of its group what a router decides; two units begin when both have come."""

    def __init__(self, wires: StageQueuePairs, units: int, turned: Indices) -> None:
        """Prepare; `turned` is the place of the queue pair that goes the other way, for each."""
        self._wires, self._turned = wires, turned
        touching = [np.flatnonzero((wires.src == unit) | (wires.dst == unit)) for unit in range(units)]
        most = max((len(found) for found in touching), default=0)
        # The place after the last one stands for what stays inside a host.
        self._touching = np.full((units, most + 1), len(wires.rows))
        for unit, found in enumerate(touching):
            self._touching[unit, : len(found)] = found

    def launch(self, ready: Reals, payload: Reals, factor: Reals, *, back: bool) -> tuple[Burst, Reals]:
        """Return the burst and when each unit has sent and received all.

        Parameters
        ----------
        payload : bytes from the router's side to the experts', shape (steps, rows)
        factor : shape (steps, units)
        back : whether this is the way back
        """
        wires = self._wires
        carried = payload[:, self._turned] if back else payload
        start = np.maximum(ready[:, wires.src], ready[:, wires.dst])
        seconds = (LAUNCH_S + wire_bytes(carried) * 8 / wires.bps) * factor[:, wires.src]
        nothing = np.full((len(ready), 1), -np.inf)
        ends = np.concatenate([np.where(carried > 0, start + seconds, -np.inf), nothing], axis=1)
        done = np.maximum(ends[:, self._touching].max(axis=2), ready + LAUNCH_S)
        return Burst(wires.rows, start, start, seconds, carried), done


class PipelineSends:
    """The transfers of a pipeline from one pp_stage to another: TP peers and queue pairs wait for the last of them."""

    def __init__(self, wires: StageQueuePairs, units: int, payload: float, lanes: int) -> None:
        self._wires, self._payload = wires, payload
        self._row_s = LAUNCH_S + wire_bytes(np.array(payload)) * 8 / wires.bps
        self._unit_s = np.full(units, payload * lanes * 8 / NVLINK_BPS)
        np.maximum.at(self._unit_s, wires.src, self._row_s)

    def send(self, start: Reals, factor: Reals, length: Reals) -> tuple[Burst, Reals]:
        """Return the burst and when each unit has the micro-batch; all of shape (steps, units).

        `length` is the micro-batch's, over the mean; it may be the same in all steps.
        """
        src = self._wires.src
        factor = factor * length
        begin, seconds = start[:, src], self._row_s * factor[:, src]
        payload = np.rint(self._payload * length[:, src])
        return Burst(self._wires.rows, begin, begin, seconds, payload), start + self._unit_s * factor
