"""What faults do to a job: how much longer it computes, at what rates it sends, where it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.arrays import Indices, Reals
from llmprism_tasks.simulate.network.queue_pairs import QueuePairs
from llmprism_tasks.simulate.network.rank_layout import coordinates, host_and_gpu
from llmprism_tasks.simulate.scenario.faults import Fault, crosses
from llmprism_tasks.simulate.scenario.training_job import Job
from llmprism_tasks.simulate.steps.job_model import JobModel


@dataclass(frozen=True)
class Conditions:
    """What the faults of the moment leave: compute factors by (pp, units), and rates of each use's queue pairs."""

    slowdown: Reals
    rates: Mapping[str, Reals]


def conditions(model: JobModel, faults: Sequence[Fault], gpus_per_host: int) -> Conditions:
    """Apply faults to a job: TP peers compute in lock-step, and queue pairs are as fast as the worst they cross."""
    job, gpu = model.job, model.gpu.copy()
    for fault in faults:
        if fault.kind == "slow_gpu":
            (tp,), (unit,), (pp,) = coordinates(job, np.array([fault.rank]))
            gpu[pp, unit, tp] *= fault.factor
        elif fault.kind == "slow_stage":
            gpu[fault.pp_stage] *= fault.factor
    rates = {
        use: model.rates[use] * _rate_factors(job, pairs, faults, gpus_per_host)
        for use, pairs in model.connections.by_use.items()
    }
    return Conditions(slowdown=gpu.max(axis=2), rates=rates)


def affects(model: JobModel, fault: Fault) -> bool:
    """Tell whether a job feels a fault at all; one that has come back smaller may not have the rank any more."""
    if fault.job:
        return fault.job == model.job.name and fault.rank < model.job.ranks and fault.pp_stage < model.job.pp
    return any(crosses(fault, path) for pairs in model.connections.tables for path in pairs.path)


def pauses(job: Job, faults: Sequence[Fault], saves: Indices, chances: Reals) -> Reals:
    """Return how long each unit waits before the first forward of a step, seconds, shape (pp, steps, units).

    `chances`, shape (steps, 3), are random numbers below 1: whether a step stalls, and in which pp_stage and unit.
    """
    steps = len(chances)
    waits = np.zeros((job.pp, steps, job.units))
    chance, stage, unit = chances[:, 0], *(chances[:, 1:] * [job.pp, job.units]).astype(np.int64).T
    for fault in faults:
        if fault.kind == "checkpoint_stall":
            chosen = saves if len(saves) else np.arange(fault.steps - 1, steps, fault.steps)
            waits[:, chosen] += fault.pause_s
        elif fault.kind == "data_loader_stalls":
            struck = np.flatnonzero(chance < 1 / fault.steps)
            waits[stage[struck], struck, unit[struck]] += fault.pause_s
    return waits


def nic(job: Job, rank: int, gpus_per_host: int) -> int:
    """Return a rank's NIC, as host x gpus_per_host + gpu."""
    host, gpu = host_and_gpu(job, rank)
    return host * gpus_per_host + gpu


def _rate_factors(job: Job, pairs: QueuePairs, faults: Sequence[Fault], gpus_per_host: int) -> Reals:
    factors = np.ones(len(pairs))
    for fault in faults:
        if fault.kind in ("slow_nic", "link_flap"):
            end = nic(job, fault.rank, gpus_per_host)
            felt = (pairs.src == end) | (pairs.dst == end)
        elif fault.switch:
            felt = np.array([crosses(fault, path) for path in pairs.path], dtype=bool)
        else:
            continue
        factors = np.where(felt, np.minimum(factors, fault.factor), factors)
    return factors
