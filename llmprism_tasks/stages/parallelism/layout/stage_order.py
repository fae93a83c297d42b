"""The order of a pipeline's stages, by who begins to reduce gradients first.

The last backward pass of a step goes up the pipeline, so the last stage begins to reduce its gradients first and the
first stage last, whatever the schedule and whoever is slow. In a job whose gradients are not seen, the direction that
is ahead tells (`chain_order`), or who sends first: a step's first micro-batch goes down the pipeline before anything
comes up, and the last stage's first message is a gradient, the latest of all.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.parallelism.layout import degrees
from llmprism_tasks.stages.parallelism.layout.chain_order import NODE, PIPELINE, in_lead
from llmprism_tasks.stages.parallelism.layout.dp_groups import nodes
from llmprism_tasks.stages.parallelism.pair_graph import AGREEING_NICS, ENDS


def pp_stages(
    sent: pl.DataFrame,
    flows: pl.DataFrame,
    pairs: pl.DataFrame,
    laid: pl.DataFrame,
    groups: pl.DataFrame,
    job_members: pl.DataFrame,
) -> pl.DataFrame:
    """Return the stage of each member: `job_id`, `addr`, `pp_stage`.

    NULL for all of a job whose replicas and rails do not agree: where messages go past a neighbour, stages are not
    equally large, tensor-parallel peers, which share a host, are in several, or the steps show one order and another.

    Parameters
    ----------
    sent : what pairs send in each step: `pair`, `step`, `first_ns`, `resumed_ns`, as `job_profile.by_step` returns
    flows : bulk flows of pipelines, with `pair` and `step`, in the order of `nic_pairs.numbered`
    pairs : `pair`, `job_id`, `src_addr`, `dst_addr`, `kind`; gradients that share their pairs with what goes on through
        the step, as tokens for experts do, say nothing of the order: they are left out
    laid : `job_id`, `tp`, `pp` (NULL when unknown)
    groups : gradient groups, as `gradient_groups` returns; a group is in one stage
    """
    links = degrees.pipeline_links(pairs, groups)
    unseen = links.join(pairs.filter(pl.col("kind") == "dp"), on="job_id", how="anti")
    known = flows.filter(pl.col("pair").is_in(unseen["pair"].implode()))
    pair, step, start = (known[name].to_numpy() for name in ("pair", "step", "flow_start_ns"))
    ahead = in_lead(pair, step, start, unseen)
    untold = unseen.join(ahead, left_on=["job_id", ENDS[0]], right_on=NODE, how="anti")
    turns = pl.concat([_backward_turns(sent, pairs, links, groups), _forward_turns(known, untold)])
    told = pl.concat([ahead, _order_by_turns(turns).select(ahead.columns)])
    order = told.join(laid.select("job_id", "pp"), on="job_id")
    sound = order.join(_unsound_pipelines(order, links), on=["job_id", "pipeline"], how="anti")
    placed = (
        nodes(job_members.select("job_id", "addr"), groups)
        .join(job_members.select("job_id", "addr", "host"), on=["job_id", "addr"])
        .join(laid.select("job_id", "tp", "pp"), on="job_id", how="left")
        .join(sound.select(*NODE, "place"), on=NODE, how="left")
        .with_columns(pp_stage=pl.when(pl.col("pp") == 1).then(0).otherwise("place"))
    )
    even = pl.len().over("job_id", "pp_stage") * pl.col("pp") == pl.len().over("job_id")
    inside = pl.col("tp") <= pl.len().over("job_id", "host")  # else peers share a rack, and no host
    peers = (pl.len().over("job_id", "host", "pp_stage") % pl.col("tp") == 0) | ~inside
    agree = (even & peers & pl.col("pp_stage").is_not_null()).fill_null(value=False).all().over("job_id")
    return placed.select("job_id", "addr", pp_stage=pl.when(agree).then("pp_stage").cast(pl.Int32))


def _backward_turns(sent: pl.DataFrame, pairs: pl.DataFrame, links: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Return by how much each node begins to reduce gradients before the others of its pipeline: NODE, `pipeline`,
    `step`, `turn_ns` (less for the first stage).

    A step may be told to end while parameters of a sharded optimizer are gathered, or before: gradients come after the
    longest silence of the pipeline.
    """
    reducing = pairs.filter(pl.col("kind") == "dp").select("pair", "job_id", addr="src_addr")
    of_nodes = nodes(reducing.select("job_id", "addr").unique(), groups)
    first = reducing.join(of_nodes, on=["job_id", "addr"]).join(sent, on="pair").join(_pipelines(links), on=NODE)
    moments = ["first_ns", "resumed_ns"]
    told = first.unpivot(moments, index=[*NODE, "addr", "pipeline", "step"], value_name="at_ns").drop("variable")
    begun = _counted_from_silence(told)
    return _centred_turns(begun.group_by(*NODE, "addr", "step").agg(turn_ns=-pl.col("at_ns").min()), links)


def _forward_turns(flows: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return when each node of a line first sends in a step, in the same way.

    Between its last gradient and the first activation of the next step, the first stage computes backward and forward:
    never is a pipeline silent for longer, so a step begins after the longest silence. Interleaved, the last stage
    hands on to the first, and it is not.
    """
    sending = links.select("pair", "job_id", "dst_addr", node="src_addr").join(_pipelines(links), on=NODE)
    hops = pl.struct("node", "dst_addr").n_unique().over(PIPELINE)
    lines = sending.filter(hops < 2 * pl.col("node").n_unique().over(PIPELINE)).drop("dst_addr")
    begun = _counted_from_silence(flows.join(lines, on="pair").rename({"flow_start_ns": "at_ns"}))
    return _centred_turns(begun.group_by(*NODE, "step").agg(turn_ns=pl.col("at_ns").min()), links)


def _counted_from_silence(messages: pl.DataFrame) -> pl.DataFrame:
    """Return what pipelines send (PIPELINE, `step`, `at_ns`, …) with the `step` in which it comes if each begins after
    its pipeline's longest silence in it; what comes before the first is left out."""
    in_order = messages.sort("at_ns")
    silence = pl.col("at_ns").diff().over(PIPELINE)
    begins = (
        in_order.with_columns(silence=silence)
        .group_by(*PIPELINE, "step")
        .agg(begin_ns=pl.col("at_ns").sort_by("silence", nulls_last=False).last())
        .sort("begin_ns")
    )
    return (
        in_order.drop("step")
        .join_asof(begins, left_on="at_ns", right_on="begin_ns", by=PIPELINE, coalesce=False, check_sortedness=False)
        .drop_nulls("step")
    )


def _pipelines(links: pl.DataFrame) -> pl.DataFrame:
    """Return which nodes are in one pipeline: NODE, `pipeline`."""
    return pair_graph.components(links.select("job_id", *ENDS).unique()).rename(
        {"addr": "node", "component": "pipeline"}
    )


def _centred_turns(first: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return `turn_ns` of each node and step, about the middle of its pipeline's: NODE, `pipeline`, `step`, `turn_ns`.

    The median over a stage's replicas is not moved by one that is slow.
    """
    middle = pl.col("turn_ns").median().over(*PIPELINE, "step")
    return (
        first.group_by(*NODE, "step")
        .agg(pl.col("turn_ns").median())
        .join(_pipelines(links), on=NODE)
        .select(*NODE, "pipeline", "step", turn_ns=pl.col("turn_ns") - middle)
    )


def _order_by_turns(turns: pl.DataFrame) -> pl.DataFrame:
    """Number the nodes of each pipeline by their turns: NODE, `pipeline`, `place`, `size` (of the pipeline).

    Nodes whose turns come together have one place, so their pipeline is not sound: nobody can say which is first.
    """
    typical = turns.group_by(*NODE, "pipeline").agg(pl.col("turn_ns").median())
    placed = typical.with_columns(
        place=pl.col("turn_ns").rank("min").over(PIPELINE).cast(pl.Int64) - 1,
        size=pl.len().over(PIPELINE).cast(pl.Int64),
    )
    before = pl.col("turn_ns").shift().over(*PIPELINE, "step", order_by="place")
    follows = turns.join(placed.select(*NODE, "place"), on=NODE).with_columns(follows=pl.col("turn_ns") > before)
    agreed = follows.group_by(PIPELINE).agg(pl.col("follows").mean())
    sure = placed.join(agreed.filter(pl.col("follows") >= AGREEING_NICS), on=PIPELINE, how="semi")
    return sure.select(*NODE, "pipeline", "place", "size")


def _unsound_pipelines(order: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return the pipelines whose messages do not go from neighbour to neighbour, all the way: `job_id`, `pipeline`.

    Interleaved, the last stage is the first one's neighbour.
    """
    places = order.select(*NODE, "pipeline", "place", "size", "pp")
    hops = links.select("job_id", *ENDS).unique()
    for end in ENDS:
        hops = hops.join(
            places.rename({"node": end, "place": f"{end}_place"}).select(
                "job_id", end, f"{end}_place", *(["pipeline", "size"] if end == "src_addr" else [])
            ),
            on=["job_id", end],
        )
    apart = (pl.col("dst_addr_place") - pl.col("src_addr_place")).abs()
    verdicts = hops.group_by("job_id", "pipeline").agg(
        leaps=((apart != 1) & (apart != pl.col("size") - 1)).any(),
        linked=pl.col("src_addr_place").filter(pl.col("dst_addr_place") - pl.col("src_addr_place") == 1).n_unique(),
    )
    wrong = pl.col("leaps") | (pl.col("linked") != pl.col("size") - 1) | (pl.col("size") != pl.col("pp"))
    return (
        places.select("job_id", "pipeline", "size", "pp")
        .unique()
        .join(verdicts, on=["job_id", "pipeline"], how="left")
        .filter(wrong.fill_null(value=True))
        .select("job_id", "pipeline")
    )
