"""Which flows matter to a job: those between GPU NICs, bulk data apart from control messages."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import TrafficSettings


def between_gpus(flows: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    """Keep the flows whose both ends are known NICs.

    Parameters
    ----------
    flows : the flows table's columns
    nics : `addr` and what is to be known of it: columns of the topology or of job_members

    Returns
    -------
    flows, with `src_…` and `dst_…` for every further column of `nics`
    """
    described = [column for column in nics.columns if column != "addr"]
    for end in ("src", "dst"):
        renamed = nics.rename({"addr": f"{end}_addr"} | {column: f"{end}_{column}" for column in described})
        flows = flows.join(renamed, on=f"{end}_addr", how="inner")
    return flows


def bulk(flows: pl.DataFrame, settings: TrafficSettings) -> pl.DataFrame:
    """Keep the flows that carry data: handshakes, scalars and "ready" messages are smaller than any tensor that counts."""
    return flows.filter(pl.col("bytes") > settings.control_bytes)


def inside_jobs(flows: pl.DataFrame, job_members: pl.DataFrame) -> pl.DataFrame:
    """Keep the flows between two members of one job, with its `job_id`."""
    nics = job_members.select("addr", "job_id")
    known = between_gpus(flows, nics)
    return known.filter(pl.col("src_job_id") == pl.col("dst_job_id")).rename({"src_job_id": "job_id"}).drop("dst_job_id")


def by_endpoint(flows: pl.DataFrame) -> pl.DataFrame:
    """Return every flow twice, once for each of its ends, as `addr` (with the other end as `peer`)."""
    return pl.concat(
        [
            flows.with_columns(addr=pl.col(own), peer=pl.col(other), sends=pl.lit(sends))
            for own, other, sends in (("src_addr", "dst_addr", True), ("dst_addr", "src_addr", False))
        ]
    )
