"""Clusters: NICs, and hosts, joined by pairs, as connected components of the graph of pairs."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import graphs
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.traffic.nic_pairs import PAIR


def connected_nics(pairs: pl.DataFrame, linking: pl.DataFrame) -> pl.DataFrame:
    """Number the NICs of pairs by the clusters that the linking ones among them make: `addr`, `cluster`."""
    addrs = addresses(pairs)
    left, right = numbered_ends(linking, addrs)
    return pl.DataFrame({"addr": addrs, "cluster": graphs.connected_components(left, right, addrs.len())})


def islands_of_jobs(pairs: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Number the hosts of jobs by the islands that their pairs make: `job_id`, `host`, `island`; others are absent.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, as text
    members : `job_id`, `addr`, `host`; an end outside them joins nothing
    """
    placed = members.select("job_id", "addr", place=pl.struct("job_id", "host").rank("dense").cast(pl.Int64) - 1)
    links = pairs.select("job_id", *PAIR)
    for end in PAIR:
        links = links.join(placed.rename({"addr": end, "place": f"{end}_place"}), on=["job_id", end])
    source, target = (links[f"{end}_place"].to_numpy() for end in PAIR)
    labels = graphs.connected_components(source, target, placed["place"].n_unique())
    hosts = members.select("job_id", "host", place=placed["place"]).unique().sort("place")
    known = hosts.with_columns(island=pl.Series(labels))
    return known.filter(pl.col("place").is_in(np.unique([source, target]))).drop("place")


def addresses(pairs: pl.DataFrame) -> pl.Series:
    """Return the NICs of pairs, each once, in order."""
    return pl.concat([pairs[end].alias("addr") for end in PAIR]).unique().sort()


def numbered_ends(pairs: pl.DataFrame, addrs: pl.Series) -> tuple[Integers, Integers]:
    """Return the places of both ends of pairs among the NICs."""
    code = pl.Enum(addrs.cast(pl.String))
    source, target = (pairs[end].cast(code).to_physical().cast(pl.Int64).to_numpy() for end in PAIR)
    return source, target
