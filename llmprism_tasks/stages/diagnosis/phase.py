"""Diagnosis phase: find what is wrong with a job, and which device or member is at fault, from its steps and flows.

LLMPrism (arXiv 2505.00342), stage 5, compares steps with other steps of their job, data-parallel groups with each other
and switches with each other. This phase goes beyond the paper: it uses medians instead of means, and requires a least
effect that persists over several steps, because false alarms are what experts object to most. It also names the member
at fault: the one that starts late without waiting for another.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.diagnosis.compute import last_arrival, pipeline_imbalance, slow_compute
from llmprism_tasks.stages.diagnosis.compute.still_sending import not_still_sending
from llmprism_tasks.stages.diagnosis.cost.price import price
from llmprism_tasks.stages.diagnosis.coverage import with_coverage
from llmprism_tasks.stages.diagnosis.evidence import Evidence, gather
from llmprism_tasks.stages.diagnosis.network import awaited, cross_group, dead_path, devices, latent
from llmprism_tasks.stages.diagnosis.pauses import (
    checkpoints,
    job_stalls,
    late_host,
    one_step,
    stalls,
)
from llmprism_tasks.stages.diagnosis.pauses.silence import between_steps, hang
from llmprism_tasks.stages.diagnosis.ranking import assemble, deduplicate, drop_unlikely_layouts
from llmprism_tasks.stages.diagnosis.step_times import slow_run, unexplained
from llmprism_tasks.stages.step_division.division import Division
from llmprism_tasks.stages.traffic.index import JobTraffic

DETECTORS = (
    hang.find,
    between_steps.find,
    checkpoints.find,
    slow_compute.find,
    pipeline_imbalance.find,
    stalls.find,
    job_stalls.find,
    dead_path.find,
    devices.find,
    latent.find,
    unexplained.find,
    slow_run.find,
)
"""Detectors: functions of evidence and settings that return rows of `evidence.FINDING_SCHEMA`, of one kind of fault or
more."""


def diagnosis(
    *,
    job_traffic: JobTraffic,
    step_ends: Division | None,
    topology: pl.DataFrame,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    pairs: pl.DataFrame,
    steps: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> tuple[pl.DataFrame]:
    """Diagnose the steps that ended in the window.

    Parameters
    ----------
    job_traffic : the flows of jobs, in the window and its look-back
    step_ends : their steps, ended by the pairs that `pair_graph.ending` returns
    topology : `addr`, `host`, `gpu`
    jobs, job_members, pairs, steps : the window's

    Returns
    -------
    diagnoses : empty if nothing is worth acting on
    """
    evidence = gather(job_traffic, step_ends, topology, job_members, pairs, steps, window, settings)
    found = _diagnose(evidence, jobs, settings)
    return (with_coverage(found, jobs, job_members, topology, job_traffic.index.pairs),)


def diagnose_partition(
    *,
    job_traffic: JobTraffic,
    step_ends: Division | None,
    elsewhere: pl.DataFrame,
    topology: pl.DataFrame,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    pairs: pl.DataFrame,
    steps: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> tuple[pl.DataFrame] | None:
    """Diagnose the jobs of one partition of the platform, as `diagnosis` does those of the whole platform.

    Parameters
    ----------
    elsewhere : `flow_start_ns` of flows in other partitions, ascending

    Returns
    -------
    diagnoses; None if transfers are slow, because the cause may be in the fabric that all partitions share
    """
    evidence = gather(job_traffic, step_ends, topology, job_members, pairs, steps, window, settings, elsewhere)
    if evidence is not None and evidence.once(devices.hops_in_trouble, settings.diagnosis)["slow"].any():
        return None
    found = _diagnose(evidence, jobs, settings)
    return (with_coverage(found, jobs, job_members, topology, job_traffic.index.pairs),)


def _diagnose(evidence: Evidence | None, jobs: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    if evidence is None:
        return frames.empty("diagnoses")
    found = pl.concat([evidence.once(find, settings.diagnosis) for find in DETECTORS])
    found = not_still_sending(found, evidence.once(devices.hops_in_trouble, settings.diagnosis))
    for find in (last_arrival.find, awaited.find, late_host.find):
        found = pl.concat([find(found, evidence, settings.diagnosis), found])
    found = cross_group.name_groups(found)
    found = pl.concat([found, one_step.find(found, evidence, settings)])
    found = drop_unlikely_layouts(deduplicate(found), evidence.once(stalls.find, settings.diagnosis), jobs)
    rows = price(evidence, assemble(found, evidence, settings), jobs)
    return frames.conform(rows.with_columns(window_start_ns=pl.lit(evidence.window.start_ns)), "diagnoses")
