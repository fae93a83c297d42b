"""Where a router sends tokens, and how much work that makes for the experts of each rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.arrays import Indices, Reals
from llmprism_tasks.simulate.network.queue_pairs import Connections
from llmprism_tasks.simulate.network.rank_layout import coordinates, groups, lanes
from llmprism_tasks.simulate.scenario.training_job import Job
from llmprism_tasks.simulate.workload.message_sizes import PARAMETER_BYTES, micro_batch_tokens
from llmprism_tasks.simulate.workload.operations import Launch, Program

LASTING_PREFERENCE = 0.8  # how far the experts' popularity stays the same over steps; the square is of the variance
OWN_PREFERENCE = 0.3  # how far one rank's tokens differ from the others' in their experts, of router_imbalance


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


def route(
    job: Job,
    connections: Connections,
    stage: int,
    program: Program,
    *,
    steps: int,
    rng: np.random.Generator,
    preference: Reals,
) -> Routing:
    """Draw where tokens go: some ranks' experts are popular with all ranks, and each rank differs somewhat.

    Popularity is log-normal; with `router_imbalance` 0 all are sent the same. Sizes are whole tokens. `preference` is
    the lasting part of popularity, normal, of shape (pp, chunks x layers of a chunk, ep).
    """
    calls = sorted({op.load for op in program if isinstance(op, Launch) and op.load >= 0})
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
    lasting = preference[stage, layer][None, :, None, None, None]
    popular = LASTING_PREFERENCE * lasting + np.sqrt(1 - LASTING_PREFERENCE**2) * common
    weight = np.exp(job.router_imbalance * (popular + OWN_PREFERENCE * own))
    share = weight / weight.sum(axis=-1, keepdims=True)  # of groups, sources, tp, destinations
    tokens = np.floor(share * micro_batch_tokens(job) * job.experts_per_token)
    payload = np.floor(tokens * job.hidden * PARAMETER_BYTES / lanes(job, "ep"))
    where: tuple[Indices, ...] = (src[here] // job.ep, src[here] % job.ep, tp[here], dst[here] % job.ep)
    received = share.sum(axis=3).mean(axis=3).reshape(steps, len(calls), job.units)
    return Routing(at, payload[:, :, *where], received)
