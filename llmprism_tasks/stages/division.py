"""A job's flows divided into its steps, before its pairs are judged: what both the judging and the figures look at."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from llmprism_tasks.settings import Settings
from llmprism_tasks.stages import completion, rhythm
from llmprism_tasks.stages.restarts import since_restart
from llmprism_tasks.windows import Window


@dataclass(frozen=True)
class Division:
    """Bulk flows in steps.

    Attributes
    ----------
    numbered : the flows of periodic streams with their `step`, as `rhythm.of_jobs` returns
    endpoints, job_steps : the steps, as `completion` returns them
    in_steps : all bulk flows that belong to a step, with `step`
    """

    numbered: pl.DataFrame
    endpoints: pl.DataFrame
    job_steps: pl.DataFrame
    in_steps: pl.DataFrame

    @property
    def periods(self) -> pl.DataFrame:
        """Return `job_id`, `period_ns`: of the rhythm that the steps were found by."""
        return self.numbered.group_by("job_id").agg(period_ns=pl.col("group_period_ns").first())


def divide(bulk: pl.DataFrame, window: Window, settings: Settings) -> Division | None:
    """Divide the bulk flows of jobs into steps; None where no job shows any.

    Parameters
    ----------
    bulk : with `job_id`, those of the look-back among them
    """
    bulk = since_restart(bulk, window, settings.traffic)
    if bulk.is_empty():
        return None
    numbered = rhythm.of_jobs(bulk, settings.rhythm, until_ns=window.end_ns)
    endpoints = completion.endpoint_steps(numbered, window, settings)
    job_steps = completion.job_steps(endpoints, window, settings)
    in_steps = completion.step_of_flows(bulk, endpoints, job_steps).filter(pl.col("step").is_not_null())
    return None if in_steps.is_empty() else Division(numbered, endpoints, job_steps, in_steps)
