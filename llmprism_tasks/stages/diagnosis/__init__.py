"""Diagnosis: steps and flows -> what is wrong, and with whom.

LLMPrism (arXiv 2505.00342), stage 5, compares steps with their job's, data-parallel groups with each other and
switches with each other. Beyond the paper: medians instead of means, a least effect, and persistence over steps,
since experts hate false alarms most of all; and the culprit itself, who starts late with nobody to wait for.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks import frames
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.diagnosis import (
    checkpoints,
    cross_step,
    last_to_come,
    network,
    pipeline_imbalance,
    silence,
    slow_compute,
    stalls,
    standstills,
    straggler,
)
from llmprism_tasks.stages.diagnosis.assembly import assembled, of_likely_layouts, said_once
from llmprism_tasks.stages.diagnosis.evidence import Evidence, gather
from llmprism_tasks.stages.diagnosis.price import price
from llmprism_tasks.stages.remembered import forget
from llmprism_tasks.windows import Window

TROUBLES = (
    silence.find,
    checkpoints.find,
    slow_compute.find,
    pipeline_imbalance.find,
    stalls.find,
    standstills.find,
    network.find,
    straggler.find,
    cross_step.find,
)
"""One function per kind of trouble: evidence and settings in, rows of `evidence.ROW` out."""


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
    diagnoses : empty when nothing is worth waking anybody for
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
    """Diagnose the jobs of a part of the platform, as `diagnosis` does those of all of it.

    Parameters
    ----------
    flows, elsewhere : as `frames.Part` has them

    Returns
    -------
    diagnoses; None when transfers are slow: it may be the fabric's fault, that all parts share
    """
    evidence = gather(flows, topology, job_members, pairs, steps, window, settings, elsewhere)
    forget()
    if evidence is not None and evidence.once(network.hops_in_trouble, settings.diagnosis)["slow"].any():
        return None
    return (_diagnosed(evidence, jobs, settings),)


def _diagnosed(evidence: Evidence | None, jobs: pl.DataFrame, settings: Settings) -> pl.DataFrame:
    if evidence is None:
        return frames.empty("diagnoses")
    found = pl.concat([evidence.once(find, settings.diagnosis) for find in TROUBLES])
    last = last_to_come.find(found, evidence, settings.diagnosis)
    found = of_likely_layouts(said_once(pl.concat([last, found])), jobs)
    rows = price(evidence, assembled(found, evidence, settings), jobs)
    return frames.conform(rows.with_columns(window_start_ns=pl.lit(evidence.window.start_ns)), "diagnoses")
