"""Sizes of records: which are the same tensor although headers or merged control messages make them differ."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.methods import alike, pieces
from llmprism_tasks.methods.series import Integers
from llmprism_tasks.stages import traffic


def classes(flows: pl.DataFrame, tolerance: float) -> Integers:
    """Number the classes of sizes that are alike within a tolerance (a ratio), from 0 in each pair.

    Parameters
    ----------
    flows : `pair` and `bytes`, those of a pair one after another
    """
    return alike.classes(flows["bytes"].to_numpy(), traffic.starts_of_pairs(flows), tolerance)


def in_one_piece(flows: pl.DataFrame, tolerance: float) -> pl.DataFrame:
    """Put the records that a rank left when it came early to a collective together with what it sent when all had come.

    What was sent early counts with the rest, from when that was sent.

    Parameters
    ----------
    flows : `pair`, `bytes` and any other columns, in the order of `traffic.numbered`
    """
    sizes = flows["bytes"].to_numpy()
    early = pieces.begins_next(sizes, traffic.starts_of_pairs(flows), tolerance)
    if not early.any():
        return flows
    return flows.with_columns(bytes=pieces.joined(sizes, early)).filter(pl.Series(~early))
