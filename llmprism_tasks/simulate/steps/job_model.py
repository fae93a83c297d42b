"""The model of a job: what stays the same as long as the job runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.arrays import Indices, Reals
from llmprism_tasks.simulate.network.link_shares import fair_rates
from llmprism_tasks.simulate.network.queue_pairs import Connections, connect
from llmprism_tasks.simulate.network.rank_layout import coordinates
from llmprism_tasks.simulate.scenario.scenario import Scenario
from llmprism_tasks.simulate.scenario.training_job import Job
from llmprism_tasks.simulate.steps.jitter import GPU_JITTER, Jitter, draw
from llmprism_tasks.simulate.workload.fsdp import sharded_program
from llmprism_tasks.simulate.workload.megatron import megatron_program
from llmprism_tasks.simulate.workload.message_sizes import parameters
from llmprism_tasks.simulate.workload.operations import Program


@dataclass(frozen=True)
class JobModel:
    """What stays the same for a job as long as it runs.

    Attributes
    ----------
    programs : what the ranks of each pp_stage do in a cycle
    gpu : each rank's compute factor, about 1, shape (pp, units, tp)
    rates : bits per second of each use's queue pairs, with healthy switches
    preference : how popular experts are for good, as in `expert_routing.route`
    """

    job: Job
    connections: Connections
    programs: tuple[Program, ...]
    gpu: Reals
    rates: Mapping[str, Reals]
    preference: Reals

    @property
    def parameters(self) -> float:
        """Parameters that a GPU of the largest pp_stage updates or holds, were they not sharded."""
        return max(parameters(self.job, stage) for stage in range(self.job.pp))

    def jitter(self, steps: int, rng: np.random.Generator) -> Jitter:
        """Draw the random factors of that many steps."""
        return draw(self.job, self.connections, self.programs, steps, rng, self.preference)


def job_model(scenario: Scenario, index: int, seed: int) -> JobModel:
    """Build what stays the same for a scenario's job."""
    job = scenario.jobs[index]
    connections = connect(scenario.fabric, job, seed)
    rng = np.random.default_rng([seed, index])

    def sharing_group(use: str) -> Indices:
        """Number the queue pairs that send at the same time alike."""
        pairs = connections.by_use[use]
        if use != "pp":
            return np.zeros(len(pairs), dtype=np.int64)
        return coordinates(job, pairs.src_rank)[2] * job.pp + coordinates(job, pairs.dst_rank)[2]

    return JobModel(
        job=job,
        connections=connections,
        programs=tuple(sharded_program(job) if job.sharded else megatron_program(job, s) for s in range(job.pp)),
        gpu=1 + GPU_JITTER * rng.standard_normal((job.pp, job.units, job.tp)),
        rates={
            use: fair_rates(scenario.fabric, pairs, sharing_group(use)) for use, pairs in connections.by_use.items()
        },
        preference=rng.standard_normal((job.pp, job.layers // job.pp, job.ep)),
    )
