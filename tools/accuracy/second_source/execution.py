"""When each rank of a job computes and sends, step by step, from the order of its operations alone."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from accuracy.second_source.fabric import Fabric, double_tree
from accuracy.second_source.schedules import operations
from accuracy.second_source.training import Training

BACKWARD = 2.0
"""How much longer the backward pass takes than the forward pass."""

TAIL = 2.5
"""Exponent of the Pareto distribution of what some steps take longer: two thirds on average, now and then more."""

SAVE_SPREAD = 0.15
"""Sigma of the logarithm of how long a checkpoint takes."""


@dataclass
class Run:
    """A job under way: what it did is noted here."""

    job: Training
    fabric: Fabric
    rng: np.random.Generator
    first_step: int = 0
    steps: list[tuple[int, float, float, float]] = field(default_factory=list)
    """Number, start, end and the end of the gradients' synchronisation, s."""

    kinds: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    saves: list[tuple[float, float]] = field(default_factory=list)
    """Start and end of each wait for a checkpoint, s."""

    def __post_init__(self) -> None:
        self.rank_of = {nic: rank for rank, nic in enumerate(self.job.nics)}

    def run(self) -> None:
        """Train until the job's end; the step under way then is not finished.

        Who has done its part when another rank falls silent begins the next step, and waits in that.
        """
        job, number = self.job, self.first_step
        ready = dict.fromkeys(job.nics, job.start_s)
        one_step = {
            "ddp": self._replicated,
            "1f1b": self._pipeline,
            "fsdp": self._sharded,
            "experts": self._experts,
            "ring": self._ring,
        }[job.schedule]
        while True:
            start = min(ready.values())
            factor = float(np.exp(self.rng.normal(0.0, job.unevenness)))
            if job.tail and self.rng.random() < job.tail:
                factor *= 1.0 + float(self.rng.pareto(TAIL))
            kept = len(self.fabric.records)
            self._load(ready, start)
            reduced = one_step(ready, factor)
            if max(ready.values()) > job.end_s:
                if min(ready.values()) < job.end_s and math.isinf(max(ready.values())):
                    one_step(ready, factor)
                late = self.fabric.records[kept:]
                self.fabric.records[kept:] = [] if job.in_order else [one for one in late if one[1] <= job.end_s]
                return
            self.steps.append((number, start, max(ready.values()), reduced))
            number += 1
            if job.pause_every and number % job.pause_every == 0:
                ready.update({nic: at + job.pause_s for nic, at in ready.items()})
            self._save(ready, number)

    def _load(self, ready: dict[str, float], start: float) -> None:
        """Let ranks wait whose data come late."""
        for rank, begin, end, mean in self.job.loader:
            wait = float(self.rng.exponential(mean))
            if begin <= start < end:
                ready[self.job.nics[rank]] += wait

    def _save(self, ready: dict[str, float], number: int) -> None:
        """Let all ranks wait for a checkpoint if one is due, or if the storage stalls."""
        job, at = self.job, max(ready.values())
        waits = 0.0
        if job.save_every and number % job.save_every == 0:
            usual = job.save_s
            for begin, end, seconds in job.slow_saves:
                usual = seconds if begin <= at < end else usual
            waits = usual * float(np.exp(self.rng.normal(0.0, SAVE_SPREAD)))
        if job.stall and self.steps[-1][1] < job.stall[0] <= at:
            waits = max(waits, job.stall[1])
        if not waits:
            return
        self.saves.append((at, at + waits))
        if job.save_bytes:
            for place, nic in enumerate(job.nics):
                storage = job.storage[place % len(job.storage)]
                self.fabric.bulk(at, at + waits, nic, storage, job.save_bytes / waits)
        ready.update(dict.fromkeys(ready, at + waits))

    def _took(self, nic: str, at: float, seconds: float) -> float:
        rank = self.rank_of[nic]
        for slow, begin, end, factor in self.job.slow:
            if slow == rank and begin <= at < end:
                seconds *= factor
        done = at + seconds * float(np.exp(self.rng.normal(0.0, self.job.jitter)))
        if self.job.silent and self.job.silent[0] == rank and done > self.job.silent[1]:
            return math.inf
        return done

    def _note(self, group: list[str], kind: str) -> None:
        """Note the pairs over which a group's collectives go."""
        if self.job.algorithm == "tree" and kind == "dp":
            for edges in double_tree(len(group)):
                for one, other in edges:
                    self.kinds[group[one], group[other]].add(kind)
                    self.kinds[group[other], group[one]].add(kind)
            return
        if self.fabric.host_of:
            for channel in range(self.job.channels):
                for hop in self.fabric.hops(tuple(group), channel):
                    self.kinds[hop].add(kind)
            return
        for place, src in enumerate(group):
            self.kinds[src, group[(place + 1) % len(group)]].add(kind)

    def _buckets(self) -> list[tuple[float, float]]:
        """Return the buckets in the order they are filled: bytes, and the share of the backward pass done by then."""
        job = self.job
        layers = [job.layer_bytes * job.head, *[job.layer_bytes] * job.layers, job.layer_bytes * job.head]
        buckets, held = [], 0.0
        for number, size in enumerate(layers):
            held += size
            if held >= job.bucket_bytes or number == len(layers) - 1:
                buckets.append((held, (number + 1) / len(layers)))
                held = 0.0
        return buckets

    def _synchronise(self, group: list[str], began: dict[str, float], ended: dict[str, float]) -> dict[str, float]:
        """All-reduce (or reduce and scatter) a group's buckets during or after its last backward pass."""
        job, free = self.job, 0.0
        if len(group) < 2:
            return {nic: ended[nic] for nic in group}
        self._note(group, "dp")
        for size, share in self._buckets():
            done = {n: _at(share, began[n], ended[n]) if job.overlap else ended[n] for n in group}
            if job.algorithm == "tree":
                free = self.fabric.tree(done, size, channels=job.channels, free=free)
            else:
                passes = 1 if job.sharded_optimizer else 2
                free = self.fabric.ring(done, size, passes=passes, channels=job.channels, free=free)
        return {nic: max(free, ended[nic]) for nic in group}

    def _updated(self, group: list[str], reduced: dict[str, float]) -> dict[str, float]:
        """Run the optimizer; with a sharded one the parameters are gathered after it."""
        job = self.job
        done = {nic: self._took(nic, reduced[nic], job.optimizer_s) for nic in group}
        if job.sharded_optimizer and len(group) > 1:
            free = 0.0
            for size, _ in self._buckets():
                free = self.fabric.ring(done, size, passes=1, channels=job.channels, free=free)
            done = {nic: max(free, done[nic]) for nic in group}
        return done

    def _replicated(self, ready: dict[str, float], factor: float) -> float:
        job = self.job
        own = [np.exp(self.rng.normal(0.0, job.lengths, len(job.nics))) for _ in range(job.micro_batches)]
        began, ended = {}, {}
        for rank, nic in enumerate(job.nics):
            at = ready[nic]
            for lengths in own:
                forward = job.layers * job.layer_s * factor * lengths[rank]
                began[nic] = self._took(nic, at, forward)
                at = ended[nic] = self._took(nic, began[nic], BACKWARD * forward)
        reduced = self._synchronise(list(job.nics), began, ended)
        ready.update(self._updated(list(job.nics), reduced))
        return max(reduced.values())

    def _pipeline(self, ready: dict[str, float], factor: float) -> float:
        """1F1B, interleaved if a stage has several parts of the model (Narayanan et al. 2021, figure 4)."""
        job = self.job
        began: dict[str, float] = {}
        ended: dict[str, float] = {}
        for replica in range(job.dp):
            lengths = factor * np.exp(self.rng.normal(0.0, job.lengths, job.micro_batches))
            self._replica(replica, lengths * job.layers * job.layer_s / job.chunks, ready, (began, ended))
        last = 0.0
        for stage in range(job.pp):
            for tp_index in range(job.tp):
                group = [job.nic(stage, replica, tp_index) for replica in range(job.dp)]
                reduced = self._synchronise(group, began, ended)
                last = max(last, *reduced.values())
                ready.update(self._updated(group, reduced))
        return last

    def _replica(
        self,
        replica: int,
        forward: np.ndarray,
        ready: dict[str, float],
        backwards: tuple[dict[str, float], dict[str, float]],
    ) -> None:
        """Run one pipeline; notes when each NIC's last backward pass began and ended."""
        job, (began, ended) = self.job, backwards
        queues = [operations(stage, job.pp, job.chunks, job.micro_batches) for stage in range(job.pp)]
        arrived: dict[tuple[str, int, int], float] = {}
        free = [max(ready[job.nic(stage, replica, t)] for t in range(job.tp)) for stage in range(job.pp)]
        parts = job.pp * job.chunks
        while any(queues):
            for stage, queue in enumerate(queues):
                while queue:
                    kind, chunk, number = queue[0]
                    part = chunk * job.pp + stage
                    first = (part == 0) if kind == "F" else (part == parts - 1)
                    if not first and (kind, part, number) not in arrived:
                        break
                    queue.pop(0)
                    at = max(free[stage], 0.0 if first else arrived[kind, part, number])
                    took = float(forward[number]) * (1.0 if kind == "F" else BACKWARD)
                    end = max(self._took(job.nic(stage, replica, t), at, took) for t in range(job.tp))
                    free[stage] = end
                    if not queue:
                        for t in range(job.tp):
                            nic = job.nic(stage, replica, t)
                            began[nic], ended[nic] = at, end
                    onward = part + (1 if kind == "F" else -1)
                    if 0 <= onward < parts:
                        for t in range(job.tp):
                            src, dst = job.nic(stage, replica, t), job.nic(onward % job.pp, replica, t)
                            self.kinds[src, dst].add("pp")
                            there = self.fabric.send(end, src, dst, job.activation_bytes)
                            arrived[kind, onward, number] = max(arrived.get((kind, onward, number), 0.0), there)

    def _sharded(self, ready: dict[str, float], factor: float) -> float:
        """ZeRO-3: a layer's parameters are gathered before its use, one layer ahead; gradients are scattered."""
        job, group = self.job, list(self.job.nics)
        self._note(group, "dp")
        sizes = [job.layer_bytes * one for one in (job.head, *[1.0] * job.layers) if one]
        at, free = dict(ready), 0.0
        for passes in ("F", "B"):
            order = list(range(len(sizes))) if passes == "F" else list(range(len(sizes)))[::-1]
            asked = dict(at)
            gathered = self.fabric.ring(asked, sizes[order[0]], passes=1, channels=job.channels, free=free)
            for place, layer in enumerate(order):
                begin = {nic: max(at[nic], gathered) for nic in group}
                free = max(free, gathered)
                if place + 1 < len(order):
                    size = sizes[order[place + 1]]
                    gathered = self.fabric.ring(begin, size, passes=1, channels=job.channels, free=free)
                    free = gathered
                took = job.layer_s * factor * (1.0 if passes == "F" else BACKWARD)
                at = {nic: self._took(nic, begin[nic], took) for nic in group}
                if passes == "B":
                    free = self.fabric.ring(at, sizes[layer], passes=1, channels=job.channels, free=free)
        reduced = {nic: max(at[nic], free) for nic in group}
        ready.update({nic: self._took(nic, reduced[nic], job.optimizer_s) for nic in group})
        return free

    def _experts(self, ready: dict[str, float], factor: float) -> float:
        """A mixture of experts: tokens go to their experts and come back in every layer, both ways (GShard)."""
        job = self.job
        groups = [list(job.nics[at : at + job.ep]) for at in range(0, len(job.nics), job.ep)]
        at, began = dict(ready), dict(ready)
        for passes in ("F", "B"):
            took = job.layer_s * factor * (1.0 if passes == "F" else BACKWARD) / 2
            began = dict(at)
            for _ in range(job.layers):
                for group in groups:
                    shares = self.rng.dirichlet(np.full(job.ep, 8.0), job.ep)
                    for sizes in (shares * job.activation_bytes, shares.T * job.activation_bytes):
                        computed = {nic: self._took(nic, at[nic], took) for nic in group}
                        done, pairs = self.fabric.exchange(computed, sizes, relayed=job.relayed)
                        at.update(done)
                        for pair in pairs:
                            self.kinds[pair].add("ep")
        reduced = self._synchronise(list(job.nics), began, at)
        if job.ep < len(job.nics):
            for place in range(job.ep):
                holders = list(job.nics[place :: job.ep])
                self._note(holders, "dp")
                end = self.fabric.ring({nic: reduced[nic] for nic in holders}, job.layer_bytes * job.layers, passes=2,
                                       channels=job.channels)  # fmt: skip
                reduced.update({nic: max(end, reduced[nic]) for nic in holders})
        ready.update({nic: self._took(nic, reduced[nic], job.optimizer_s) for nic in job.nics})
        return max(reduced.values())

    def _ring(self, ready: dict[str, float], factor: float) -> float:
        """Ring attention: blocks of keys and values go around while each rank attends to the one it has."""
        job = self.job
        groups = [list(job.nics[at : at + job.cp]) for at in range(0, len(job.nics), job.cp)]
        at, began = dict(ready), dict(ready)
        for passes in ("F", "B"):
            size = job.activation_bytes * (1.0 if passes == "F" else 2.0)
            took = job.layer_s * factor * (1.0 if passes == "F" else BACKWARD) / job.cp
            began = dict(at)
            for _ in range(job.layers):
                for group in groups:
                    for _ in range(job.cp - 1 if passes == "F" else job.cp):
                        self._pass_on(group, at, took, size)
                    if passes == "F":
                        at.update({nic: self._took(nic, at[nic], took) for nic in group})
        reduced = self._synchronise(list(job.nics), began, at)
        ready.update({nic: self._took(nic, reduced[nic], job.optimizer_s) for nic in job.nics})
        return max(reduced.values())

    def _pass_on(self, group: list[str], at: dict[str, float], took: float, size: float) -> None:
        """Each rank computes on its block and passes it on meanwhile."""
        there = {}
        for place, src in enumerate(group):
            dst = group[(place + 1) % len(group)]
            there[dst] = self.fabric.send(at[src], src, dst, size, channels=self.job.channels)
            self.kinds[src, dst].add("cp")
        at.update({nic: max(self._took(nic, at[nic], took), there[nic]) for nic in group})


def _at(share: float, began: float, ended: float) -> float:
    """Return when a share of something is done; of what never ends, never."""
    return began + share * (ended - began) if math.isfinite(ended) else ended
