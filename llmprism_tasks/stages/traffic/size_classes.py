"""Sizes of records: which are the same tensor although headers or merged control messages make them differ."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.kernels import fragments, size_clusters

CONNECTIONS = 2
"""Connections of two NICs that may wait for their receivers at a time: where a pipeline is fed from both ends, what one
half of the micro-batches sends forward and the other half sends back goes the same way."""


def classes(flows: pl.DataFrame, tolerance: float) -> Integers:
    """Number the classes of sizes that are alike within a tolerance (a ratio), from 0 in each pair.

    Parameters
    ----------
    flows : `pair` and `bytes`, those of a pair one after another
    """
    return size_clusters.classes(flows["bytes"].to_numpy(), nic_pairs.starts_of_pairs(flows), tolerance)


def join_early_records(flows: pl.DataFrame, tolerance: float) -> pl.DataFrame:
    """Put the records that a rank left when it came early together with what it sent when all had come.

    What was sent early counts with the rest, from when that was sent.

    Parameters
    ----------
    flows : `pair`, `bytes` and any other columns, in the order of `nic_pairs.numbered`
    """
    sizes = flows["bytes"].to_numpy()
    rest = fragments.early_fragments(sizes, nic_pairs.starts_of_pairs(flows), tolerance, CONNECTIONS)
    whole = rest == np.arange(sizes.size)
    if whole.all():
        return flows
    return flows.with_columns(bytes=fragments.joined_sizes(sizes, rest)).filter(pl.Series(whole))
