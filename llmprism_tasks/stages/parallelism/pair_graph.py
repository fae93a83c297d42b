"""Layout: what pairs are to each other in the graph of their job, and so what each of them is.

Gradients go round, pipelines go up and down a line; the largest pairs make the gradient groups, and what links two of
them is something else.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import graphs

ENDS = ["src_addr", "dst_addr"]
AGREEING_NICS = 0.8
"""Ratio of a job's NICs whose groups must have one size for it to be the degree; the rest may have lost their pairs."""


def gradients_apart(pairs: pl.DataFrame, ring_share: float, same_size: float) -> pl.DataFrame:
    """Call synchronised pairs `other` that link two gradient groups: the embedding of first and last stage, norms.

    Links that touch about all NICs are gradients too: those of the dense layers, across the groups of each expert's
    replicas, or of shards, across the groups of hosts that hold all of them. NICs with no larger ring are in none that
    is linked. The embedding touches two stages, which are all only where they are neighbours and its pair is a
    pipeline's. So is whatever links groups in a job with experts and without a pipeline.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`, `bytes_per_step`
    ring_share : a pair with this ratio of its busier end's largest pair is surely a ring of the gradients; so is one
        that does with the blocks of context that the largest pair carries as well
    same_size : ratio by which bytes of one ring may differ
    """
    experts, staged = ((pl.col("kind") == kind).any().over("job_id") for kind in ("ep", "pp"))
    synchronised = pairs.filter((staged | ~experts) & (pl.col("kind") == "dp"))
    if synchronised.is_empty():
        return pairs
    largest = (
        pl.concat([synchronised.select("job_id", "bytes_per_step", addr=pl.col(end)) for end in ENDS])
        .group_by("job_id", "addr")
        .agg(largest=pl.col("bytes_per_step").max())
    )
    sized = synchronised
    for end in ENDS:
        sized = sized.join(largest.rename({"addr": end, "largest": f"{end}_largest"}), on=["job_id", end])
    busiest = pl.max_horizontal("src_addr_largest", "dst_addr_largest")
    blocks = pairs.filter(pl.col("kind") == "cp").select("job_id", blocks="bytes_per_step").unique().sort("blocks")
    sized = (
        sized.with_columns(less=busiest - pl.col("bytes_per_step"))
        .sort("less")
        .join_asof(blocks, left_on="less", right_on="blocks", by="job_id", strategy="nearest", check_sortedness=False)
    )
    shared = (pl.col("less") - pl.col("blocks")).abs() <= same_size * pl.col("bytes_per_step")
    sure = (pl.col("bytes_per_step") >= ring_share * busiest) | shared.fill_null(value=False)
    if sized.select(sure.all()).item():
        return pairs
    group = components(sized.filter(sure).select("job_id", *ENDS))
    for end in ENDS:
        sized = sized.join(group.rename({"addr": end, "component": f"{end}_group"}), on=["job_id", end], how="left")
    joins = ~sure & (pl.col("src_addr_group") != pl.col("dst_addr_group")).fill_null(value=True)
    joining = sized.filter(joins).select("job_id", *ENDS, "bytes_per_step")
    touched = (
        pl.concat([joining.select("job_id", "bytes_per_step", addr=pl.col(end)) for end in ENDS])
        .group_by("job_id")
        .agg(touched=pl.col("addr").n_unique(), joined=pl.col("bytes_per_step").max())
    )
    everywhere = (
        largest.join(touched, on="job_id")
        .group_by("job_id")
        .agg(pl.col("touched").first(), ringed=(pl.col("largest") > pl.col("joined")).sum())
        .filter(pl.col("touched") >= AGREEING_NICS * pl.col("ringed"))
    )
    apart = joining.select("job_id", *ENDS).join(everywhere, on="job_id", how="anti").with_columns(apart=True)
    return (
        pairs.join(apart, on=["job_id", *ENDS], how="left")
        .with_columns(kind=pl.when("apart").then(pl.lit("other")).otherwise("kind"))
        .drop("apart")
    )


ENDING_RANK = {"dp": 0, "pp": 1, "ep": 2, "cp": 2}
"""Kinds of pairs whose traffic ends the steps of their job, if no kind of a lower number is there."""


def ending(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs whose traffic ends the steps: `src_addr`, `dst_addr`, `kind`.

    Those that synchronise gradients; in a job whose gradients leave no host, those of the pipeline; where there is none
    either, those of experts or of a context ring.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`
    """
    place = pl.col("kind").replace_strict(ENDING_RANK, default=None, return_dtype=pl.Int8)
    return pairs.filter(place == place.min().over("job_id")).select(*ENDS, "kind")


def components(links: pl.DataFrame) -> pl.DataFrame:
    """Label the NICs of each job that links join: `job_id`, `addr`, `component`.

    Parameters
    ----------
    links : `job_id`, `src_addr`, `dst_addr`
    """
    ends = pl.concat([links.select("job_id", addr=pl.col(end)) for end in ENDS])
    numbers = ends.select(pl.struct("job_id", "addr").rank("dense").cast(pl.Int64) - 1).to_series().to_numpy()
    met, first = np.unique(numbers, return_index=True)
    labels = graphs.connected_components(numbers[: links.height], numbers[links.height :], met.size)
    return ends[first].with_columns(component=pl.Series(labels))
