"""The subject of a fault, and the subjects that count as right too because flows cannot tell them apart."""

from __future__ import annotations

import numpy as np

from llmprism_tasks.simulate.network.rank_layout import coordinates, host_and_gpu, rank_of
from llmprism_tasks.simulate.network.topology import addr, host_name
from llmprism_tasks.simulate.scenario.faults import OF_A_LINK, STALLS, Fault
from llmprism_tasks.simulate.scenario.training_job import Job


def fault_subject(job: Job, fault: Fault) -> tuple[str, str, list[str]]:
    """Return the subject's type, the subject, and what else is accepted, each as `type:subject`.

    The TP peers of a slow GPU are slow in lock-step with it, and their host is what would be drained. A job's stalls
    have no device.
    """
    if fault.kind == "degraded_switch":
        return "switch", fault.switch, []
    if fault.kind in OF_A_LINK:
        ends = sorted((fault.switch, fault.neighbour))
        return "link", " - ".join(ends), []
    if fault.kind == "slow_stage":
        return "pp_stage", str(fault.pp_stage), []
    if fault.kind in STALLS:
        return "job", job.name, []
    subject = addr(*host_and_gpu(job, fault.rank))
    return "addr", subject, [f"host:{host_name(host_and_gpu(job, fault.rank)[0])}", *_lock_step(job, fault, subject)]


def _lock_step(job: Job, fault: Fault, subject: str) -> list[str]:
    if fault.kind != "slow_gpu":
        return []
    _, (unit,), (pp,) = coordinates(job, np.array([fault.rank]))
    peers = [addr(*host_and_gpu(job, rank_of(job, tp, int(unit), int(pp)))) for tp in range(job.tp)]
    return [f"addr:{peer}" for peer in peers if peer != subject]
