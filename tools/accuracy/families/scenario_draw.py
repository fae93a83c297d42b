"""Drawing a scenario: what a seed decides about a platform's jobs, within what a family is about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

Content: TypeAlias = dict[str, Any]
"""A scenario as its file would hold it, or one table of it."""

MODELS = {
    "1b": (16, 2048),
    "3b": (32, 2560),
    "7b": (32, 4096),
    "13b": (40, 5120),
    "22b": (48, 6144),
}
"""Layers and width of dense models; layers divide by 8 pp_stages, which keeps every drawn layout possible."""

GPUS = 8
"""GPUs of a host. A ring goes in and out of a host by one NIC, so a group with several ranks there has a ring, or
channel, for each: as many as NCCL makes, and so no NIC of a job is silent."""

BACKWARD_RATIO = 2.0
"""What a backward pass computes, in forward passes: the simulator's default."""


class Draw:
    """The choices of one seed of one family."""

    def __init__(self, family: str, seed: int) -> None:
        self.rng = np.random.default_rng([seed, *family.encode()])
        self._next = 0

    def one_of(self, *values: Any) -> Any:
        """Return one of the values, each as likely as the others."""
        return values[int(self.rng.integers(len(values)))]

    def between(self, low: float, high: float) -> float:
        """Return a number between bounds, to three digits after the point."""
        return round(float(self.rng.uniform(low, high)), 3)

    def shuffled(self, values: Sequence[Any]) -> list[Any]:
        """Return the values in a drawn order."""
        return [values[index] for index in self.rng.permutation(len(values))]

    def hosts(self, count: int) -> list[int]:
        """Return the next hosts that nobody has yet, in a row."""
        self._next += count
        return list(range(self._next - count, self._next))

    def fabric(self, spare: int = 0) -> Content:
        """Return a fabric for all hosts given out so far and some that nobody uses."""
        hosts = self._next + spare
        return {"hosts": hosts, "hosts_per_leaf": self.one_of(4, 8, 16), "spines": self.one_of(2, 4, 8)}

    def dense(
        self, name: str, hosts: int | list[int], step_s: tuple[float, float] = (3.0, 6.0), **fixed: Any
    ) -> Content:
        """Return a job of a drawn model and layout on hosts, whose steps compute for a drawn time.

        Parameters
        ----------
        hosts : which hosts, or how many of the next ones
        step_s : bounds of the time that a step computes
        fixed : keys that are not drawn; any that a job has
        """
        places = self.hosts(hosts) if isinstance(hosts, int) else hosts
        gpus = len(places) * (len(_spread(fixed["gpus"])) if "gpus" in fixed else GPUS)
        tp, pp = self._degrees(gpus, fixed)
        model = fixed.get("model") or self.one_of("3b", "7b", "13b")
        layers, hidden = MODELS[model]
        micro_batches = (
            fixed.get("micro_batches") or self.one_of(pp, 2 * pp, 4 * pp) if pp > 1 else self.one_of(1, 2, 4)
        )
        job = {
            "name": name,
            "model": model,
            "hosts": places,
            "tp": tp,
            "pp": pp,
            "dp": gpus // (tp * pp),
            "layers": layers,
            "hidden": hidden,
            "micro_batches": micro_batches,
            "channels": max(self.one_of(1, 2), GPUS // tp),
            "peer_channels": self.one_of(1, 2),
        }
        job |= fixed
        job.setdefault("forward_ms", self.forward_ms(job, self.between(*step_s)))
        return job

    def _degrees(self, gpus: int, fixed: Content) -> tuple[int, int]:
        ranks = gpus // (fixed.get("dp", 1) * fixed.get("cp", 1))
        layouts = [
            (tp, pp)
            for tp in ([fixed["tp"]] if "tp" in fixed else [4, 8])
            for pp in ([fixed["pp"]] if "pp" in fixed else [1, 2, 4])
            if ranks % (tp * pp) == 0 and ("dp" not in fixed or ranks == tp * pp)
        ]
        chosen: tuple[int, int] = self.one_of(*layouts)
        return chosen

    def forward_ms(self, job: Content, step_s: float) -> float:
        """Return how long a forward pass takes where a step's micro-batches, and its bubble, compute for that long."""
        passes = int(job["micro_batches"]) + int(job["pp"]) - 1
        return round(1000 * step_s / ((1 + BACKWARD_RATIO) * passes), 2)


def _spread(indices: str | list[int]) -> list[int]:
    return list(_indices(indices)) if isinstance(indices, str) else indices


def _indices(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
