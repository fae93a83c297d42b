"""When each rank of a job computes and sends, step by step, from the order of its operations alone."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from accuracy.second_source.fabric import Fabric, double_tree
from accuracy.second_source.schedules import Operation, gpipe, operations, zero_bubble
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

    evaluations: list[tuple[float, float]] = field(default_factory=list)
    """Start and end of each pause for an evaluation, s."""

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
            "gpipe": self._pipeline,
            "zero_bubble": self._pipeline,
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
                self.evaluations.append((max(ready.values()), max(ready.values()) + job.pause_s))
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
        """1F1B, interleaved if a stage has several parts of the model (Narayanan et al. 2021, figure 4), or another
        schedule."""
        job = self.job
        began: dict[str, float] = {}
        ended: dict[str, float] = {}
        together = max(job.ep, job.cp)
        for first in range(0, job.dp, together):
            lengths = factor * np.exp(self.rng.normal(0.0, job.lengths, job.micro_batches))
            replicas = range(first, first + together)
            self._replicas(replicas, lengths * job.layers * job.layer_s / job.chunks, ready, (began, ended))
        last = 0.0
        for stage in range(job.pp):
            for tp_index in range(job.tp):
                group = [job.nic(stage, replica, tp_index) for replica in range(job.dp)]
                reduced = self._synchronise(group, began, ended)
                self._reduce_experts(group, reduced)
                last = max(last, *reduced.values())
                ready.update(self._updated(group, reduced))
        return last

    def _operations(self, stage: int) -> list[Operation]:
        job = self.job
        if job.schedule == "gpipe":
            return gpipe(job.micro_batches)
        if job.schedule == "zero_bubble":
            return zero_bubble(stage, job.pp, job.micro_batches)
        return operations(stage, job.pp, job.chunks, job.micro_batches)

    def _replicas(
        self,
        replicas: range,
        forward: np.ndarray,
        ready: dict[str, float],
        backwards: tuple[dict[str, float], dict[str, float]],
    ) -> None:
        """Run one pipeline, or those of replicas that work together in each pass; notes when each NIC's last backward
        pass began and ended."""
        job, (began, ended) = self.job, backwards
        queues = [self._operations(stage) for stage in range(job.pp)]
        ranks = [[[job.nic(stage, r, t) for r in replicas] for t in range(job.tp)] for stage in range(job.pp)]
        arrived: dict[Operation, float] = {}
        free = [max(ready[nic] for group in groups for nic in group) for groups in ranks]
        parts = job.pp * job.chunks
        while any(queues):
            for stage, queue in enumerate(queues):
                while queue:
                    kind, chunk, number = queue[0]
                    part = chunk * job.pp + stage
                    own = kind == "W" or part == (0 if kind == "F" else parts - 1)
                    if not own and (kind, part, number) not in arrived:
                        break
                    queue.pop(0)
                    at = max(free[stage], 0.0 if own else arrived[kind, part, number])
                    end = self._pass(ranks[stage], at, float(forward[number]), kind)
                    free[stage] = end
                    if not queue:
                        for nic in (nic for group in ranks[stage] for nic in group):
                            began[nic], ended[nic] = at, end
                    onward = part + (1 if kind == "F" else -1)
                    if kind != "W" and 0 <= onward < parts:
                        arrived[kind, onward, number] = self._onward(ranks[stage], ranks[onward % job.pp], end)

    def _onward(self, groups: list[list[str]], others: list[list[str]], at: float) -> float:
        """Send what a pass has made to the same ranks of another stage; returns when all is there."""
        last = at
        for group, other in zip(groups, others, strict=True):
            for src, dst in zip(group, other, strict=True):
                self.kinds[src, dst].add("pp")
                last = max(last, self.fabric.send(at, src, dst, self.job.activation_bytes))
        return last

    def _pass(self, groups: list[list[str]], at: float, forward: float, kind: str) -> float:
        """Compute a micro-batch on a stage, layer by layer where ranks exchange tokens or blocks of a sequence."""
        job = self.job
        passes = {"F": 1.0, "B": 1.0 if job.schedule == "zero_bubble" else BACKWARD, "W": 1.0}[kind]
        if kind == "W" or len(groups[0]) == 1:
            return max(self._took(nic, at, passes * forward) for group in groups for nic in group)
        layers = max(1, job.layers // job.chunks)
        done = []
        for group in groups:
            now = dict.fromkeys(group, at)
            for _ in range(layers):
                if job.ep > 1:
                    self._through_experts(group, now, passes * forward / layers / 2, job.block_bytes)
                    continue
                for _ in range(job.cp - 1):
                    self._pass_on(group, now, passes * forward / layers / job.cp, job.block_bytes * passes)
                now.update({nic: self._took(nic, now[nic], passes * forward / layers / job.cp) for nic in group})
            done.append(max(now.values()))
        return max(done)

    def _through_experts(self, group: list[str], at: dict[str, float], took: float, size: float) -> None:
        """Send tokens to their experts and back, with half of a layer's computing before each way."""
        shares = self.rng.dirichlet(np.full(len(group), 8.0), len(group))
        for sizes in (shares, shares.T):
            computed = {nic: self._took(nic, at[nic], took) for nic in group}
            done, pairs = self.fabric.exchange(computed, sizes * size, relayed=self.job.relayed)
            at.update(done)
            for pair in pairs:
                self.kinds[pair].add("ep")

    def _reduce_experts(self, group: list[str], reduced: dict[str, float]) -> None:
        """All-reduce the gradients of experts among those that hold the same."""
        job = self.job
        if job.ep == 1 or job.ep == len(group):
            return
        for place in range(job.ep):
            holders = group[place :: job.ep]
            self._note(holders, "dp")
            end = self.fabric.ring({nic: reduced[nic] for nic in holders}, job.layer_bytes * job.layers, passes=2,
                                   channels=job.channels)  # fmt: skip
            reduced.update({nic: max(end, reduced[nic]) for nic in holders})

    def _sharded(self, ready: dict[str, float], factor: float) -> float:
        """ZeRO-3: a layer's parameters are gathered before its use, one layer ahead; gradients are scattered. Where
        groups of ranks hold all of them, each share of the gradients is then reduced among the groups (HSDP)."""
        job = self.job
        shard = job.shard or len(job.nics)
        groups = [list(job.nics[first : first + shard]) for first in range(0, len(job.nics), shard)]
        holders = [list(job.nics[place::shard]) for place in range(shard if len(groups) > 1 else 0)]
        for group in [*groups, *holders]:
            self._note(group, "dp")
        sizes = [job.layer_bytes * one for one in (job.head, *[1.0] * job.layers) if one]
        at, free = dict(ready), dict.fromkeys(range(len(groups)), 0.0)
        for passes in ("F", "B"):
            order = list(range(len(sizes))) if passes == "F" else list(range(len(sizes)))[::-1]
            gathered = {
                number: self._ring_of(group, at, sizes[order[0]], 1, free[number])
                for number, group in enumerate(groups)
            }
            for place, layer in enumerate(order):
                for number, group in enumerate(groups):
                    begin = {nic: max(at[nic], gathered[number]) for nic in group}
                    free[number] = max(free[number], gathered[number])
                    if place + 1 < len(order):
                        free[number] = self._ring_of(group, begin, sizes[order[place + 1]], 1, free[number])
                        gathered[number] = free[number]
                    took = job.layer_s * factor * (1.0 if passes == "F" else BACKWARD)
                    at.update({nic: self._took(nic, begin[nic], took) for nic in group})
                    if passes == "B":
                        free[number] = self._ring_of(group, at, sizes[layer], 1, free[number])
                if passes == "B" and holders:
                    scattered = max(free.values())
                    ends = [self._ring_of(group, at, sizes[layer] / shard, 2, scattered) for group in holders]
                    free = dict.fromkeys(free, max(ends))
        last = max(free.values())
        reduced = {nic: max(at[nic], last) for nic in job.nics}
        ready.update({nic: self._took(nic, reduced[nic], job.optimizer_s) for nic in job.nics})
        return last

    def _ring_of(self, group: list[str], at: dict[str, float], size: float, passes: int, free: float) -> float:
        """Run a ring collective of some ranks when they are ready; returns its end."""
        ready = {nic: at[nic] for nic in group}
        return self.fabric.ring(ready, size, passes=passes, channels=self.job.channels, free=free)

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
                    self._through_experts(group, at, took, job.activation_bytes)
        reduced = self._synchronise(list(job.nics), began, at)
        self._reduce_experts(list(job.nics), reduced)
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
