"""Slow steps: steps in which a job lost time, compared with its own quick steps."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import HEALTHY_STEP_QUANTILE

QUICKEST_QUANTILE = 0.05
SIGMA_PER_SPREAD = 1 / 0.97
"""Standard deviations in the distance from quantile 0.05 to 0.25 of a normal distribution. Slow steps lie above both
quantiles, so they do not count as noise, however many they are."""


def mark_slow_steps(history: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Mark the slow steps of jobs that have enough of them, at least one of them in the window.

    A step is slow if it exceeds the quick steps by the least effect and by the job's own noise. How long quick steps
    are is measured on those near the quickest: the quick quarter of all steps becomes longer as more and more of them
    are slow, and a fault that lasts would hide itself.

    Parameters
    ----------
    history : steps of jobs, look-back included: `job_id`, `start_ns`, `end_ns`, `current`

    Returns
    -------
    sorted: `history` with `slow` and `quick_ns`; without jobs that have too few slow steps or no healthy step, and
    without steps that are slow by far less than those that cost the job most
    """
    steps = history.with_columns(length_ns=(pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64))
    # The first step of a run may begin anywhere in its start-up, and be far too short.
    whole = pl.col("length_ns").filter(pl.col("start_ns") > pl.col("start_ns").min())
    quickest = whole.quantile(QUICKEST_QUANTILE, "linear").over("job_id")
    quarter = pl.col("length_ns").quantile(HEALTHY_STEP_QUANTILE, "linear").over("job_id")
    noise = pl.max_horizontal(settings.least_noise * quarter, (quarter - quickest) * SIGMA_PER_SPREAD)
    margin = pl.max_horizontal(settings.least_effect * quarter, settings.noise_margin * noise)
    near = pl.when(pl.col("length_ns") - quickest <= pl.col("margin_ns")).then("length_ns")
    steps = (
        steps.with_columns(margin_ns=margin)
        .with_columns(quick_ns=near.quantile(HEALTHY_STEP_QUANTILE, "linear").over("job_id"))
        .with_columns(excess_ns=pl.col("length_ns") - pl.col("quick_ns"))
        .with_columns(slow=pl.col("excess_ns") > pl.col("margin_ns"))
    )
    steps = _drop_slight_steps(steps, settings)
    slow = pl.col("slow").sum().over("job_id")
    lately = (pl.col("slow") & pl.col("current")).any().over("job_id")
    return (
        steps.filter(slow >= settings.least_steps, lately, slow < pl.len().over("job_id"))
        .select("job_id", "start_ns", "end_ns", "current", "slow", "quick_ns")
        .sort("job_id", "start_ns")
    )


def _drop_slight_steps(steps: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Leave out slow steps whose excess is below half of that of the steps that make up most of the job's loss.

    They are slow for another reason, and neither healthy nor the fault's. Among many of them, the few steps that a
    fault has just slowed would not show in a median.

    Parameters
    ----------
    steps : with `slow` and `excess_ns` (over the quick steps)
    """
    lost = pl.when("slow").then("excess_ns").otherwise(0.0)
    ordered = steps.sort("job_id", "excess_ns", "start_ns", descending=[False, True, False])
    most = lost.cum_sum().over("job_id") >= MAJORITY * lost.sum().over("job_id")
    typical = pl.col("excess_ns").filter(pl.col("slow") & most).max().over("job_id")
    marked = ordered.with_columns(much=pl.col("slow") & (pl.col("excess_ns") >= MAJORITY * typical))
    enough = pl.col("much").sum().over("job_id") >= settings.least_steps
    return marked.filter(~enough | ~pl.col("slow") | "much")
