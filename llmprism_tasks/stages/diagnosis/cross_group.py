"""Cross-group: a data-parallel group whose transfers are slow against the job's other groups."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import ROW, Evidence
from llmprism_tasks.stages.diagnosis.transfers import parts, slow_parts


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the groups whose quickest transfers are slower than those of most groups of their job.

    `score` is the ratio of time per byte to the usual, `severity` the same less one; the subject is the group's lowest address.
    """
    measured = parts(evidence, least_bytes=settings.least_bytes).filter(
        pl.col("kind") == "dp", pl.len().over("job_id") >= settings.least_peers
    )
    slow = slow_parts(
        measured.with_columns(before=pl.lit(None, dtype=pl.Float64)),
        slow_rate=settings.slow_rate,
        least_peers=settings.least_peers,
    )
    slow = slow.filter(pl.col("slow"), pl.col("records") >= settings.least_records)
    ratio = pl.col("now") / pl.col("usual")
    return slow.select(
        "job_id",
        kind=pl.lit("cross_group"),
        subject_type=pl.lit("dp_group"),
        subject="part",
        start_ns=pl.lit(evidence.window.start_ns),
        end_ns=pl.lit(evidence.window.end_ns),
        score=ratio,
        severity=ratio - 1,
        explanation=pl.format(
            "the data-parallel group of {} takes {} times the usual time per byte of the job's groups ({} Gbit/s)",
            "part",
            ratio.round(2),
            (8 / pl.col("now")).round(1),
        ),
    ).cast(ROW)
