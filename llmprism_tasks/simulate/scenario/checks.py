"""Whether the parts of a scenario fit together: jobs and tenants on the fabric, faults on what is there."""

from __future__ import annotations

from llmprism_tasks.simulate.scenario.faults import OF_A_JOB, OF_A_LINK, SLOWS_COMPUTING, STALLS
from llmprism_tasks.simulate.scenario.lifecycle import Allocation, Life, Restart
from llmprism_tasks.simulate.scenario.scenario import Scenario
from llmprism_tasks.simulate.scenario.sections import wrong
from llmprism_tasks.simulate.scenario.training_job import misfit


def check_scenario(scenario: Scenario) -> None:
    """Check that the parts of a scenario fit together.

    Raises
    ------
    SettingsError : the first part that does not fit
    """
    _check_jobs(scenario)
    _check_allocations(scenario)
    _check_tenants(scenario)
    _check_faults(scenario)


def _check_jobs(scenario: Scenario) -> None:
    if not (scenario.jobs or scenario.tenants):
        raise wrong(f"{scenario.name}: neither [[jobs]] nor [[tenants]]", "somebody on the fabric")
    names = set[str]()
    for job in scenario.jobs:
        where = f"{scenario.name}: job {job.name!r}"
        if not job.name or job.name in names:
            raise wrong(where, "a name of its own for each job")
        names.add(job.name)
        if wanted := misfit(job):
            raise wrong(where, wanted)


def _check_tenants(scenario: Scenario) -> None:
    names = {job.name for job in scenario.jobs}
    for habit in scenario.habits:
        if habit.job not in names:
            raise wrong(f"{scenario.name}: a habit of job {habit.job!r}", f"one of {', '.join(sorted(names))}")
    taken = {
        (host, gpu)
        for allocation in scenario.allocations
        for host in allocation.job.hosts
        for gpu in allocation.job.gpus
    }
    for tenant in scenario.tenants:
        where, places = f"{scenario.name}: tenant {tenant.name!r}", {(h, g) for h in tenant.hosts for g in tenant.gpus}
        if not tenant.name or tenant.name in names or len(tenant.hosts) < 2:
            raise wrong(where, "a name of its own, and at least two hosts")
        names.add(tenant.name)
        fits = all(h < scenario.fabric.hosts and g < scenario.fabric.gpus_per_host for h, g in places)
        if not fits or places & taken:
            raise wrong(f"{where} on hosts {tenant.hosts}", "GPUs of the fabric that no job or other tenant uses")
        taken |= places


def _check_allocations(scenario: Scenario) -> None:
    """Check that jobs fit on their hosts whenever they run, and that no two use a GPU at a time."""
    name, fabric = scenario.name, scenario.fabric
    names = {job.name for job in scenario.jobs}
    changes: tuple[Life | Restart, ...] = (*scenario.lives, *scenario.restarts)
    for job_name in (change.job for change in changes):
        if job_name not in names:
            raise wrong(f"{name}: a change of job {job_name!r}", f"a job of the scenario: {', '.join(sorted(names))}")
    taken: dict[tuple[int, int], list[Allocation]] = {}
    for allocation in scenario.allocations:
        job, where = allocation.job, f"{name}: job {allocation.job.name!r}"
        if allocation.hanging >= job.ranks:
            raise wrong(f"{where} hangs with its rank {allocation.hanging}", f"one of its {job.ranks} ranks")
        if allocation.end_s <= allocation.start_s:
            raise wrong(f"{where} from {allocation.start_s:g} s to {allocation.end_s:g} s", "an end after its start")
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
                ends_s = (max(one.end_s, one.left_s) for one in (other, allocation))
                if all(one.start_s < end_s for one, end_s in zip((allocation, other), ends_s, strict=True)):
                    raise wrong(here, f"a GPU that job {other.job.name!r} does not use")
            others.append(allocation)


def _check_faults(scenario: Scenario) -> None:
    jobs, switches = {job.name: job for job in scenario.jobs}, scenario.fabric.switches
    for index, fault in enumerate(scenario.faults):
        where, job = f"{scenario.name}: faults[{index}]", jobs.get(fault.job)
        if fault.end_s <= fault.start_s:
            raise wrong(f"{where} from {fault.start_s} s to {fault.end_s} s", "an end after its start")
        if fault.kind in OF_A_JOB:
            if job is None or fault.switch or fault.rank >= job.ranks or fault.pp_stage >= job.pp:
                raise wrong(f"{where}: {fault}", "a job, one of its ranks or pp_stages, and no switch")
        elif fault.job or fault.switch not in switches:
            raise wrong(f"{where}: {fault}", "a leaf or spine of the fabric, and no job")
        if fault.kind in OF_A_LINK and (fault.neighbour not in switches or fault.neighbour == fault.switch):
            raise wrong(f"{where}: {fault}", "the link's other switch as its neighbour")
        if fault.kind not in STALLS and (fault.factor < 1) != (fault.kind not in SLOWS_COMPUTING) and fault.factor != 1:
            raise wrong(f"{where}: {fault}", "a factor of at least 1 on computing, of at most 1 on rates")
