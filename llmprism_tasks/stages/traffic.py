"""Which flows matter to a job: those between GPU NICs, bulk data apart from control messages."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import TrafficSettings

NEEDED = ["window_start_ns", "flow_start_ns", "flow_end_ns", "src_addr", "dst_addr", "bytes"]
"""Columns of flows that the stages look at; the others only cost memory when rows are sorted and joined."""


def between_gpus(flows: pl.DataFrame, nics: pl.DataFrame, *, paths: bool = False) -> pl.DataFrame:
    """Keep the flows whose both ends are known NICs.

    Parameters
    ----------
    flows : the flows table's columns
    nics : `addr` and what is to be known of it: columns of the topology or of job_members
    paths : whether `switch_path` is needed

    Returns
    -------
    flows with the columns `NEEDED`, and with `src_…` and `dst_…` for every further column of `nics`
    """
    flows = flows.select(*NEEDED, *(["switch_path"] if paths else []))
    described = [column for column in nics.columns if column != "addr"]
    for end in ("src", "dst"):
        renamed = nics.rename({"addr": f"{end}_addr"} | {column: f"{end}_{column}" for column in described})
        flows = flows.join(renamed, on=f"{end}_addr", how="inner")
    return flows


def bulk(flows: pl.DataFrame, settings: TrafficSettings) -> pl.DataFrame:
    """Keep the flows that carry data: handshakes, scalars and "ready" messages are smaller than any tensor that
    counts."""
    return flows.filter(pl.col("bytes") > settings.control_bytes)


def inside_jobs(flows: pl.DataFrame, job_members: pl.DataFrame, *, paths: bool = False) -> pl.DataFrame:
    """Keep the flows between two members of one job, with its `job_id`."""
    nics = job_members.select("addr", "job_id")
    known = between_gpus(flows, nics, paths=paths)
    return (
        known.filter(pl.col("src_job_id") == pl.col("dst_job_id")).rename({"src_job_id": "job_id"}).drop("dst_job_id")
    )


def by_pair(flows: pl.DataFrame, *within: str) -> pl.DataFrame:
    """Sort flows so that those of a pair lie together, within it by columns of numbers.

    Pairs come in no particular order: to sort text would cost ten times as much.
    """
    source, target = (pl.col(end).cast(pl.Categorical).to_physical().cast(pl.Int64) for end in ("src_addr", "dst_addr"))
    return flows.sort(*within).sort(source * 2**32 + target, maintain_order=True)


def by_endpoint(flows: pl.DataFrame) -> pl.DataFrame:
    """Return every flow twice, once for each of its ends, as `addr` (with the other end as `peer`)."""
    return pl.concat(
        [
            flows.with_columns(addr=pl.col(own), peer=pl.col(other), sends=pl.lit(sends))
            for own, other, sends in (("src_addr", "dst_addr", True), ("dst_addr", "src_addr", False))
        ]
    )
