"""Layout: what pairs are to each other in the graph of their job, and so what each of them is.

Gradients go round, pipelines go up and down a line; the largest pairs make the gradient groups, and what links two of
them is something else.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.methods import grouping

ENDS = ["src_addr", "dst_addr"]
RING_PEERS = 2
"""Receivers that a NIC has in a ring whose channels run through its host in two orders."""

NEARLY = 0.25
"""Ratio of its steps that a pair fills for it to be like those that fill most of them: where the collector merges
records, some pairs of one ring fall short."""

AGREEMENT = 0.8
"""Ratio of a job's NICs whose groups must have one size for it to be the degree; the rest may have lost their pairs."""


def gradients_apart(pairs: pl.DataFrame, ring_share: float) -> pl.DataFrame:
    """Call synchronised pairs `other` that link two gradient groups: the embedding of first and last stage, norms.

    Links that touch about all NICs are gradients too: those of the dense layers, across the groups of each expert's
    replicas. The embedding touches two stages, which are all only where they are neighbours and its pair is a
    pipeline's.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`, `bytes_per_step`
    ring_share : a pair with this ratio of its busier end's largest pair is surely a ring of the gradients
    """
    synchronised = pairs.filter(pl.col("kind") == "dp")
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
        .filter(pl.col("touched") >= AGREEMENT * pl.col("len"))
    )
    apart = joining.join(everywhere, on="job_id", how="anti").with_columns(apart=True)
    return (
        pairs.join(apart, on=["job_id", *ENDS], how="left")
        .with_columns(kind=pl.when("apart").then(pl.lit("other")).otherwise("kind"))
        .drop("apart")
    )


def filling(pairs: pl.DataFrame, same_size: float) -> pl.DataFrame:
    """Say what `filling` pairs are, whose traffic of recurring sizes goes on through the step.

    Where no other pair of the job synchronises gradients in one burst, or those that do reduce tensors of the same
    shape (in the same precision or the double), they are the parameters of fully sharded data parallelism (`dp`). Else
    they are rings of context parallelism (`cp`), or, where a NIC has more such peers than a ring, experts with balanced
    loads (`ep`).

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`, `common_size`, `burst_size` (bytes), `filling` (ratio of steps)
    same_size : ratio by which sizes of one tensor may differ
    """
    fills = pl.col("kind") == "filling"
    peers = pl.col("dst_addr").filter(fills).n_unique().over("job_id", "src_addr")
    ring = pl.when(peers > RING_PEERS).then(pl.lit("ep")).otherwise(pl.lit("cp"))
    synchronised = pairs.filter(pl.col("kind") == "dp")
    nearly = synchronised.filter(pl.col("filling") >= NEARLY)
    gradients = pl.concat(
        [synchronised.select("job_id", reduced="burst_size"), nearly.select("job_id", reduced="common_size")]
    ).unique()
    ratio = pl.col("reduced") / pl.col("common_size")
    alike = pl.any_horizontal((ratio / precision - 1).abs() <= same_size for precision in (1, 2))
    sharded = (
        pairs.filter(fills)
        .join(gradients, on="job_id")
        .group_by("job_id")
        .agg(sharded=alike.fill_null(value=False).any())
    )
    bursts = (pl.col("kind") == "dp").any().over("job_id")
    return (
        pairs.join(sharded, on="job_id", how="left")
        .with_columns(
            kind=pl.when(fills & bursts & ~pl.col("sharded"))
            .then(ring)
            .when(fills)
            .then(pl.lit("dp"))
            .otherwise("kind")
        )
        .drop("sharded")
    )


def ending(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs whose traffic ends the steps: `src_addr`, `dst_addr`.

    Those that synchronise gradients; in a job whose gradients leave no host, those of the pipeline.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`
    """
    silent = ~(pl.col("kind") == "dp").any().over("job_id")
    return pairs.filter((pl.col("kind") == "dp") | (silent & (pl.col("kind") == "pp"))).select(ENDS)


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
    back = one_size.select("job_id", src_addr="dst_addr", dst_addr="src_addr", answered=pl.lit(value=True))
    synchronises = pl.col("kind") == "dp"
    links = (
        pairs.join(back, on=["job_id", *ENDS], how="left")
        .with_columns(alike=(pl.col("distinct_sizes") == 1) & pl.col("answered").fill_null(value=False))
        .filter(synchronises | ((pl.col("kind") == "other") & pl.col("alike")))
    )
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
    return labelled.filter(line).select("job_id", *ENDS, chain=pl.lit(value=True))


def components(links: pl.DataFrame) -> pl.DataFrame:
    """Label the NICs of each job that links join: `job_id`, `addr`, `component`.

    Parameters
    ----------
    links : `job_id`, `src_addr`, `dst_addr`
    """
    ends = pl.concat([links.select("job_id", addr=pl.col(end)) for end in ENDS]).unique().sort("job_id", "addr")
    numbered = ends.with_row_index("node")
    for end in ENDS:
        links = links.join(numbered.rename({"addr": end, "node": f"{end}_node"}), on=["job_id", end])
    left, right = (links[f"{end}_node"].cast(pl.Int64).to_numpy() for end in ENDS)
    labels = grouping.connected_components(left, right, ends.height)
    return ends.with_columns(component=pl.Series(labels))
