"""When each job is where: its stays, one for each time that it starts or comes back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmprism_tasks.simulate.jobs import Job, misfit
from llmprism_tasks.simulate.sections import NEVER, wrong
from llmprism_tasks.simulate.surroundings import Life, Restart

if TYPE_CHECKING:  # a scenario checks its stays, so what declares it is read after this
    from llmprism_tasks.simulate.scenario import Fabric


@dataclass(frozen=True)
class Stay:
    """A job on its hosts, from one start to the next stop; times in seconds after the run's start.

    Attributes
    ----------
    job : with the hosts and the layout of this stay
    index : the job's place in the scenario
    number : how many stays came before
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
    end_s: float = NEVER
    crash: bool = False
    left_s: float = 0.0
    hanging: int = -1

    @property
    def everlasting(self) -> bool:
        """Whether it runs before, during and after any data."""
        return self.start_s == 0 and self.end_s == NEVER


def stays(jobs: Sequence[Job], lives: Sequence[Life], restarts: Sequence[Restart]) -> list[Stay]:
    """Return all stays, job by job and in the order of time."""
    return [stay for index, job in enumerate(jobs) for stay in _stays_of(index, job, lives, restarts)]


def _stays_of(index: int, job: Job, lives: Sequence[Life], restarts: Sequence[Restart]) -> Iterator[Stay]:
    life = next((life for life in lives if life.job == job.name), Life(job=job.name))
    number, start_s = 0, life.start_s
    for restart in sorted((r for r in restarts if r.job == job.name), key=lambda restart: restart.at_s):
        back_s = restart.at_s + restart.pause_s
        left_s, hanging = (back_s, restart.rank) if restart.stop == "hang" else (restart.at_s, -1)
        yield Stay(job, index, number, start_s, restart.at_s, restart.stop != "in_order", left_s, hanging)
        job = dataclasses.replace(job, hosts=restart.hosts or job.hosts, dp=restart.dp or job.dp)
        number, start_s = number + 1, back_s
    yield Stay(job, index, number, start_s, life.end_s)


def check_stays(
    name: str, fabric: Fabric, jobs: Sequence[Job], lives: Sequence[Life], restarts: Sequence[Restart]
) -> None:
    """Check that jobs fit on their hosts whenever they are there, and that no two use a GPU at a time.

    Raises
    ------
    SettingsError : a place or a time that cannot be
    """
    names = {job.name for job in jobs}
    for job_name in (*(life.job for life in lives), *(restart.job for restart in restarts)):
        if job_name not in names:
            raise wrong(f"{name}: a change of job {job_name!r}", f"a job of the scenario: {', '.join(sorted(names))}")
    taken: dict[tuple[int, int], list[Stay]] = {}
    for stay in stays(jobs, lives, restarts):
        job, where = stay.job, f"{name}: job {stay.job.name!r}"
        if stay.hanging >= job.ranks:
            raise wrong(f"{where} hangs with its rank {stay.hanging}", f"one of its {job.ranks} ranks")
        if stay.end_s <= stay.start_s:
            raise wrong(f"{where} from {stay.start_s:g} s to {stay.end_s:g} s", "an end after its start")
        if len(job.hosts) * len(job.gpus) != job.ranks:
            found = f"{where} on {len(job.hosts)} hosts with {len(job.gpus)} GPUs each"
            raise wrong(found, f"the {job.ranks} GPUs of its layout")
        if wanted := misfit(job):
            raise wrong(where, wanted)
        for nic in ((host, gpu) for host in job.hosts for gpu in job.gpus):
            here = f"{where} on GPU {nic[1]} of host {nic[0]}"
            if nic[0] >= fabric.hosts or nic[1] >= fabric.gpus_per_host:
                raise wrong(here, "a GPU of the fabric")
            others = taken.setdefault(nic, [])
            for other in others:
                if stay.start_s < max(other.end_s, other.left_s) and other.start_s < max(stay.end_s, stay.left_s):
                    raise wrong(here, f"a GPU that job {other.job.name!r} does not use")
            others.append(stay)
