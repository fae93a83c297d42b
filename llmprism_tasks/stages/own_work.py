"""Own work: how long a NIC's host takes when it has nobody to wait for, against its peers.

In synchronous training everybody waits for the slow one: steps, groups and most messages of a job are late together.
Where pipelines meet collectives rarely, their entries show what is a stage's own (`entries`); elsewhere the silences
between collectives do (`silences`). The replicas of a stage do the same work there and show what is usual.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages import layout, traffic
from llmprism_tasks.stages.entries import entry_work
from llmprism_tasks.stages.placement import NIC, STEP
from llmprism_tasks.stages.silences import silent_work

EXCHANGING = ("ep", "cp")
"""Kinds of traffic in every layer, by which ranks wait for each other between the messages of a pipeline."""

SAME = ["job_id", "component", "step_index"]

OUTVOTING = 3
"""Members from which on the others outvote one."""


def own_work(flows: pl.DataFrame, steps: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Compare each NIC's own work in a step with that of its peers.

    Parameters
    ----------
    flows : bulk flows with `job_id` and `kind`
    steps : of NICs: `job_id`, `addr`, `step_index`, `start_ns`, `end_ns`, `current`
    groups : `job_id`, `addr`, `component`: data-parallel groups, whose members are each other's peers

    Returns
    -------
    sorted: the columns of `steps`, what `silent_work` or `entry_work` measure (NULL what the other one does),
    `component` (of peers; NULL where there are no replicas), `members` (of it, that were measured), `excess` (of the
    pace over the peers', as a ratio; NULL without peers)
    """
    placed = _placed(flows, steps)
    exchanging = flows.filter(pl.col("kind").is_in(EXCHANGING)).select("job_id").unique()
    piped = flows.filter(pl.col("kind") == "pp").select("job_id").unique().join(exchanging, on="job_id", how="anti")
    entering = placed.join(piped, on="job_id", how="semi").filter(pl.col("kind").is_in(["pp", "dp"]))
    others = placed.join(piped, on="job_id", how="anti")
    work = [entry_work(entering), _relieved(silent_work(others), others)]
    known = steps.join(pl.concat(work, how="diagonal"), on=STEP)
    members = pl.when(pl.col("component").is_not_null()).then(pl.len().over(SAME)).otherwise(1)
    grouped = known.join(_peers(flows, groups), on=NIC, how="left").with_columns(members=members)
    return grouped.with_columns(excess=_excess()).sort(STEP)


def _excess() -> pl.Expr:
    # Two peers cannot outvote each other: the quicker shows what is usual.
    usual = (
        pl.when(pl.col("members") >= OUTVOTING)
        .then(pl.col("pace").median().over(SAME))
        .when(pl.col("members") > 1)
        .then(pl.col("pace").min().over(SAME))
    )
    return pl.col("pace") / usual - 1


def _peers(flows: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Split data-parallel groups by who exchanges blocks or tokens with whom, and so waits for whom, within the step.

    Not where few would be left: rings that pass through hosts unseen fall apart.
    """
    hops = flows.filter(pl.col("kind").is_in(EXCHANGING)).select("job_id", "src_addr", "dst_addr").unique()
    within = layout.components(hops).rename({"component": "circle"})
    both = groups.join(within, on=NIC, how="left")
    circle = ["job_id", "component", "circle"]
    large = (pl.len().over(circle) >= OUTVOTING) & pl.col("circle").is_not_null()
    numbered = both.with_columns(circle=pl.when(large).then("circle"))
    return numbered.select(*NIC, component=pl.struct("component", "circle").rank("dense").over("job_id").cast(pl.Int64))


def _relieved(work: pl.DataFrame, placed: pl.DataFrame) -> pl.DataFrame:
    """Excuse whose experts are asked for more than others': it computes longer for having more to do.

    A rank's computing grows at most as the tokens that it is sent, so by that much it may be longer.
    """
    received = (
        placed.filter(pl.col("kind") == "ep", ~pl.col("sends"))
        .group_by(STEP)
        .agg(pl.col("bytes").sum())
        .with_columns(load=pl.col("bytes") / pl.col("bytes").mean().over("job_id", "step_index"))
    )
    relief = pl.max_horizontal(pl.col("load").fill_null(1.0), 1.0)
    return (
        work.join(received.select(*STEP, "load"), on=STEP, how="left")
        .with_columns(pace=pl.col("pace") / relief)
        .drop("load")
    )


def _placed(flows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Place flows in the steps of both their ends, in order."""
    spans = steps.select(*STEP, "start_ns", "end_ns").sort("end_ns")
    first = steps.group_by("job_id").agg(first_ns=pl.col("start_ns").min())
    columns = ["job_id", "kind", "bytes", "src_addr", "dst_addr", "flow_start_ns", "flow_end_ns"]
    seen = flows.join(first, on="job_id").filter(pl.col("flow_start_ns") >= pl.col("first_ns")).select(columns)
    return (
        traffic.by_endpoint(seen)
        .sort("flow_start_ns", "flow_end_ns", "peer", "addr")
        .join_asof(
            spans.with_columns(until_ns=pl.col("end_ns")),
            left_on="flow_start_ns",
            right_on="until_ns",
            by=NIC,
            strategy="forward",
            check_sortedness=False,
        )
        .filter(pl.col("flow_start_ns") >= pl.col("start_ns"))
    )
