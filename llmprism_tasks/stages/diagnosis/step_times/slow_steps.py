"""Slow steps: steps in which a job lost time, compared with its own quick steps."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import QUICK

QUICKEST = 0.05
SIGMA_PER_SPREAD = 1 / 0.97
"""Standard deviations in the distance from quantile 0.05 to 0.25 of a normal distribution. Slow steps lie above both
quantiles, so they do not count as noise, however many they are."""


def in_trouble(history: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Mark the slow steps of jobs that have enough of them, at least one of them in the window.

    A step is slow if it exceeds the quick steps by the least effect and by the job's own noise.

    Parameters
    ----------
    history : steps of jobs, look-back included: `job_id`, `start_ns`, `end_ns`, `current`

    Returns
    -------
    sorted: `history` with `slow` and `quick_ns`; without jobs that have too few slow steps or no healthy step
    """
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    quick = pl.col("length_ns").quantile(QUICK, "linear").over("job_id")
    spread = (quick - pl.col("length_ns").quantile(QUICKEST, "linear").over("job_id")) * SIGMA_PER_SPREAD
    noise = pl.max_horizontal(settings.least_noise * pl.col("quick_ns"), "spread_ns")
    margin = pl.max_horizontal(settings.least_effect * pl.col("quick_ns"), settings.noise_margin * noise)
    steps = (
        history.with_columns(length_ns=length)
        .with_columns(quick_ns=quick, spread_ns=spread)
        .with_columns(slow=pl.col("length_ns") - pl.col("quick_ns") > margin)
    )
    slow = pl.col("slow").sum().over("job_id")
    lately = (pl.col("slow") & pl.col("current")).any().over("job_id")
    return (
        steps.filter(slow >= settings.least_steps, lately, slow < pl.len().over("job_id"))
        .select("job_id", "start_ns", "end_ns", "current", "slow", "quick_ns")
        .sort("job_id", "start_ns")
    )
