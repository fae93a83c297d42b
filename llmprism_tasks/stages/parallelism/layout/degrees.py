"""Degrees: from the graph of a job's pairs to its degrees of parallelism.

Pipelines link the gradient groups of neighbouring stages; a group holds the replicas of one place in the model, those
of `dp` and of `cp`. Where a pipeline is fed from both ends (DualPipe), each GPU holds a stage counted from either end,
so the first and the last of a line reduce the same gradients, and a group holds the replicas of two places. What is
left of the job is tensor parallelism, which stays inside hosts, or inside racks that are joined by NVLink: these show
as islands, whose hosts exchange nothing over the network.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.layout.chain_order import number_line_nodes
from llmprism_tasks.stages.parallelism.layout.dp_groups import NIC, Rings, expert_groups, groups_of, nodes, rings
from llmprism_tasks.stages.parallelism.pair_graph import AGREEING_NICS, ENDS
from llmprism_tasks.stages.step_division.groups.balance import MAIN_LINK_BYTES
from llmprism_tasks.stages.traffic.clusters import islands_of_jobs


def likeliest(
    pairs: pl.DataFrame, job_members: pl.DataFrame, topology: pl.DataFrame, peers: pl.DataFrame
) -> tuple[pl.DataFrame, Rings]:
    """Infer the degrees of each job from the one of two hypotheses that its peers confirm.

    Members of a gradient group in one host are those that hops between rails link, or those that are apart by their
    peers though each rail has hops of its own. Where peers, which work in lock-step, are fewer than both say, `tp` and
    `dp` are NULL, and so they are where nobody knows how many peers there are. There may be more of them: replicas that
    wait for each other in every layer are in lock-step, too.

    Parameters
    ----------
    pairs, job_members, topology : as for `rings`
    peers : as `lock_step.peers` returns

    Returns
    -------
    as `degrees` does, with `peers`; and the groups that go with it
    """
    seen = rings(pairs, job_members, topology)
    # Islands are one job because all of them begin together: who is in lock-step in one host is so with the others'.
    peers = (
        peers.join(_islands(pairs, seen.nics), on="job_id", how="left")
        .with_columns(pl.col("peers") * pl.col("islands").fill_null(1))
        .drop("islands")
    )
    laid = degrees(pairs, seen, peers)
    unlike = laid.join(peers, on="job_id").filter(pl.col("peers") < pl.col("tp")).select("job_id")
    if not unlike.is_empty():
        some = [frame.join(unlike, on="job_id", how="semi") for frame in (pairs, job_members)]
        apart = rings(some[0], job_members, topology, peers.join(unlike, on="job_id", how="semi"))
        other = degrees(some[0], apart, peers).join(peers, on="job_id")
        better = other.filter(pl.col("tp") == pl.col("peers")).select("job_id")
        laid = _replace_rows_of_jobs(laid, other.drop("peers"), better)
        seen = Rings(
            *(
                _replace_rows_of_jobs(*both, better)
                for both in zip(_ring_frames(seen), _ring_frames(apart), strict=True)
            )
        )
    told = laid.join(peers.with_columns(asked=pl.lit(value=True)), on="job_id", how="left")
    contrary = pl.when("asked").then(pl.col("tp") > pl.col("peers").fill_null(1)).fill_null(value=False)
    return told.with_columns(pl.when(~contrary).then(pl.col("tp", "dp", "ep"))).drop("asked"), seen


def unless_sharded(
    laid: pl.DataFrame, sharded: pl.DataFrame, pairs: pl.DataFrame, *, same_bytes: float, every_step: float
) -> pl.DataFrame:
    """Keep `tp`, `dp` and `cp` of jobs whose parameters are not gathered layer by layer, or that surely share them.

    Replicas that share parameters meet in every layer, as tensor-parallel peers do. A ring through all GPUs of hosts
    leaves a host at the NIC where it came in, a channel at each NIC (NCCL_CROSS_NIC=0, NCCL user guide): what is seen
    is the same as one ring for each place in the hosts.

    A ring that goes on through the step may be one of gradients along which blocks of context go, so `cp` is NULL;
    where as much goes one way round as the other, gathers and reductions do. Where most of its bytes come in one burst
    in more than a few steps, `dp` is NULL, too: gathers and the reductions between them fill every step, and of rings
    that do, most gather. Where there are experts or stages, too, these say more of the job than its rings.

    Parameters
    ----------
    laid : as `degrees` returns
    sharded : `job_id`, `sharded`, as `job_profile.sharded` returns
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`, `bytes_per_step`, `filling`
    same_bytes : ratio by which the bytes of both directions may differ
    every_step : ratio of the steps in which something has to be so to be so in every step
    """
    gathered = pl.col("job_id").is_in(sharded.filter("sharded")["job_id"].implode())
    mixed = pl.col("job_id").is_in(pairs.filter(pl.col("kind").is_in(["ep", "pp"]))["job_id"].implode())
    both_ways, filled = (
        pl.col("job_id").is_in(some.implode()) for some in _gathering_jobs(pairs, same_bytes, every_step)
    )
    peers = (gathered & (pl.col("tp") > 1)).fill_null(value=False)
    blocks = gathered & ~mixed & ~both_ways
    return laid.with_columns(
        pl.when(~peers).then("tp"), pl.when(~peers & ~(blocks & ~filled)).then("dp"), pl.when(~blocks).then("cp")
    )


def _gathering_jobs(pairs: pl.DataFrame, same_bytes: float, every_step: float) -> tuple[pl.Series, pl.Series]:
    """Return the jobs of which most gradients' pairs carry as much as the one that goes the other way, and those of
    which most fill every step."""
    reducing = pairs.filter(pl.col("kind") == "dp").select("job_id", *ENDS, "bytes_per_step", "filling")
    back = reducing.select("job_id", src_addr="dst_addr", dst_addr="src_addr", back="bytes_per_step")
    alike = (pl.col("bytes_per_step") / pl.col("back")).log().abs() <= np.log1p(same_bytes)
    fills = pl.col("filling") >= every_step
    ratios = (
        reducing.join(back, on=["job_id", *ENDS], how="left")
        .group_by("job_id")
        .agg(alike=alike.fill_null(value=False).mean(), filled=fills.mean())
    )
    both_ways, filled = (ratios.filter(pl.col(name) >= MAJORITY)["job_id"] for name in ("alike", "filled"))
    return both_ways, filled


def _ring_frames(seen: Rings) -> tuple[pl.DataFrame, ...]:
    return seen.nics, seen.groups, seen.unclear


def _replace_rows_of_jobs(rows: pl.DataFrame, others: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """Take the rows of some jobs from another table."""
    return pl.concat([rows.join(jobs, on="job_id", how="anti"), others.join(jobs, on="job_id", how="semi")])


def degrees(pairs: pl.DataFrame, rings: Rings, peers: pl.DataFrame | None = None) -> pl.DataFrame:
    """Infer the degrees of each job; NULL where its pairs do not agree on them, or do not cover the job.

    What the product of `pp` and the gradient groups' size leaves is `tp`, if a host has as many, or one host of each
    island of pipelines together; islands without pipelines are as likely to share parameters inside racks. GPUs whose
    NICs are silent because rings pass by them are counted; where it does not show how far the members of a group are
    apart in a host, or where most of a pipeline's pairs end in one group, nothing is known. If a host holds several
    members of a gradient group, context and expert parallelism may stay inside it unseen: without pairs of theirs, `cp`
    and `ep` are NULL, and `dp` counts them as replicas. So may replicas of a job that shows just a pipeline: GPUs of a
    host that work in lock-step are peers, and where nobody knows which do, `tp` and `dp` are NULL.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`; jobs without pairs of a known kind are absent from the result
    rings : as `groups.rings` returns
    peers : as `lock_step.peers` returns; without it nobody is asked

    Returns
    -------
    `job_id`, `tp`, `pp`, `dp`, `cp`, `ep`, and `agreement`: ratio of the NICs whose groups have those sizes
    """
    nics, groups = rings.nics, _apart_by_places(rings.groups, pairs)
    members = nics.group_by("job_id").agg(endpoints=pl.len()).join(_most_members_per_host(nics), on="job_id")
    known = members.join(pairs.filter(pl.col("kind") != "other").select("job_id").unique(), on="job_id", how="semi")
    links = pipeline_links(pairs, groups)
    table = known
    for name, sizes in (
        ("group", _group_sizes(groups)),
        ("pp", pipeline_lengths(pairs, links, groups)),
        ("cp", _group_sizes(groups_of(context_pairs(pairs), nics))),
        ("ep", _group_sizes(expert_groups(pairs, groups, nics))),
    ):
        table = table.join(_most_common_size(sizes, name), on="job_id", how="left")
    sharing = _most_group_members_per_host(groups, nics)
    table = table.join(_islands(pairs, nics), on="job_id", how="left").join(sharing, on="job_id", how="left")
    table = table.with_columns(
        pl.col("widest") * pl.when(pl.col("pp_nics") > 0).then("islands").fill_null(1),
        *(
            pl.when(pl.col(f"{name}_nics").is_null())
            .then(unseen)
            .when(pl.col(f"{name}_nics") >= AGREEING_NICS * pl.col("endpoints"))
            .then(name)
            .alias(name)
            for name, unseen in (("group", 1), ("pp", 1), ("cp", _one_unless_hidden()), ("ep", _one_unless_hidden()))
        ),
        agreement=pl.min_horizontal(
            (pl.col(f"{name}_nics") / pl.col("endpoints")).fill_null(1.0) for name in ("group", "pp", "cp", "ep")
        ),
    )
    contrary = pl.concat([rings.unclear, _jobs_with_contrary_groups(pairs, links)]).unique()
    known_degrees = _keep_fitting_degrees(
        table.join(contrary.with_columns(contrary=pl.lit(value=True)), on="job_id", how="left").with_columns(
            group=pl.when(pl.col("contrary").is_null()).then("group")
        )
    )
    alone = table.filter(pl.col("group_nics").is_null(), pl.col("pp_nics").is_not_null()).select("job_id")
    return known_degrees if peers is None else _divide_tp_and_dp(known_degrees, alone, peers)


def _apart_by_places(groups: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Part the gradient groups of pipelines that are fed from both ends by the places in their lines."""
    piped = pairs.filter(pl.col("kind") == "pp")
    hops = piped.select("job_id", low=pl.min_horizontal(ENDS), high=pl.max_horizontal(ENDS))
    lines = number_line_nodes(hops).rename({"node": "addr"}).join(groups, on=NIC)
    line = ["job_id", "pipeline"]
    mirrored = (pl.col("group") == pl.col("group").reverse().over(line, order_by="place")) & (pl.col("size") % 2 == 0)
    # Of the group in the middle, too, there are two places alone: one in which all are is no stage.
    apart = pl.col("group").n_unique().over(line) * 2 == pl.col("size")
    verdicts = lines.with_columns(both=(mirrored & apart & (pl.len().over(line) == pl.col("size"))).all().over(line))
    ends = verdicts.filter("both").with_columns(half=pl.col("place") * 2 >= pl.col("size"))
    parted = groups.join(ends.select(*NIC, "half"), on=NIC, how="left")
    return parted.with_columns(
        group=pl.struct("group", pl.col("half").fill_null(value=False)).rank("dense").cast(pl.Int64)
    ).drop("half")


def _divide_tp_and_dp(laid: pl.DataFrame, alone: pl.DataFrame, peers: pl.DataFrame) -> pl.DataFrame:
    """Divide the GPUs that share a stage and a host into peers and replicas, of jobs that show a pipeline alone."""
    told = laid.join(alone.with_columns(alone=pl.lit(value=True)), on="job_id", how="left").join(
        peers, on="job_id", how="left"
    )
    hidden = pl.col("alone") & (pl.col("tp") > 1)
    fits = (pl.col("tp") % pl.col("peers") == 0).fill_null(value=False)
    replicas = hidden & (pl.col("peers") != pl.col("tp")).fill_null(value=True)
    return told.with_columns(
        tp=pl.when(~hidden.fill_null(value=False)).then("tp").when(fits).then("peers"),
        dp=pl.when(~hidden.fill_null(value=False)).then("dp").when(fits).then(pl.col("tp") // pl.col("peers")),
        **{name: pl.when(~replicas.fill_null(value=False)).then(name) for name in ("cp", "ep")},
    ).drop("alone", "peers")


def _jobs_with_contrary_groups(pairs: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs whose gradient groups cannot be: `job_id`.

    A group is in one stage, but most of the pipeline's pairs are in one group.
    """
    piped = pairs.filter(pl.col("kind") == "pp").group_by("job_id").len("piped")
    linked = links.group_by("job_id").len("linked")
    return (
        piped.join(linked, on="job_id", how="left")
        .filter(pl.col("linked").fill_null(0) < MAJORITY * pl.col("piped"))
        .select("job_id")
    )


def _one_unless_hidden() -> pl.Expr:
    return pl.when(pl.col("sharing").fill_null(1) == 1).then(1)


def context_pairs(pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs over which context-parallel rings pass blocks of keys and values.

    A ring of gradients through several context-parallel groups goes over most hops of theirs. Then the pairs that carry
    blocks alone leave these open, and the others are those that carry more than gradients: by most of the blocks.

    Parameters
    ----------
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`, and where steps are known `bytes_per_step`
    """
    blocks = pairs.filter(pl.col("kind") == "cp")
    if blocks.is_empty() or "bytes_per_step" not in pairs.columns:
        return blocks
    sending, receiving = (blocks.select("job_id", addr=end).unique() for end in ENDS)
    is_open = pl.concat(
        [sending.join(receiving, on=NIC, how="anti"), receiving.join(sending, on=NIC, how="anti")]
    ).select("job_id")
    of_blocks = blocks.group_by("job_id").agg(blocks=pl.col("bytes_per_step").median())
    gradients = pairs.filter(pl.col("kind") == "dp").join(is_open.unique(), on="job_id", how="semi")
    # What carries next to nothing is another ring, such as that of the gradients' norm.
    main = pl.col("bytes_per_step") >= MAIN_LINK_BYTES * pl.col("bytes_per_step").max().over("job_id")
    more = pl.col("bytes_per_step") - pl.col("bytes_per_step").filter(main).min().over("job_id")
    both = gradients.join(of_blocks, on="job_id").filter(more >= MAJORITY * pl.col("blocks")).drop("blocks")
    return pl.concat([blocks, both])


def _keep_fitting_degrees(table: pl.DataFrame) -> pl.DataFrame:
    """Keep the degrees that multiply to the job: `tp` is what the others leave."""
    tp = pl.col("endpoints") // (pl.col("pp") * pl.col("group"))
    fits = (tp * pl.col("pp") * pl.col("group") == pl.col("endpoints")) & (tp <= pl.col("widest"))
    within = pl.when(pl.col("cp_nics").is_null()).then(1).otherwise("cp")
    dp = pl.when(pl.col("group") % within == 0).then(pl.col("group") // within)
    return table.select(
        "job_id",
        tp=pl.when(fits).then(tp),
        pp=pl.when(fits).then("pp"),
        dp=pl.when(fits).then(dp),
        cp=pl.when(fits & dp.is_not_null()).then("cp"),
        ep=pl.when(fits & (pl.col("group") % pl.col("ep") == 0)).then("ep"),
        agreement=pl.col("agreement").cast(pl.Float64),
    )


def pipeline_lengths(pairs: pl.DataFrame, links: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Return how many gradient groups are linked to a pipeline, for each NIC in one: `job_id`, `addr`, `size`.

    Parameters
    ----------
    links : as `pipeline_links` returns
    groups : the gradient groups; a NIC without one is a group of its own
    """
    linked = pair_graph.components(links.select("job_id", *ENDS).unique())
    sizes = linked.with_columns(size=pl.len().over("job_id", "component").cast(pl.Int64)).select(
        "job_id", "size", node="addr"
    )
    ends = pairs.filter(pl.col("kind") == "pp")
    nics = pl.concat([ends.select("job_id", addr=end) for end in ENDS] + [groups.select(NIC)]).unique()
    return nodes(nics, groups).join(sizes, on=["job_id", "node"]).select(*NIC, "size")


def pipeline_links(pairs: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Return the pipeline's pairs between gradient groups: `pairs` with `src_addr`, `dst_addr` now naming groups, and
    `sender`, `receiver`.

    A pair within one group is a message that was relayed on its receiver's side, which says nothing about the order.
    """
    links = pairs.filter(pl.col("kind") == "pp").with_columns(sender="src_addr", receiver="dst_addr")
    for end in ENDS:
        named = nodes(links.select("job_id", addr=end).unique(), groups).rename({"addr": end, "node": f"{end}_node"})
        links = links.join(named, on=["job_id", end])
    return links.with_columns(src_addr="src_addr_node", dst_addr="dst_addr_node").filter(
        pl.col("src_addr") != pl.col("dst_addr")
    )


def _group_sizes(groups: pl.DataFrame) -> pl.DataFrame:
    return groups.select("job_id", "addr", size=pl.len().over("job_id", "group").cast(pl.Int64))


def _most_group_members_per_host(groups: pl.DataFrame, job_members: pl.DataFrame) -> pl.DataFrame:
    """Return how many members of one gradient group a host holds at most: `job_id`, `sharing`."""
    placed = groups.join(job_members.select("job_id", "addr", "host"), on=NIC)
    return placed.group_by("job_id", "group", "host").len().group_by("job_id").agg(sharing=pl.col("len").max())


def _most_members_per_host(job_members: pl.DataFrame) -> pl.DataFrame:
    return job_members.group_by("job_id", "host").len().group_by("job_id").agg(widest=pl.col("len").max())


def _islands(pairs: pl.DataFrame, nics: pl.DataFrame) -> pl.DataFrame:
    """Return how many islands, which exchange nothing, the hosts of each job make: `job_id`, `islands`."""
    joined = islands_of_jobs(pairs, nics)
    return joined.group_by("job_id").agg(islands=pl.col("island").n_unique().cast(pl.Int64))


def _most_common_size(sizes: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return the size that holds for most NICs of each job, and for how many."""
    return (
        sizes.group_by("job_id", "size")
        .agg(nics=pl.len())
        .sort("job_id", "nics", "size")
        .group_by("job_id", maintain_order=True)
        .last()
        .select("job_id", pl.col("size").alias(name), pl.col("nics").alias(f"{name}_nics"))
    )
