"""Work spread: how much the work of a NIC varies from step to step without a fault, as for samples of uneven size."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from llmprism_tasks.numerics.robust import relative_sigma
from llmprism_tasks.stages.timeline.placement import NIC

OUTLYING_SIGMAS = 10.0
"""Standard deviations of the others' work from which a delay stands out. Of a thousand exponential draws, whose tail is
as heavy as that of sample lengths, the largest is nine above the median."""


def spread_of_work(work: pl.DataFrame, *names: str, apart: Sequence[str] = ()) -> pl.DataFrame:
    """Return how much the work of one NIC varies from step to step in each job, as a ratio.

    Parameters
    ----------
    work : `job_id`, `addr` and the columns `names`
    apart : columns that split the steps into classes; differences between the classes do not count

    Returns
    -------
    `job_id`, and the ratio for each of `names`
    """
    ratios = work.select("job_id", pl.col(names) / pl.col(names).median().over(*NIC, *apart))
    return ratios.group_by("job_id").agg(relative_sigma(pl.col(name)).alias(name) for name in names)
