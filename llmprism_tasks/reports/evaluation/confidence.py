"""Calibration: how often rows of `jobs` and `pairs` are right, by the confidence that they state."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.reports.evaluation.jobs import WINDOW_JOB
from llmprism_tasks.reports.evaluation.layouts import Verdicts

UNSURE = 0.75
"""Confidence below which a row states that it may be wrong: readers stop relying on three times in four."""

BANDS = (0.5, UNSURE, 0.9, 0.99)
"""Bounds between bands of confidence: 0.5 below the threshold, and finer above it, where nearly all rows should be."""

LABELS = ("0 to 0.5", "0.5 to 0.75", "0.75 to 0.9", "0.9 to 0.99", "0.99 to 1")


def bands(jobs: pl.DataFrame, degrees: Verdicts, asked: pl.DataFrame) -> pl.DataFrame:
    """Count right and wrong rows by their confidence.

    A row of `jobs` is right if its members are exactly the true ones, it is called training, and no degree that it
    gives is wrong; NULL claims nothing. A pair is right if its kind is. Rows that were not found have no confidence and
    are not counted.

    Parameters
    ----------
    jobs : as `job_scores` returns
    degrees : as `degree_verdicts` returns
    asked : as `asked_pairs` returns

    Returns
    -------
    `job`, `of` (`jobs` or `pairs`), `band`, `right`, `wrong`
    """
    wrong = degrees.filter(pl.col("verdict") == "wrong").select(WINDOW_JOB).unique()
    claimed = jobs.join(wrong.with_columns(misled=pl.lit(value=True)), on=WINDOW_JOB, how="left")
    right = pl.col("exact") & (pl.col("kind") == "training") & pl.col("misled").is_null()
    rows = [
        claimed.select("job", "confidence", of=pl.lit("jobs"), right=right),
        asked.select("job", "confidence", of=pl.lit("pairs"), right="right"),
    ]
    band = pl.sum_horizontal(pl.col("confidence") >= bound for bound in BANDS)
    return (
        pl.concat(rows)
        .drop_nulls("confidence")
        .with_columns(band=band.replace_strict(range(len(LABELS)), LABELS, return_dtype=pl.String))
        .group_by("job", "of", "band")
        .agg(right=pl.col("right").sum().cast(pl.Int64), wrong=(~pl.col("right")).sum().cast(pl.Int64))
        .sort("job", "of", "band")
    )
