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
from llmprism_tasks.stages.diagnosis.cost.price import price
from llmprism_tasks.stages.diagnosis.evidence import Evidence, gather
from llmprism_tasks.stages.diagnosis.network import devices
from llmprism_tasks.stages.diagnosis.pauses import checkpoints, hang, job_stalls, stalls
from llmprism_tasks.stages.diagnosis.ranking import assembled, of_likely_layouts, said_once
from llmprism_tasks.stages.diagnosis.step_times import slow_run, unexplained
from llmprism_tasks.stages.traffic.remembered import forget

TROUBLES = (
    hang.find,
    checkpoints.find,
    slow_compute.find,
    pipeline_imbalance.find,
    stalls.find,
    job_stalls.find,
    devices.find,
    unexplained.find,
    slow_run.find,
)
"""One detector per kind of fault: a function of evidence and settings that returns rows of `evidence.ROW`."""


def diagnosis(
    *,
    flows: pl.DataFrame,
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
    flows : the window's flows and those of its look-back
    topology : `addr`, `host`, `gpu`
    jobs, job_members, pairs, steps : the window's

    Returns
    -------
    diagnoses : empty if nothing is worth acting on
    """
    evidence = gather(flows, topology, job_members, pairs, steps, window, settings)
    forget()
    return (_diagnosed(evidence, jobs, settings),)


def of_part(
    *,
    flows: pl.DataFrame,
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
    flows, elsewhere : `flows` and `other_starts` of `execution.partition.Partition`

    Returns
    -------
    diagnoses; None if transfers are slow, because the cause may be in the fabric that all partitions share
    """
    evidence = gather(flows, topology, job_members, pairs, steps, window, settings, elsewhere)
    forget()
    if evidence is not None and evidence.once(devices.hops_in_trouble, settings.diagnosis)["slow"].any():
        return None
    return (_diagnosed(evidence, jobs, settings),)


def _diagnosed(evidence: Evidence | None, jobs: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    if evidence is None:
        return frames.empty("diagnoses")
    found = pl.concat([evidence.once(find, settings.diagnosis) for find in TROUBLES])
    last = last_arrival.find(found, evidence, settings.diagnosis)
    found = of_likely_layouts(said_once(pl.concat([last, found])), jobs)
    rows = price(evidence, assembled(found, evidence, settings), jobs)
    return frames.conform(rows.with_columns(window_start_ns=pl.lit(evidence.window.start_ns)), "diagnoses")
