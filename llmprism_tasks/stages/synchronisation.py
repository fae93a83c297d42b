"""Synchronisation: when the members of a gradient group came together in a step, and who came last.

A collective moves when its last member is there. Members that come early push what the buffers hold and stall, so each
member's first record of a round tells when it came, and the latest of them all when the round began. Rounds follow each
other as gradient buckets fill; while they do, the backward pass goes on behind them, so only the last round costs time
of its own. Where the optimizer is distributed, the gradients are followed by a gather of the parameters: a last round
of as many bytes as all of the gradients, or half of them in half the precision.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods.gatherings import gatherings
from llmprism_tasks.stages import activity, layout
from llmprism_tasks.stages.placement import NIC

GATHERED = (1.0, 0.5)
"""Bytes of all gathered parameters per byte of reduced gradients: in the same precision, and in half of it. Source:
Megatron-LM, megatron/core/distributed/param_and_grad_buffer.py (gradients in 32 bits, parameters in 16)."""

SAME_BYTES = 0.03
"""Ratio by which they may differ: headers, and tensors that are padded to be divided among the ranks."""


def rounds(messages: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Divide gradient traffic into the rounds in which all members of a group take part.

    Parameters
    ----------
    messages : of kind `dp`, once for each end: `part` (the end's step), `start_ns`, `end_ns`, `bytes`
    groups : `part`, and `group`: a number for each group and step

    Returns
    -------
    one row per member and round, sorted: `part`, `group`, `round`, `came_ns`, `end_ns`, `begin_ns` (when the last
    member came), `last` (the part of that member), `gather` (whether parameters are gathered in it)
    """
    placed = messages.select("part", "start_ns", "end_ns", "bytes").join(groups, on="part")
    placed = placed.sort("group", "start_ns", "end_ns", "part")
    fresh = pl.col("start_ns") > pl.col("end_ns").cum_max().shift().over("group")
    placed = placed.with_columns(burst=fresh.fill_null(value=False).cast(pl.Int64).cum_sum())
    sizes = placed.group_by("group", maintain_order=True).len()["len"].to_numpy()
    numbers = gatherings(
        placed["part"].cast(pl.Int64).to_numpy(),
        placed["burst"].to_numpy(),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )
    in_round = ["group", "round"]
    latest = pl.col("came_ns").max().over(in_round)
    return (
        placed.with_columns(round=pl.Series(numbers))
        .group_by("part", *in_round)
        .agg(came_ns=pl.col("start_ns").min(), end_ns=pl.col("end_ns").max(), bytes=pl.col("bytes").sum())
        .with_columns(begin_ns=latest, gather=_gathers())
        .with_columns(last=pl.when(pl.col("came_ns") == latest).then("part").min().over(in_round))
        .drop("bytes")
        .sort("part", "round")
    )


def _gathers() -> pl.Expr:
    """Tell the round that gathers parameters: as many bytes as all rounds before it, and more than each of them."""
    last = (pl.col("round") == pl.col("round").max().over("group")) & (pl.col("round") > 0)
    whole, mine = pl.col("bytes").sum().over("group"), pl.col("bytes").sum().over("group", "round")
    largest = mine.filter(~last).max().over("group")
    ratio = mine / (whole - mine)
    alike = pl.any_horizontal((ratio / gathered - 1).abs() <= SAME_BYTES for gathered in GATHERED)
    bucket = ((mine / largest - 1).abs() <= SAME_BYTES) & (pl.col("round") > 1)
    return last & alike & ~bucket


def groups_of(parts: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """Number the gradient group of each NIC in each step: `part`, `group`.

    Groups are those of the layout where it is known, else made of who exchanges gradients with whom.

    Parameters
    ----------
    parts : `part`, `job_id`, `addr`, `step_index`, `dp_group` (may be NULL)
    messages : of kind `dp`, with `job_id`, `addr`, `peer`
    """
    linked = layout.components(messages.select("job_id", src_addr="addr", dst_addr="peer").unique())
    named = pl.struct("job_id", "step_index", "dp_group", pl.when(pl.col("dp_group").is_null()).then("component"))
    joined = parts.join(linked, on=NIC)
    return joined.select("part", group=named.rank("dense").cast(pl.Int64))


def blocks(messages: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Return when each NIC could only synchronise: from when it had come, and done all else, until the end.

    Parameters
    ----------
    messages : `part`, `job_id`, `addr`, `peer`, `kind`, `start_ns`, `end_ns`, `bytes`
    parts : `part`, `job_id`, `addr`, `step_index`, `dp_group`, `sharded`, `step_start_ns`, `step_end_ns`

    Returns
    -------
    `part`, `group`, `round`, `start_ns`, `begin_ns` (when the last one came), `first_ns` (when this one
    came to the first of its rounds), `end_ns`, `does`, `wait_ns` (start to
    begin), `target` (the part of the last one). The gradients' last round and the gather of parameters are a block
    each; where parameters are sharded, each round is one.
    """
    gradients = messages.filter(pl.col("kind") == "dp")
    found = rounds(gradients, groups_of(parts, gradients)).with_columns(
        lead_ns=pl.col("begin_ns") - pl.col("came_ns"), first_ns="came_ns"
    )
    rows = found.join(parts.select("part", "sharded", "step_start_ns", "step_end_ns"), on="part")
    last = _exposed(rows.filter(~pl.col("sharded")))
    found = pl.concat([last, rows.filter("sharded").select(last.columns)]).sort("begin_ns")
    others = messages.filter(pl.col("kind") != "dp").select("part", done_ns="end_ns").sort("done_ns")
    done = found.join_asof(others, left_on="begin_ns", right_on="done_ns", by="part", check_sortedness=False)
    start = pl.max_horizontal(pl.col("begin_ns") - pl.col("lead_ns"), "done_ns", "step_start_ns")
    # Where steps were cut apart, the last one may come after this one's step.
    begin = pl.min_horizontal("begin_ns", "step_end_ns")
    return done.with_columns(start_ns=pl.min_horizontal(start, begin), begin_ns=begin).select(
        "part",
        "group",
        "round",
        "start_ns",
        "begin_ns",
        "first_ns",
        end_ns=pl.max_horizontal("end_ns", "begin_ns"),
        does=pl.when("gather").then(activity.GATHERED).otherwise(activity.SYNCHRONISED).cast(pl.Int32),
        wait_ns=pl.col("begin_ns") - pl.col("start_ns"),
        target="last",
    )


def _exposed(rounds_: pl.DataFrame) -> pl.DataFrame:
    """Return what of the gradients' rounds, and of the parameters' gather, costs a member time of its own.

    It was ahead of the last member by as much as in the round in which it was most: only then is it known to have had
    nothing else to do.
    """
    ahead = pl.col("lead_ns").arg_max()
    return rounds_.group_by("part", "gather").agg(
        pl.col("group").first(),
        pl.col("round", "begin_ns").last(),
        pl.col("first_ns").first(),
        pl.col("end_ns").max(),
        pl.col("lead_ns").max(),
        pl.col("last").get(ahead),
        pl.col("step_start_ns", "step_end_ns").first(),
    )
