"""When each job runs on which hosts: starts, stops, restarts, and the allocations between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmprism_tasks.settings.schema import number, text
from llmprism_tasks.simulate.scenario.sections import NO_END_S, indices
from llmprism_tasks.simulate.scenario.training_job import Job


@dataclass(frozen=True)
class Life:
    """When a job is there; jobs without a `[[lives]]` of theirs run before, during and after the data."""

    job: str = text("", reason="the job")
    start_s: float = number(
        0.0,
        unit="s",
        low=0,
        high=NO_END_S,
        reason="when its first process comes up, after the run's start; 0: before it",
    )
    end_s: float = number(
        NO_END_S, unit="s", low=0, high=NO_END_S, reason="it stops with the step that is under way then"
    )


@dataclass(frozen=True)
class Restart:
    """A job stops and comes back, on other hosts or with more replicas; several may follow each other."""

    job: str = text("", reason="the job")
    at_s: float = number(60.0, unit="s", low=0, high=NO_END_S, reason="when it stops, after the run's start")
    pause_s: float = number(10.0, unit="s", low=0, high=NO_END_S, reason="until its first process comes up again")
    stop: str = text(
        "crash",
        choices=("crash", "hang", "in_order"),
        reason="crash: all at once; hang: one rank for good, the others when they wait for it, and the job keeps its "
        "GPUs; in_order: with the step that is under way",
    )
    rank: int = number(0, unit="rank", low=0, high=10**6, reason="who hangs, in the middle of a backward pass")
    hosts: tuple[int, ...] = indices("the hosts it comes back on; the same when empty")
    dp: int = number(0, unit="replicas", low=0, high=4096, reason="data-parallel degree from then on; 0: the same")


@dataclass(frozen=True)
class Allocation:
    """A job on its hosts, from one start to the next stop; times in seconds after the run's start.

    Attributes
    ----------
    job : with the hosts and the layout of this allocation
    index : the job's place in the scenario
    number : how many allocations came before
    start_s : when its first process comes up; 0 if it ran before
    end_s : when it is told to stop, crashes or hangs
    crash : whether it stops at once; else with the step that is under way
    left_s : when it leaves its GPUs, if that is later
    hanging : the rank that hangs and lets it stop, or -1
    """

    job: Job
    index: int
    number: int
    start_s: float = 0.0
    end_s: float = NO_END_S
    crash: bool = False
    left_s: float = 0.0
    hanging: int = -1

    @property
    def permanent(self) -> bool:
        """Whether it runs before, during and after any data."""
        return self.start_s == 0 and self.end_s == NO_END_S


def allocations(jobs: Sequence[Job], lives: Sequence[Life], restarts: Sequence[Restart]) -> list[Allocation]:
    """Return all allocations, job by job and in the order of time."""
    return [allocation for index, job in enumerate(jobs) for allocation in _allocations_of(index, job, lives, restarts)]


def _allocations_of(index: int, job: Job, lives: Sequence[Life], restarts: Sequence[Restart]) -> Iterator[Allocation]:
    life = next((life for life in lives if life.job == job.name), Life(job=job.name))
    number, start_s = 0, life.start_s
    for restart in sorted((r for r in restarts if r.job == job.name), key=lambda restart: restart.at_s):
        back_s = restart.at_s + restart.pause_s
        left_s, hanging = (back_s, restart.rank) if restart.stop == "hang" else (restart.at_s, -1)
        yield Allocation(job, index, number, start_s, restart.at_s, restart.stop != "in_order", left_s, hanging)
        job = dataclasses.replace(job, hosts=restart.hosts or job.hosts, dp=restart.dp or job.dp)
        number, start_s = number + 1, back_s
    yield Allocation(job, index, number, start_s, life.end_s)
