"""A scenario: all that a simulation needs but its seed and its span."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmprism_tasks.simulate.scenario.collector import Collector
from llmprism_tasks.simulate.scenario.fabric import Fabric
from llmprism_tasks.simulate.scenario.faults import Fault
from llmprism_tasks.simulate.scenario.lifecycle import Allocation, Life, Restart, allocations
from llmprism_tasks.simulate.scenario.surroundings import Background, Habit, Storage, Tenant
from llmprism_tasks.simulate.scenario.training_job import Job


@dataclass(frozen=True)
class Scenario:
    """Everything a simulation needs but its seed and span."""

    name: str
    fabric: Fabric
    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...] = ()
    lives: tuple[Life, ...] = ()
    restarts: tuple[Restart, ...] = ()
    habits: tuple[Habit, ...] = ()
    tenants: tuple[Tenant, ...] = ()
    storage: Storage = field(default_factory=Storage)
    background: Background = field(default_factory=Background)
    collector: Collector = field(default_factory=Collector)
    loop_minutes: int = 10

    @property
    def allocations(self) -> list[Allocation]:
        """Where each job is when."""
        return allocations(self.jobs, self.lives, self.restarts)

    def habit(self, job: str) -> Habit:
        """Return a job's habit."""
        return next((habit for habit in self.habits if habit.job == job), Habit(job=job))
