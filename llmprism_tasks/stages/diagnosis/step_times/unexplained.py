"""Unexplained slowdown: a job that became slower without a known cause (kind `straggler`, subject the job)."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.step_times import slow_run


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return a row "cause unknown" for each job with a run of slow steps.

    `ranking` drops the row if another finding explains most of what the job loses.
    """
    slower = evidence.once(slow_run.find, settings)
    return slower.with_columns(
        kind=pl.lit("straggler"),
        explanation=pl.format(
            "The job became slower, and the cause is unknown: no device explains most of the loss. {}",
            "explanation",
        ),
    ).cast(pl.Schema(FINDING_SCHEMA))


def effects_only(found: pl.DataFrame) -> pl.DataFrame:
    """Return the `cross_step` of jobs that became slower and have no finding but that and a `straggler` of the job."""
    unknown = (pl.col("kind") == "cross_step") | ((pl.col("kind") == "straggler") & (pl.col("subject_type") == "job"))
    return found.filter(pl.col("kind") == "cross_step").join(found.filter(~unknown), on="job_id", how="anti")
