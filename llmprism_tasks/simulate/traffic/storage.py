"""What jobs read from storage and write to it while they train."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.simulate.arrays import Indices
from llmprism_tasks.simulate.scenario.scenario import Scenario
from llmprism_tasks.simulate.scenario.surroundings import Habit
from llmprism_tasks.simulate.steps.job_model import JobModel
from llmprism_tasks.simulate.traffic.bursts import bursts, in_chunks, port, server, together
from llmprism_tasks.simulate.traffic.runs import Run, step_ends
from llmprism_tasks.simulate.traffic.startup import OBJECT_BYTES, STATE_BYTES, job_nics
from llmprism_tasks.simulate.workload.message_sizes import PARAMETER_BYTES

READ_SPREAD = 0.3  # standard deviation of the logarithm of what a replica reads
ASKING_BYTES = 250


def storage_bursts(scenario: Scenario, run: Run, *, seed: int) -> pl.DataFrame:
    """Return the reads and checkpoints of a whole run."""
    habit = scenario.habit(run.model.job.name)
    ended, _ = step_ends(run)
    rng = np.random.default_rng([seed, abs(int(run.start_ns[0])), *run.model.job.name.encode()])
    made = together([_reads(scenario, run, habit, rng), _checkpoints(scenario, run.model, ended[run.saves])])
    return made.filter((pl.col("start_ns") >= run.begin_ns) & (pl.col("start_ns") < run.end_ns))


def _servers(scenario: Scenario, nics: Indices) -> Indices:
    return np.asarray(server(scenario.fabric, 0) + nics % scenario.storage.servers)


def _reads(scenario: Scenario, run: Run, habit: Habit, rng: np.random.Generator) -> pl.DataFrame:
    """Let the first rank of each replica ask for samples at any time of a step, and get them."""
    if not habit.read_mb:
        return together([])
    job = run.model.job
    readers = job_nics(scenario, job).reshape(job.pp, -1, job.tp)[0, :, 0]
    shape = (len(run.start_ns) - 1, len(readers))
    length = np.diff(run.start_ns)[:, None]
    asked = (run.start_ns[:-1, None] + rng.random(shape) * length).astype(np.int64).ravel()
    size = habit.read_mb * 1e6 * np.exp(READ_SPREAD * rng.standard_normal(shape)).ravel()
    dst = np.broadcast_to(readers, shape).ravel()
    src, bps = _servers(scenario, dst), scenario.storage.gbps * 1e9
    return together(
        [
            bursts(dst, src, asked, np.full(len(dst), ASKING_BYTES), bps=bps, src_port=port(dst, src, "data")),
            bursts(src, dst, asked + 500_000, size, bps=bps, src_port=port(src, dst, "data")),
        ]
    )


def _checkpoints(scenario: Scenario, model: JobModel, begun_ns: Indices) -> pl.DataFrame:
    """Let every rank write its share of the optimizer's state, and the first replica's ranks the weights, too."""
    job, nics = model.job, job_nics(scenario, model.job)
    replica = np.arange(job.ranks) // job.tp % job.units
    size = model.parameters * (STATE_BYTES / job.units + PARAMETER_BYTES * (replica == 0))
    src, dst, piece, index = in_chunks(nics, _servers(scenario, nics), size, OBJECT_BYTES)
    bps = scenario.storage.gbps * 1e9
    after = (index * OBJECT_BYTES * 8e9 / bps * 1.08).astype(np.int64)
    start_ns = (begun_ns[:, None] + after).ravel()
    times = len(begun_ns)
    src, dst = np.tile(src, times), np.tile(dst, times)
    return bursts(src, dst, start_ns, np.tile(piece, times), bps=bps, src_port=port(src, dst, "checkpoint"))
