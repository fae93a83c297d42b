"""What varies from step to step: how long operations take, how long samples are, where tokens go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.arrays import Reals
from llmprism_tasks.simulate.network.queue_pairs import Connections
from llmprism_tasks.simulate.network.rank_layout import groups
from llmprism_tasks.simulate.scenario.training_job import Job
from llmprism_tasks.simulate.steps.expert_routing import Routing, route
from llmprism_tasks.simulate.workload.operations import Launch, Post, Program, Transfer

OPERATION_JITTER = 0.01  # standard deviation of one operation's time, as a ratio
GPU_JITTER = 0.004  # standard deviation of a GPU's lasting speed, as a ratio


@dataclass(frozen=True)
class Jitter:
    """Random factors about 1; the first axis is the step.

    Attributes
    ----------
    update : shape (steps, pp, units)
    forward, backward : shape (steps, pp, units, chunks x micro-batches)
    transfers : shape (steps, transfers, units), and `transfer_at` each transfer's place there
    launches : by use and pp_stage, shape (steps, launches, groups or units[, tp]); `launch_at` gives the places there
    lengths : of micro-batches, over their mean, shape (steps or 1, units, micro-batches)
    routing : by pp_stage
    """

    update: Reals
    forward: Reals
    backward: Reals
    transfers: Reals
    transfer_at: Mapping[Transfer, int]
    launches: Mapping[tuple[str, int], Reals]
    launch_at: Mapping[tuple[str, int], int]
    lengths: Reals
    routing: Sequence[Routing]

    def of_launch(self, op: Launch, stage: int) -> Reals:
        """Return a launch's length over its mean, in each step."""
        return np.asarray(self.launches[op.use, stage][:, self.launch_at[op.key, stage]])

    def of_transfer(self, transfer: Transfer) -> Reals:
        """Return a transfer's length over its mean, in each step."""
        return np.asarray(self.transfers[:, self.transfer_at[transfer]])

    def length(self, micro_batch: int) -> Reals:
        """Return how long a micro-batch is, over the mean, shape (steps or 1, units)."""
        return np.asarray(self.lengths[:, :, micro_batch % self.lengths.shape[2]])

    def routed(self, call: int, stage: int) -> Reals:
        """Return the bytes that a call of the router sends, shape (steps, rows)."""
        return np.asarray(self.routing[stage].payload[:, self.routing[stage].calls[call]])

    def received(self, call: int, stage: int) -> Reals:
        """Return the load that a call of the router puts on experts, 1 on average, shape (steps, units)."""
        return np.asarray(self.routing[stage].received[:, self.routing[stage].calls[call]])


def draw(
    job: Job,
    connections: Connections,
    programs: Sequence[Program],
    steps: int,
    rng: np.random.Generator,
    preference: Reals,
) -> Jitter:
    """Draw the random factors of that many steps; more steps begin with the same ones.

    `preference` is how popular the experts of each rank are for good, as in `route`.
    """
    posted = sorted({t for program in programs for op in program if isinstance(op, Post) for t in op.transfers})
    by_site = _by_site(programs)
    streams = iter(rng.spawn(5 + len(by_site) + len(programs)))

    def factors(*shape: int) -> Reals:
        return np.asarray(1 + OPERATION_JITTER * next(streams).standard_normal((steps, *shape)))

    passes = job.chunks * job.micro_batches
    return Jitter(
        forward=factors(job.pp, job.units, passes),
        backward=factors(job.pp, job.units, passes),
        update=factors(job.pp, job.units),
        transfers=factors(len(posted), job.units),
        transfer_at={transfer: at for at, transfer in enumerate(posted)},
        # A network is never faster than its rate.
        launches={site: np.maximum(factors(len(keys), *_width(job, site[0])), 1) for site, keys in by_site.items()},
        launch_at={(key, stage): at for (_, stage), keys in by_site.items() for at, key in enumerate(keys)},
        routing=[
            route(job, connections, stage, program, rng=next(streams), steps=steps, preference=preference)
            for stage, program in enumerate(programs)
        ],
        lengths=_lengths(job, steps, next(streams)),
    )


def _by_site(programs: Sequence[Program]) -> dict[tuple[str, int], list[str]]:
    """Return the keys of all launches by use and pp_stage."""
    keys: dict[tuple[str, int], list[str]] = {}
    for stage, program in enumerate(programs):
        for op in program:
            if isinstance(op, Launch):
                keys.setdefault((op.use, stage), []).append(op.key)
    return keys


def _lengths(job: Job, steps: int, rng: np.random.Generator) -> Reals:
    if not job.sequence_spread:
        return np.ones((1, job.units, job.micro_batches))
    drawn = job.sequence_spread * rng.standard_normal((steps, job.units, job.micro_batches))
    tokens = job.micro_batch * job.sequence
    return np.asarray(np.maximum(np.rint(tokens * np.exp(drawn - job.sequence_spread**2 / 2)), 1) / tokens)


def _width(job: Job, use: str) -> tuple[int, ...]:
    return (job.units,) if use in ("cp", "ep") else (len(groups(job, use)), job.tp)
