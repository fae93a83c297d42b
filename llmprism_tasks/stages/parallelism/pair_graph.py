"""Layout: what pairs are to each other in the graph of their job, and so what each of them is.

Gradients go round, pipelines go up and down a line; the largest pairs make the gradient groups, and what links two of
them is something else.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import graphs
from llmprism_tasks.stages.traffic.opposite import opposite

ENDS = ["src_addr", "dst_addr"]
AGREEING_NICS = 0.8
"""Ratio of a job's NICs whose groups must have one size for it to be the degree; the rest may have lost their pairs."""


def gradients_apart(pairs: pl.DataFrame, ring_share: float) -> pl.DataFrame:
    """Call synchronised pairs `other` that link two gradient groups: the embedding of first and last stage, norms.

    Links that touch about all NICs are gradients too: those of the dense layers, across the groups of each expert's
    replicas. The embedding touches two stages, which are all only where they are neighbours and its pair is a
    pipeline's. So is whatever links groups in a job with experts and without a pipeline.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`, `bytes_per_step`
    ring_share : a pair with this ratio of its busier end's largest pair is surely a ring of the gradients
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
    sure = pl.col("bytes_per_step") >= ring_share * pl.max_horizontal("src_addr_largest", "dst_addr_largest")
    if sized.select(sure.all()).item():
        return pairs
    group = components(sized.filter(sure).select("job_id", *ENDS))
    for end in ENDS:
        sized = sized.join(group.rename({"addr": end, "component": f"{end}_group"}), on=["job_id", end], how="left")
    joins = ~sure & (pl.col("src_addr_group") != pl.col("dst_addr_group")).fill_null(value=True)
    joining = sized.filter(joins).select("job_id", *ENDS)
    touched = (
        pl.concat([joining.select("job_id", addr=pl.col(end)) for end in ENDS])
        .group_by("job_id")
        .agg(touched=pl.col("addr").n_unique())
    )
    everywhere = (
        largest.group_by("job_id")
        .len()
        .join(touched, on="job_id")
        .filter(pl.col("touched") >= AGREEING_NICS * pl.col("len"))
    )
    apart = joining.join(everywhere, on="job_id", how="anti").with_columns(apart=True)
    return (
        pairs.join(apart, on=["job_id", *ENDS], how="left")
        .with_columns(kind=pl.when("apart").then(pl.lit("other")).otherwise("kind"))
        .drop("apart")
    )


ENDING_RANK = {"dp": 0, "pp": 1, "ep": 2, "cp": 2}
"""Kinds of pairs whose traffic ends the steps of their job, if no kind of a lower number is there."""


def ending(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs whose traffic ends the steps: `src_addr`, `dst_addr`.

    Those that synchronise gradients; in a job whose gradients leave no host, those of the pipeline; where there is none
    either, those of experts or of a context ring.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`
    """
    place = pl.col("kind").replace_strict(ENDING_RANK, default=None, return_dtype=pl.Int8)
    return pairs.filter(place == place.min().over("job_id")).select(ENDS)


def chains(pairs: pl.DataFrame) -> pl.DataFrame:
    """Find the pairs that synchronise, as it seems, and are a pipeline's: `job_id`, `src_addr`, `dst_addr`, `chain`.

    Where a job's gradients go unseen (one replica, or replicas inside hosts), its micro-batches look like steps. But
    gradients go round, and pipelines go up and down a line: three NICs or more, none with more than two neighbours,
    every pair answered by its reverse. Only pairs of one size count, for trees of gradient buckets have ends, too.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`, `distinct_sizes`; some of a pipeline's pairs may be `other`
    """
    one_size = pairs.filter(pl.col("distinct_sizes") == 1)
    back = opposite(one_size, key=("job_id",)).with_columns(answered=True)
    synchronises = pl.col("kind") == "dp"
    links = (
        pairs.join(back, on=["job_id", *ENDS], how="left")
        .with_columns(alike=(pl.col("distinct_sizes") == 1) & pl.col("answered").fill_null(value=False))
        .filter(synchronises | ((pl.col("kind") == "other") & pl.col("alike")))
    )
    chained = pl.lit(value=True).alias("chain")
    if links.filter("alike").is_empty():
        return links.select("job_id", *ENDS, chained).clear()
    labelled = links.join(
        components(links.select("job_id", *ENDS)), left_on=["job_id", "src_addr"], right_on=["job_id", "addr"]
    )
    group = ["job_id", "component"]
    nics = pl.col("src_addr").n_unique().over(group)
    line = (
        (nics > 2)
        & pl.col("alike").all().over(group)
        & synchronises.any().over(group)
        & (pl.len().over(group) == 2 * (nics - 1))
        & (pl.len().over(*group, "src_addr").max().over(group) == 2)
    )
    return labelled.filter(line).select("job_id", *ENDS, chained)


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
