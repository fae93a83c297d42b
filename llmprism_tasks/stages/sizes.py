"""Sizes of records: which are the same tensor although headers or merged control messages make them differ."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods import alike


def with_class(flows: pl.DataFrame, by: list[str], tolerance: float) -> pl.DataFrame:
    """Add `size_class`, equal for records of one group `by` whose sizes are alike within a tolerance (a ratio)."""
    ordered = flows.sort(*by, "bytes")
    counts = ordered.group_by(by, maintain_order=True).len()["len"].to_numpy()
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    numbers = alike.classes(ordered["bytes"].cast(pl.Float64).to_numpy(), offsets, tolerance)
    return ordered.with_columns(size_class=pl.Series(numbers))
