"""Sizes of records: which are the same tensor although headers or merged control messages make them differ."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods import alike
from llmprism_tasks.stages import traffic


def with_class(flows: pl.DataFrame, tolerance: float) -> pl.DataFrame:
    """Add `size_class`, equal for records of one pair whose sizes are alike within a tolerance (a ratio)."""
    ordered = traffic.by_pair(flows, "bytes")
    counts = ordered.group_by("src_addr", "dst_addr", maintain_order=True).len()["len"].to_numpy()
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    numbers = alike.classes(ordered["bytes"].cast(pl.Float64).to_numpy(), offsets, tolerance)
    return ordered.with_columns(size_class=pl.Series(numbers))
