"""Noise: by how much work differs from step to step where all is well. Where samples differ in length, by a lot."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from llmprism_tasks.numerics.robust import relative_sigma
from llmprism_tasks.stages.timeline.placement import NIC

BEYOND = 10.0
"""Standard deviations of others' work by which what is late stands out. Of a thousand draws whose tail is exponential,
which is as heavy as that of samples' lengths, the largest is nine above the median."""


def spread_of_work(work: pl.DataFrame, *names: str, apart: Sequence[str] = ()) -> pl.DataFrame:
    """Return of each job by how much the work of one NIC differs from step to step, as a ratio: `job_id`, and a column
    for each of those named. What lies between steps that are kept `apart` does not count."""
    ratios = work.select("job_id", pl.col(names) / pl.col(names).median().over(*NIC, *apart))
    return ratios.group_by("job_id").agg(relative_sigma(pl.col(name)).alias(name) for name in names)
