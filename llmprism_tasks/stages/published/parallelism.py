"""Parallelism identification as published: a pipeline pair repeats one size, a data-parallel pair has several.

LLMPrism (arXiv 2505.00342), stage 3: each step votes with its number of distinct sizes, and the most frequent number
decides. Within a connected component of data-parallel edges, every pair is data-parallel.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import PublishedSettings, Settings
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism import phase as joint
from llmprism_tasks.stages.published.step_division import JOB_PAIR, steps_until
from llmprism_tasks.stages.traffic import nic_pairs


def parallelism(
    *,
    flows: pl.DataFrame,
    topology: pl.DataFrame,
    jobs: pl.DataFrame,
    job_members: pl.DataFrame,
    window: Window,
    settings: Settings,
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Identify the kind of each pair; parameters and results as of the joint method's phase."""
    inside = nic_pairs.named(nic_pairs.inside_jobs(flows, job_members))
    kinds = pair_kinds(inside, window.end_ns, settings.published)
    return joint.tables(inside, kinds, None, jobs, job_members, topology, window, settings)


def pair_kinds(inside: pl.DataFrame, edge_ns: int, settings: PublishedSettings) -> pl.DataFrame:
    """Classify each pair by its steps that ended before `edge_ns`.

    Parameters
    ----------
    inside : flows with `job_id`

    Returns
    -------
    sorted: `job_id`, `src_addr`, `dst_addr`, `kind` (`pp` or `dp`), `distinct_sizes` (the most frequent count, the
    smallest of equally frequent ones) and `confidence` (share of the steps whose own count gives the same kind)
    """
    several = pl.col("distinct_sizes") > 1
    votes = (
        steps_until(inside, JOB_PAIR, edge_ns, settings)
        .filter("ended")
        .group_by(JOB_PAIR)
        .agg(several=several.mean(), distinct_sizes=pl.col("distinct_sizes").mode().min())
        .with_columns(dp=several)
    )
    groups = pair_graph.components(votes.filter("dp").select(JOB_PAIR))
    for end in pair_graph.ENDS:
        group = groups.rename({"addr": end, "component": f"{end}_group"})
        votes = votes.join(group, on=["job_id", end], how="left")
    dp = pl.col("dp") | (pl.col("src_addr_group") == pl.col("dst_addr_group")).fill_null(value=False)
    return votes.select(
        *JOB_PAIR,
        "distinct_sizes",
        kind=pl.when(dp).then(pl.lit("dp")).otherwise(pl.lit("pp")),
        confidence=pl.when(dp).then("several").otherwise(1 - pl.col("several")),
    ).sort(JOB_PAIR)
