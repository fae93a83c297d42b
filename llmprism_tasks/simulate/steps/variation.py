"""How a job's steps vary beyond the jitter of operations: costs of packed sequences, pauses, drift."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from llmprism_tasks.simulate.arrays import Reals
from llmprism_tasks.simulate.network.rank_layout import coordinates
from llmprism_tasks.simulate.scenario.surroundings import Habit
from llmprism_tasks.simulate.scenario.training_job import Job
from llmprism_tasks.simulate.steps.jitter import Jitter

SHORTEST_BATCH = 0.2  # of the mean
HANG_FACTOR = 1e8  # a pass of a millisecond would take a day


@dataclass(frozen=True)
class Hang:
    """A rank that hangs: in which cycle, and after which ratio of it."""

    cycle: int
    done: float
    rank: int


def with_variation(jitter: Jitter, job: Job, habit: Habit, rng: np.random.Generator) -> Jitter:
    """Stretch computing as a job's habit says; more steps begin with the same ones.

    Sequences packed to one length send as much as others, but the longer they are the more attention costs. Such a
    micro-batch costs the same on all pp_stages and in both directions, and each replica has others. A pause hits one
    operation of one rank.
    """
    steps, streams = len(jitter.update), rng.spawn(3)
    forward, backward = jitter.forward, jitter.backward
    if habit.cost_spread:
        drawn = 1 + habit.cost_spread * streams[0].standard_normal((steps, 1, job.units, job.micro_batches))
        cost = np.tile(np.maximum(drawn, SHORTEST_BATCH), (1, 1, 1, job.chunks))
        forward, backward = forward * cost, backward * cost
    if habit.pauses:
        pause = habit.pause_ms / (job.forward_ms / job.chunks)
        backward = backward + pause / job.backward_ratio * _struck(streams[1], backward, habit.pauses)
    slower = 1 + habit.drift / 100 * np.arange(steps)[:, None, None, None]
    return dataclasses.replace(jitter, forward=forward * slower, backward=backward * slower)


def with_hang(jitter: Jitter, job: Job, hang: Hang) -> Jitter:
    """Let a rank never end one of its backward passes; all that waits for it never happens."""
    _, (unit,), (stage,) = coordinates(job, np.array([hang.rank]))
    backward = jitter.backward.copy()
    backward[hang.cycle, stage, unit, int(hang.done * backward.shape[3])] *= HANG_FACTOR
    return dataclasses.replace(jitter, backward=backward)


def _struck(rng: np.random.Generator, operations: Reals, per_step: float) -> Reals:
    """Mark as many operations of each step as there are pauses."""
    each = operations[0].size
    return np.asarray((rng.random(operations.shape) < per_step / each).astype(np.float64))
