"""When each rank of a job computes and sends, step by step, from the order of its operations alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from accuracy.second_source.fabric import Fabric

BACKWARD = 2.0
"""How much longer the backward pass takes than the forward pass."""


@dataclass(frozen=True)
class Training:
    """A job. Rank r has `nics[r]`; tensor-parallel ranks are neighbours, then replicas, then stages (Megatron-LM).

    Attributes
    ----------
    schedule : "ddp", "1f1b" or "fsdp"
    layers : of a stage
    layer_s : forward time of a layer and a micro-batch, s
    layer_bytes : gradients of a layer on one rank
    bucket_bytes : of gradients that are reduced together
    activation_bytes : what a micro-batch sends to the next stage
    head : bytes of what comes once a step (embedding, head), as a ratio of a layer's
    unevenness : sigma of the logarithm of a step's computing, alike on all ranks
    lengths : sigma of the logarithm of a micro-batch's computing, for each replica its own
    jitter : sigma of the logarithm of an operation on one rank
    pause_every, pause_s : an evaluation after so many steps, so long
    slow : factors on the computing of ranks: rank, from s, to s, factor
    """

    name: str
    schedule: str
    nics: tuple[str, ...]
    start_s: float
    end_s: float
    tp: int = 1
    pp: int = 1
    micro_batches: int = 1
    layers: int = 8
    layer_s: float = 0.02
    layer_bytes: float = 8e6
    bucket_bytes: float = 25e6
    activation_bytes: float = 4e6
    head: float = 1.5
    channels: int = 2
    optimizer_s: float = 0.02
    overlap: bool = True
    sharded_optimizer: bool = False
    unevenness: float = 0.0
    lengths: float = 0.0
    jitter: float = 0.02
    pause_every: int = 0
    pause_s: float = 5.0
    slow: tuple[tuple[int, float, float, float], ...] = ()

    @property
    def dp(self) -> int:
        return len(self.nics) // (self.tp * self.pp)

    def place(self, rank: int) -> tuple[int, int, int]:
        """Return a rank's stage, replica and tensor-parallel index."""
        stage, rest = divmod(rank, self.dp * self.tp)
        return stage, *divmod(rest, self.tp)

    def nic(self, stage: int, replica: int, tp_index: int) -> str:
        return self.nics[(stage * self.dp + replica) * self.tp + tp_index]


@dataclass
class Run:
    """A job under way: what it did is noted here."""

    job: Training
    fabric: Fabric
    rng: np.random.Generator
    steps: list[tuple[int, float, float, float]] = field(default_factory=list)
    """Number, start, end and the end of the gradients' synchronisation, s."""

    kinds: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))

    def run(self) -> None:
        """Train until the job's end; the step under way then is not finished."""
        job, number = self.job, 0
        ready = dict.fromkeys(job.nics, job.start_s)
        one_step = {"ddp": self._replicated, "1f1b": self._pipeline, "fsdp": self._sharded}[job.schedule]
        while True:
            start = min(ready.values())
            factor = float(np.exp(self.rng.normal(0.0, job.unevenness)))
            kept = len(self.fabric.records)
            reduced = one_step(ready, factor)
            if max(ready.values()) > job.end_s:
                self.fabric.records[kept:] = [one for one in self.fabric.records[kept:] if one[1] <= job.end_s]
                return
            self.steps.append((number, start, max(ready.values()), reduced))
            number += 1
            if job.pause_every and number % job.pause_every == 0:
                ready.update({nic: at + job.pause_s for nic, at in ready.items()})

    def _took(self, nic: str, at: float, seconds: float) -> float:
        rank = self.job.nics.index(nic)
        for slow, begin, end, factor in self.job.slow:
            if slow == rank and begin <= at < end:
                seconds *= factor
        return at + seconds * float(np.exp(self.rng.normal(0.0, self.job.jitter)))

    def _note(self, group: list[str], kind: str) -> None:
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
            return dict(ended)
        self._note(group, "dp")
        for size, share in self._buckets():
            done = {n: began[n] + share * (ended[n] - began[n]) if job.overlap else ended[n] for n in group}
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
        """1F1B (Narayanan et al. 2021, figure 4)."""
        job = self.job
        began: dict[str, float] = {}
        ended: dict[str, float] = {}
        for replica in range(job.dp):
            lengths = factor * np.exp(self.rng.normal(0.0, job.lengths, job.micro_batches))
            self._replica(replica, lengths * job.layers * job.layer_s, ready, began, ended)
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
        began: dict[str, float],
        ended: dict[str, float],
    ) -> None:
        job, count = self.job, self.job.micro_batches
        queues = []
        for stage in range(job.pp):
            warm = min(job.pp - stage - 1, count)
            order = [("F", number) for number in range(warm)]
            for number in range(count - warm):
                order += [("F", warm + number), ("B", number)]
            queues.append(order + [("B", number) for number in range(count - warm, count)])
        arrived: dict[tuple[str, int, int], float] = {}
        free = [max(ready[job.nic(stage, replica, t)] for t in range(job.tp)) for stage in range(job.pp)]
        while any(queues):
            for stage, queue in enumerate(queues):
                while queue:
                    kind, number = queue[0]
                    first = (stage == 0) if kind == "F" else (stage == job.pp - 1)
                    if not first and (kind, stage, number) not in arrived:
                        break
                    queue.pop(0)
                    at = max(free[stage], 0.0 if first else arrived[kind, stage, number])
                    took = float(forward[number]) * (1.0 if kind == "F" else BACKWARD)
                    end = max(self._took(job.nic(stage, replica, t), at, took) for t in range(job.tp))
                    free[stage] = end
                    for t in range(job.tp):
                        nic = job.nic(stage, replica, t)
                        if kind == "B" and number == count - 1:
                            began[nic], ended[nic] = at, end
                    onward = stage + (1 if kind == "F" else -1)
                    if 0 <= onward < job.pp:
                        for t in range(job.tp):
                            src, dst = job.nic(stage, replica, t), job.nic(onward, replica, t)
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
