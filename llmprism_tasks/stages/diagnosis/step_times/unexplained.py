"""Straggler: a job that has become slower, for no cause that is found."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import ROW, Evidence
from llmprism_tasks.stages.diagnosis.step_times import slow_run


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Say of each job with a run of slow steps that it has become slower, cause unknown.

    What is known to take most of what the job loses explains it: assembly leaves these rows out then.
    """
    slower = evidence.once(slow_run.find, settings)
    return slower.with_columns(
        kind=pl.lit("straggler"),
        explanation=pl.format(
            "The job has become slower, cause unknown: no device is known to explain most of it. {}",
            "explanation",
        ),
    ).cast(pl.Schema(ROW))
