"""Sizes of records: which are the same tensor although headers or merged control messages make them differ."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods import alike, pieces
from llmprism_tasks.stages import traffic


def with_class(flows: pl.DataFrame, tolerance: float) -> pl.DataFrame:
    """Add `size_class`, equal for records of one pair whose sizes are alike within a tolerance (a ratio)."""
    ordered = traffic.by_pair(flows, "bytes")
    counts = ordered.group_by("src_addr", "dst_addr", maintain_order=True).len()["len"].to_numpy()
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    numbers = alike.classes(ordered["bytes"].cast(pl.Float64).to_numpy(), offsets, tolerance)
    return ordered.with_columns(size_class=pl.Series(numbers))


def in_one_piece(flows: pl.DataFrame, tolerance: float) -> pl.DataFrame:
    """Put the records that a rank left when it came early to a collective together with what it sent when all had come.

    What was sent early counts with the rest, from when that was sent.
    """
    ordered = traffic.by_pair(flows, "flow_start_ns", "flow_end_ns")
    counts = ordered.group_by("src_addr", "dst_addr", maintain_order=True).len()["len"].to_numpy()
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    early = pl.Series(pieces.begins_next(ordered["bytes"].to_numpy(), offsets, tolerance))
    before = (early * ordered["bytes"]).shift(1, fill_value=0)
    return ordered.with_columns(pl.col("bytes") + before).filter(~early)
