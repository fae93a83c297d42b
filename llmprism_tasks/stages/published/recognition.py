"""Recognition as published: connected components of all pairs of a window; clusters on similar hosts are one job.

LLMPrism (arXiv 2505.00342), stage 1. Any flow between two GPU NICs links them, and tenants are told apart only by the
hosts of their clusters.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics import graphs
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.recognition import phase as joint
from llmprism_tasks.stages.traffic import nic_pairs


def recognition(
    *, flows: pl.DataFrame, topology: pl.DataFrame, window: Window, settings: Settings
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Recognise the jobs at work in a window.

    Parameters
    ----------
    flows : the window's flows and those of its look-back, which are only used to name the jobs
    topology : `addr`, `host`, one row per GPU NIC; flows with other ends are ignored

    Returns
    -------
    jobs : `training` if on more than one host, else `other`; layout NULL
    job_members : NICs of each job
    """
    between = nic_pairs.named(nic_pairs.between_gpus(flows, topology.select("addr", "host")))
    pairs = between.filter(pl.col("window_start_ns") == window.start_ns).select("src_addr", "dst_addr").unique()
    if pairs.is_empty():
        return frames.empty("jobs"), frames.empty("job_members")
    members = joint.clusters(pairs, topology)
    members = members.join(same_hosts(members, settings.recognition.host_similarity), on="cluster")
    spread = members.group_by("job").agg(pl.col("host").n_unique()).filter(pl.col("host") > 1)
    return joint.tables(members, spread.select("job", confidence=pl.lit(1.0)), between, window)


def same_hosts(members: pl.DataFrame, similarity: float) -> pl.DataFrame:
    """Merge clusters whose sets of hosts have at least this Jaccard similarity: `cluster`, `job`.

    Parameters
    ----------
    members : `addr`, `host`, `cluster`
    similarity : ratio, above 0
    """
    hosts = members["host"].rank("dense").cast(pl.Int64).to_numpy()
    labels, rows = np.unique(members["cluster"].to_numpy(), return_inverse=True)
    return pl.DataFrame({"cluster": labels, "job": labels[graphs.merge_by_jaccard(rows, hosts, similarity)]})
