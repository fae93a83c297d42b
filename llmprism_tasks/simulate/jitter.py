"""What varies from step to step: how long operations take, and where a router sends tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.connections import Connections
from llmprism_tasks.simulate.fabric import Indices, Reals
from llmprism_tasks.simulate.jobs import Job
from llmprism_tasks.simulate.layout import coordinates, groups, lanes
from llmprism_tasks.simulate.operations import Launch, Post, Program, Transfer
from llmprism_tasks.simulate.sizes import PARAMETER_BYTES, micro_batch_tokens

OPERATION_JITTER = 0.01  # standard deviation of one operation's time, as a ratio
GPU_JITTER = 0.004  # standard deviation of a GPU's lasting speed, as a ratio
LASTING_TASTE = 0.8  # how far the experts' popularity is the same from step to step; the square is of the variance
OWN_TASTE = 0.3  # how far one rank's tokens differ from the others' in their choice of experts, of router_imbalance


@dataclass(frozen=True)
class Routing:
    """Where a router sends tokens in a pp_stage.

    Attributes
    ----------
    calls : place of each call on the axes below
    payload : bytes on each queue pair, shape (steps, calls, rows)
    received : tokens that each unit's experts get, over their mean, shape (steps, calls, units)
    """

    calls: Mapping[int, int]
    payload: Reals
    received: Reals


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
        return np.asarray(self.launches[op.use, stage][:, self.launch_at[op.key, stage]])

    def of_transfer(self, transfer: Transfer) -> Reals:
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
    taste: Reals,
) -> Jitter:
    """Draw the random factors of that many steps; more steps begin with the same ones.

    `taste` is how popular the experts of each rank are for good, as in `route`.
    """
    posted = sorted({t for program in programs for op in program if isinstance(op, Post) for t in op.transfers})
    launches = [[op for op in program if isinstance(op, Launch)] for program in programs]
    by_site: dict[tuple[str, int], list[str]] = {}
    for stage, several in enumerate(launches):
        for op in several:
            by_site.setdefault((op.use, stage), []).append(op.key)
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
            route(
                job,
                connections,
                stage,
                sorted({op.load for op in several if op.load >= 0}),
                steps,
                next(streams),
                taste,
            )
            for stage, several in enumerate(launches)
        ],
        lengths=_lengths(job, steps, next(streams)),
    )


def _lengths(job: Job, steps: int, rng: np.random.Generator) -> Reals:
    if not job.sequence_spread:
        return np.ones((1, job.units, job.micro_batches))
    drawn = job.sequence_spread * rng.standard_normal((steps, job.units, job.micro_batches))
    tokens = job.micro_batch * job.sequence
    return np.asarray(np.maximum(np.rint(tokens * np.exp(drawn - job.sequence_spread**2 / 2)), 1) / tokens)


def _width(job: Job, use: str) -> tuple[int, ...]:
    return (job.units,) if use in ("cp", "ep") else (len(groups(job, use)), job.tp)


def route(
    job: Job,
    connections: Connections,
    stage: int,
    calls: Sequence[int],
    steps: int,
    rng: np.random.Generator,
    taste: Reals,
) -> Routing:
    """Draw where tokens go: some ranks' experts are popular with all ranks, and each rank differs somewhat.

    Popularity is log-normal; with `router_imbalance` 0 all are sent the same. Sizes are whole tokens. `taste` is the
    lasting part of popularity, normal, of shape (pp, chunks x layers of a chunk, ep).
    """
    at = {call: place for place, call in enumerate(calls)}
    if not calls:
        return Routing(at, np.empty((steps, 0, 0)), np.empty((steps, 0, job.units)))
    members = groups(job, "ep")
    pairs = connections.by_use["ep"]
    tp, src, pp = coordinates(job, pairs.src_rank)
    _, dst, _ = coordinates(job, pairs.dst_rank)
    here = np.flatnonzero(pp == stage)
    liked = rng.spawn(2)
    shape = (steps, len(calls), len(members))
    common = liked[0].standard_normal((*shape, 1, 1, job.ep))
    own = liked[1].standard_normal((*shape, job.ep, job.tp, job.ep))
    layers = job.layers // (job.pp * job.chunks)
    layer = [call // layers // job.micro_batches * layers + call % layers for call in calls]
    lasting = taste[stage, layer][None, :, None, None, None]
    popular = LASTING_TASTE * lasting + np.sqrt(1 - LASTING_TASTE**2) * common
    weight = np.exp(job.router_imbalance * (popular + OWN_TASTE * own))
    share = weight / weight.sum(axis=-1, keepdims=True)  # of groups, sources, tp, destinations
    tokens = np.floor(share * micro_batch_tokens(job) * job.experts_per_token)
    payload = np.floor(tokens * job.hidden * PARAMETER_BYTES / lanes(job, "ep"))
    where: tuple[Indices, ...] = (src[here] // job.ep, src[here] % job.ep, tp[here], dst[here] % job.ep)
    received = share.sum(axis=3).mean(axis=3).reshape(steps, len(calls), job.units)
    return Routing(at, payload[:, :, *where], received)
