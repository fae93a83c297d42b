"""Clusters: NICs joined by pairs, as connected components of the graph of pairs."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics import graphs
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.traffic.nic_pairs import PAIR


def connected_nics(pairs: pl.DataFrame, linking: pl.DataFrame) -> pl.DataFrame:
    """Number the NICs of pairs by the clusters that the linking ones among them make: `addr`, `cluster`."""
    addrs = addresses(pairs)
    left, right = numbered_ends(linking, addrs)
    return pl.DataFrame({"addr": addrs, "cluster": graphs.connected_components(left, right, addrs.len())})


def addresses(pairs: pl.DataFrame) -> pl.Series:
    """Return the NICs of pairs, each once, in order."""
    return pl.concat([pairs[end].alias("addr") for end in PAIR]).unique().sort()


def numbered_ends(pairs: pl.DataFrame, addrs: pl.Series) -> tuple[Integers, Integers]:
    """Return the places of both ends of pairs among the NICs."""
    code = pl.Enum(addrs.cast(pl.String))
    source, target = (pairs[end].cast(code).to_physical().cast(pl.Int64).to_numpy() for end in PAIR)
    return source, target
