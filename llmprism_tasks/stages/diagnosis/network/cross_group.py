"""Cross-group: data-parallel groups that are slow while other groups of their job are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.network.losses import Losses
from llmprism_tasks.stages.diagnosis.ranking import MOST

Row = dict[str, Any]


def rows(hops: pl.DataFrame, losses: Losses, settings: DiagnosisSettings) -> Iterator[Row]:
    """Yield the slow groups that explain most of their job's loss, unless most groups of the job are slow.

    Each group is compared with its own healthy steps, so even of two groups the slower one is known. The subject is the
    group's lowest address.

    Parameters
    ----------
    hops : as `path_pace.compared` returns, for jobs in which no device is named
    """
    of_rings = hops.filter(pl.col("kind") == "dp")
    groups = of_rings.group_by("job_id", "unit").agg(pl.col("slow").any()).sort("job_id", "unit")
    for (job_id,), mine in groups.group_by("job_id", maintain_order=True):
        slow, others = (mine.filter(which)["unit"].to_list() for which in (pl.col("slow"), ~pl.col("slow")))
        if len(slow) > len(others):
            continue
        for group in slow:
            inside = (pl.col("job_id") == job_id) & (pl.col("unit") == group) & pl.col("slow")
            row = losses.row(str(job_id), of_rings.filter(inside), settings)
            if row is not None and row["confidence"] >= MOST:
                how = f"and {len(others)} of {mine.height} groups are not slower"
                subject = {"kind": "cross_group", "subject_type": "dp_group", "subject": group}
                yield row | subject | {"peers": others, "how": how}
