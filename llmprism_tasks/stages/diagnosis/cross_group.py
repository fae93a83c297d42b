"""Cross-group: a data-parallel group whose transfers are slow against the job's other groups."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis import switch_level
from llmprism_tasks.stages.diagnosis.evidence import ROW, Evidence, slowdown
from llmprism_tasks.stages.diagnosis.transfers import PART, parts, slow_parts


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the groups whose quickest transfers are slower than those of most groups of their job.

    Not those that a slow switch explains. `score` is the ratio of time per byte to the usual, `severity` the ratio by
    which the job's steps are longer than its quick ones; the subject is the group's lowest address.
    """
    groups = parts(evidence, least_bytes=settings.least_bytes).filter(
        pl.col("kind") == "dp", pl.len().over("job_id", "kind") >= settings.least_peers
    )
    compared = slow_parts(
        groups.with_columns(before=pl.lit(None, dtype=pl.Float64)),
        slow_rate=settings.slow_rate,
        least_peers=settings.least_peers,
    )
    ratio = pl.col("now") / pl.col("usual")
    others = pl.col("part").filter(~pl.col("slow")).sort().over("job_id", "kind", mapping_strategy="join")
    compared = compared.with_columns(others=others)
    window = evidence.window
    costs = {
        str(job_id): slowdown(history, window.start_ns, window.end_ns)
        for (job_id,), history in evidence.history.group_by("job_id")
    }
    return (
        compared.filter(pl.col("slow"), pl.col("records") >= settings.least_records)
        .join(switch_level.explained(evidence, settings), on=PART, how="anti")
        .select(
            "job_id",
            kind=pl.lit("cross_group"),
            subject_type=pl.lit("dp_group"),
            subject="part",
            start_ns=pl.lit(evidence.window.start_ns),
            end_ns=pl.lit(evidence.window.end_ns),
            score=ratio,
            severity=pl.col("job_id").replace_strict(costs, default=0.0, return_dtype=pl.Float64),
            explanation=pl.format(
                "The data-parallel group of {} takes {} times the usual time per byte of the job's groups ({} Gbit/s).",
                "part",
                ratio.round(2),
                (8 / pl.col("now")).round(1),
            ),
            confidence=None,
            peers=pl.col("others"),
        )
        .cast(pl.Schema(ROW))
    )
