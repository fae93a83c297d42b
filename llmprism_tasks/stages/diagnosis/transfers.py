"""Transfers: how fast the parts of a job move their data, cleared of the waiting inside them.

A record's duration holds waiting, for its peer or its ring, but never a rate above the path's. So the quickest
records of a part tell what its path can do. A ring has the pace of its slowest hop: it is one part, and each switch
on any hop may be why.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages.diagnosis.evidence import Evidence

PART = ["job_id", "kind", "part"]
QUICKEST = 0.2
"""Quantile of the durations per byte that stands for the path: low enough to hold no waiting, high enough to be no
fluke."""


def parts(evidence: Evidence, *, least_bytes: int, by_path: bool = False) -> pl.DataFrame:
    """Measure each data-parallel ring and each pipeline pair.

    Parameters
    ----------
    least_bytes : smaller records are too short to time, as are those that end when they start
    by_path : measure each of its paths by itself, since queue pairs are hashed to different spines and the quickest
        records would only tell of the best

    Returns
    -------
    sorted: `job_id`, `kind` (dp or pp), `part` (the ring's lowest address, or the pair), `now` and `before` (ns per
    byte, in the window and in the look-back; NULL without records), `records`, `switches` (all that its records of
    the window crossed; empty when not known); by path, also `path` (NULL when not known)
    """
    group = evidence.groups.with_columns(part=pl.col("addr").min().over("job_id", "component")).select(
        "job_id", "part", src_addr="addr"
    )
    timed = (pl.col("bytes") >= least_bytes) & (pl.col("flow_end_ns") > pl.col("flow_start_ns"))
    flows = evidence.flows.filter(pl.col("kind").is_in(["dp", "pp"]), timed).join(
        group, on=["job_id", "src_addr"], how="left"
    )
    pair = pl.concat_str("src_addr", "dst_addr", separator=" to ")
    now = pl.col("window_start_ns") == evidence.window.start_ns
    pace = (pl.col("flow_end_ns") - pl.col("flow_start_ns")) / pl.col("bytes")
    path = [pl.col("switch_path").list.join(" ").alias("path")] if by_path else []
    return (
        flows.with_columns(part=pl.when(pl.col("kind") == "pp").then(pair).otherwise("part"), pace=pace, now=now)
        .group_by(*PART, *path)
        .agg(
            now=pl.col("pace").filter("now").quantile(QUICKEST),
            before=pl.col("pace").filter(~pl.col("now")).quantile(QUICKEST),
            records=pl.col("now").sum(),
            switches=pl.col("switch_path").filter("now").explode().drop_nulls().unique().sort(),
        )
        .filter(pl.col("now").is_not_null())
        .sort(*PART, *(["path"] if by_path else []))
    )


def slow_parts(measured: pl.DataFrame, *, slow_rate: float, least_peers: int) -> pl.DataFrame:
    """Add `usual` (ns per byte) and `slow`: slower than the job's like parts, or, where those are few, than before."""
    peers = pl.col("now").median().over("job_id", "kind")
    enough = pl.len().over("job_id", "kind") >= least_peers
    usual = pl.min_horizontal(pl.when(enough).then(peers), "before")
    return measured.with_columns(usual=usual).with_columns(
        slow=(pl.col("now") >= slow_rate * pl.col("usual")).fill_null(value=False)
    )
