"""The order of a pipeline's stages, by who sends first in a step.

The first micro-batch goes down the pipeline before anything comes up, so each stage's first message leaves after that
of the stage before it; the last stage's is a gradient, the latest of all. So it is in 1F1B and GPipe, and interleaved,
where the last stage hands on to the first. Between the last gradient and the first activation of the next step the
first stage computes backward, synchronises, and computes forward: never is a pipeline silent for longer.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl

from llmprism_tasks.stages import degrees, figures, layout
from llmprism_tasks.stages.groups import nodes
from llmprism_tasks.stages.layout import ENDS

NODE = ["job_id", "node"]


BESIDE = 0.25
"""Ratio of the period within which a pipeline falls silent before or after the moment at which it typically does."""


def pp_stages(
    flows: pl.DataFrame,
    job_steps: pl.DataFrame,
    pairs: pl.DataFrame,
    laid: pl.DataFrame,
    groups: pl.DataFrame,
    job_members: pl.DataFrame,
) -> pl.DataFrame:
    """Return the stage of each member: `job_id`, `addr`, `pp_stage`.

    NULL for all of a job whose replicas and rails do not agree: where messages go past a neighbour, stages are not
    equally large, or tensor-parallel peers, which share a host, are in several.

    Parameters
    ----------
    flows : bulk flows with `job_id`
    job_steps : `job_id`, `end_ns`
    pairs : `job_id`, `src_addr`, `dst_addr`, `kind`
    laid : `job_id`, `tp`, `pp` (NULL when unknown)
    groups : gradient groups, as `gradient_groups` returns; a group is in one stage
    """
    links = degrees.pipeline_links(pairs, groups)
    order = _in_order(_first_sends(_messages(flows, job_steps, links), links)).join(
        laid.select("job_id", "pp"), on="job_id"
    )
    sound = order.join(_unsound(order, links), on=["job_id", "pipeline"], how="anti")
    placed = (
        nodes(job_members.select("job_id", "addr"), groups)
        .join(job_members.select("job_id", "addr", "host"), on=["job_id", "addr"])
        .join(laid.select("job_id", "tp", "pp"), on="job_id", how="left")
        .join(sound.select(*NODE, "place"), on=NODE, how="left")
        .with_columns(pp_stage=pl.when(pl.col("pp") == 1).then(0).otherwise("place"))
    )
    even = pl.len().over("job_id", "pp_stage") * pl.col("pp") == pl.len().over("job_id")
    peers = pl.len().over("job_id", "host", "pp_stage") % pl.col("tp") == 0
    agree = (even & peers & pl.col("pp_stage").is_not_null()).fill_null(value=False).all().over("job_id")
    return placed.select("job_id", "addr", pp_stage=pl.when(agree).then("pp_stage").cast(pl.Int32))


def _messages(flows: pl.DataFrame, job_steps: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return the flows of pipelines with the `step` they belong to: it begins after the longest silence of a period."""
    sent = (
        flows.join(links.select("job_id", src_addr="sender", dst_addr="receiver"), on=["job_id", *ENDS])
        .filter(pl.col("bytes") <= figures.LIKE_ONE[1] * pl.col("bytes").median().over("job_id", *ENDS))
        .select("job_id", *ENDS, "flow_start_ns")
        .sort("flow_start_ns")
    )
    moments = (
        sent.select("job_id", "flow_start_ns")
        .with_columns(silent_ns=pl.col("flow_start_ns").diff().over("job_id"))
        .drop_nulls("silent_ns")
    )
    ends = job_steps.select("job_id", "end_ns", period_ns=pl.col("end_ns").sort().diff().median().over("job_id"))
    # A job's steps may be cut anywhere in the pipeline's, but always there: all silences have one typical phase.
    turn = 2 * np.pi * pl.col("after")
    phases = (
        _longest(moments, ends, "backward")
        .group_by("job_id")
        .agg(phase=pl.arctan2(turn.sin().mean(), turn.cos().mean()) / (2 * np.pi))
    )
    shifted = ends.join(phases, on="job_id").with_columns(
        end_ns=pl.col("end_ns") + (pl.col("phase") * pl.col("period_ns")).cast(pl.Int64)
    )
    begins = (
        _longest(moments, shifted, "nearest").filter(pl.col("after").abs() <= BESIDE).select("job_id", step="begin_ns")
    )
    return sent.join_asof(
        begins.with_columns(begin_ns="step").sort("begin_ns"),
        left_on="flow_start_ns",
        right_on="begin_ns",
        by="job_id",
        strategy="backward",
        check_sortedness=False,
    ).drop_nulls("step")


def _longest(moments: pl.DataFrame, ends: pl.DataFrame, strategy: Literal["backward", "nearest"]) -> pl.DataFrame:
    """Return the end of the longest silence at each step's end, or after it: `job_id`, `begin_ns`, `after` (the step's
    end, a ratio of the period)."""
    return (
        moments.join_asof(
            ends.sort("end_ns"),
            left_on="flow_start_ns",
            right_on="end_ns",
            by="job_id",
            strategy=strategy,
            check_sortedness=False,
        )
        .drop_nulls("period_ns")
        .sort("silent_ns", "flow_start_ns", descending=True)
        .group_by("job_id", "end_ns", maintain_order=True)
        .agg(begin_ns=pl.col("flow_start_ns").first(), period_ns=pl.col("period_ns").first())
        .with_columns(after=(pl.col("begin_ns") - pl.col("end_ns")) / pl.col("period_ns"))
    )


def _first_sends(messages: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
    """Return when each node typically sends its first pipeline message, in ns after the first of its pipeline: NODE,
    `pipeline`, `after_ns`."""
    joined = layout.components(links.select("job_id", *ENDS).unique()).rename({"addr": "node", "component": "pipeline"})
    sending = links.select("job_id", node="src_addr", src_addr="sender", dst_addr="receiver")
    pipeline = ["job_id", "pipeline", "step"]
    # The median over a stage's replicas is not moved by one that is slow.
    return (
        messages.join(sending, on=["job_id", *ENDS])
        .group_by(*NODE, "src_addr", "step")
        .agg(pl.col("flow_start_ns").min())
        .group_by(*NODE, "step")
        .agg(start_ns=pl.col("flow_start_ns").median())
        .join(joined, on=NODE)
        .with_columns(after_ns=pl.col("start_ns") - pl.col("start_ns").min().over(pipeline))
        .group_by(*NODE, "pipeline")
        .agg(pl.col("after_ns").median())
    )


def _in_order(sends: pl.DataFrame) -> pl.DataFrame:
    """Number the nodes of each pipeline by their first message: NODE, `pipeline`, `place`, `size` (of the pipeline)."""
    pipeline = ["job_id", "pipeline"]
    return sends.with_columns(
        place=pl.col("after_ns").rank("ordinal").over(pipeline).cast(pl.Int64) - 1,
        size=pl.len().over(pipeline).cast(pl.Int64),
    )


def _unsound(order: pl.DataFrame, links: pl.DataFrame) -> pl.DataFrame:
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
