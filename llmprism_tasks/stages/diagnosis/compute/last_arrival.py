"""Last to come: whom all others wait for in a job that works in lock step.

Where ranks exchange in every layer, everybody waits for the slow one within the step, and all are silent for about as
long. But nobody is silent for longer than the slow one: the others push a little too early, or are asked sooner.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics import binomial
from llmprism_tasks.numerics.robust import relative_sigma
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.compute.later_work import length_ns
from llmprism_tasks.stages.diagnosis.compute.own_baseline import quick_steps
from llmprism_tasks.stages.diagnosis.compute.slow_compute import told
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.own_work.own_work import own_work
from llmprism_tasks.stages.timeline.placement import NIC, STEP

AS_LONG = 0.998
"""Ratio of the longest silences of a step above which others are as long: two ends of one transfer see it begin within
some microseconds, and exchange a hundred times a step."""

BY_CHANCE = 0.001
"""Probability below which one is the last so often by chance: jobs that are slower for another cause are few, and have
some hundred NICs at most that are told apart."""

PUSHED = 0.3
"""Ratio of a NIC's mean burst below which one went ahead: a channel's buffers hold 4 MB, and its share of a layer of a
small sharded model is 15 MB. Where other small bursts are taken for it, silences are too short in all steps alike."""

MOST = 0.5
"""Ratio of what a job's steps lose by which the silences of who is to blame have grown."""


def find(found: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name whom all wait for in slower jobs of which nothing else is known.

    Parameters
    ----------
    found : rows of `evidence.ROW`, of all other troubles: where anything is known, be it that a group is slow, silences
        grow for its sake

    Returns
    -------
    rows of `slow_compute`; where NICs of several hosts are the last together, of `straggler`: nobody can tell which
    """
    unknown = (pl.col("kind") == "cross_step") | ((pl.col("kind") == "straggler") & (pl.col("subject_type") == "job"))
    slower = found.filter(pl.col("kind") == "cross_step").join(found.filter(~unknown), on="job_id", how="anti")
    if slower.is_empty():
        return slower
    last = last_to_come(slower.select("job_id", "severity"), evidence, settings)
    hosts = last.join(evidence.members, on=NIC).group_by("job_id").agg(hosts=pl.col("host").n_unique())
    one, several = (
        last.join(hosts.filter(which), on="job_id", how="semi") for which in (pl.col("hosts") == 1, pl.col("hosts") > 1)
    )
    return told(one, several, evidence)


def last_to_come(slower: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the NICs that are silent for longest in the slow steps of some jobs, one after another.

    Their silences have grown by most of what a step has, which those beside a slow transfer have not; and in quick
    steps they were the last no more often than chance would have it.

    Parameters
    ----------
    slower : `job_id`, `severity` (ratio by which their slow steps are longer)

    Returns
    -------
    the columns of `slow_nics`; several NICs of a job may be as long, and nobody can tell which of them is slow
    """
    quick = evidence.once(quick_steps, settings)
    usual = quick.group_by("job_id").agg(usual_ns=length_ns().median())
    # As slow as in the window's run, or as in its look-back: nearer to that than to a quick step.
    slow = length_ns() >= (1 + pl.col("severity") / 2) * pl.col("usual_ns")
    steps = (
        evidence.steps.join(slower, on="job_id")
        .join(usual, on="job_id")
        .join(quick.select(*STEP, quick=pl.lit(value=True)), on=STEP, how="left")
        .with_columns(slow=slow, quick=pl.col("quick").fill_null(value=False))
        .filter(pl.col("slow") != pl.col("quick"))
    )
    flows = evidence.of_jobs(slower["job_id"])
    work = own_work(flows, steps, evidence.groups, early=PUSHED)
    of_step = pl.col("own_ns").max().over("job_id", "step_index")
    marked = work.filter(pl.col("last_stage").is_null()).with_columns(
        last=pl.col("own_ns") >= AS_LONG * of_step, length_ns=length_ns()
    )
    return _blamed(marked, settings)


def _blamed(work: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Sum up each NIC's slow and quick steps, and keep who is the last in about all of the slow ones."""
    of_job = work.filter("quick").group_by("job_id").agg(by_place=pl.col("last").mean())
    own, past = (pl.col("own_ns").filter(which) for which in ("slow", "quick"))
    grown = own.median() - past.median()
    lengths = [pl.col("length_ns").filter(which).median() for which in ("slow", "quick")]
    summed = work.group_by(NIC).agg(
        pl.col("start_ns").filter("slow").min(),
        pl.col("end_ns").filter("slow").max(),
        pl.col("component").first(),
        own_ns=own.median(),
        excess=grown / past.median(),
        loss=grown / lengths[0],
        longer=(lengths[0] - lengths[1]) / lengths[0],
        noise=relative_sigma(past),
        slow=pl.col("last").filter("slow").sum().cast(pl.Int64),
        steps=pl.col("slow").sum().cast(pl.Int64),
        usually=pl.col("last").filter("quick").mean(),
    )
    chance = pl.max_horizontal("by_place", "usually")
    return (
        summed.join(of_job, on="job_id")
        .filter(
            pl.col("slow") >= settings.least_steps,
            pl.col("slow") >= settings.persistence * pl.col("steps"),
            chance < settings.persistence,
            binomial.tail_bound(pl.col("slow"), pl.col("steps"), chance) <= BY_CHANCE,
            pl.col("loss") >= pl.max_horizontal(settings.least_effect, MOST * pl.col("longer")),
        )
        .with_columns(
            score=pl.col("excess") / pl.max_horizontal("noise", settings.least_noise),
            by_past=True,
            at_first=False,
            alone=False,
        )
        .sort(NIC)
    )
