"""Own work: how long a NIC's host takes when it has nobody to wait for, against its peers.

In synchronous training everybody waits for the slow one: steps, groups and most messages of a job are late together,
and in the middle of a pipeline nobody can tell whether a message waited for its sender or for its receiver. At the
entry it is plain. When a step's first input reaches a stage, the stages behind it are idle; the time until it sends
is its own. Where nothing is received first, it is the time from the step's start. The replicas of a stage do the same
work there and show what is usual.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages import traffic

NIC = ["job_id", "addr"]
STEP = [*NIC, "step_index"]


def own_work(flows: pl.DataFrame, steps: pl.DataFrame, groups: pl.DataFrame) -> pl.DataFrame:
    """Compare each NIC's time from a step's first input to its first send with that of its peers.

    Parameters
    ----------
    flows : bulk flows with `job_id` and `kind`
    steps : of NICs: `job_id`, `addr`, `step_index`, `start_ns`, `end_ns`
    groups : `job_id`, `addr`, `component`: data-parallel groups, whose members are each other's peers

    Returns
    -------
    sorted: `job_id`, `component`, `addr`, `step_index`, `start_ns`, `end_ns` (of the step), `own_ns`, `usual_ns` (the
    peers'), `times` (how often in the step such work is done: the micro-batches); NICs without peers are absent
    """
    placed = _placed(flows, steps)
    pipeline = pl.col("kind") == "pp"
    entries = (
        placed.group_by(STEP)
        .agg(
            pl.col("start_ns", "end_ns").first(),
            input_ns=pl.col("flow_end_ns").filter(~pl.col("sends")).first(),
            sends_ns=pl.col("flow_start_ns").filter("sends"),
            times=pl.max_horizontal((pipeline & pl.col("sends")).sum() // _records_each(), pl.lit(1)),
        )
        .filter(pl.col("sends_ns").list.len() > 0)
    )
    begins = (
        pl.when((pl.col("input_ns") < pl.col("sends_ns").list.first()).fill_null(value=False))
        .then("input_ns")
        .otherwise("start_ns")
    )
    own = entries.with_columns(own_ns=pl.col("sends_ns").list.first() - begins).join(groups, on=NIC)
    same = ["job_id", "component", "step_index"]
    members = pl.len().over(same)
    # Two peers cannot outvote each other: the quicker shows what is usual.
    usual = pl.when(members > 2).then(pl.col("own_ns").median().over(same)).otherwise(pl.col("own_ns").min().over(same))
    return (
        own.filter(members > 1)
        .with_columns(usual_ns=usual)
        .select("job_id", "component", "addr", "step_index", "start_ns", "end_ns", "own_ns", "usual_ns", "times")
        .sort("job_id", "component", "addr", "step_index")
    )


def _records_each() -> pl.Expr:
    """Records that one message to one peer is split into, by the queue pairs that start together."""
    first = pl.col("sends") & (pl.col("kind") == "pp")
    together = (pl.col("flow_start_ns") < pl.col("flow_end_ns").filter(first).first()) & first
    return pl.max_horizontal(together.sum(), pl.lit(1))


def _placed(flows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Place pipeline messages and sent gradients in the steps of their ends, in order."""
    spans = steps.select(*STEP, "start_ns", "end_ns").sort("end_ns")
    return (
        traffic.by_endpoint(flows)
        .filter((pl.col("kind") == "pp") | ((pl.col("kind") == "dp") & pl.col("sends")))
        .sort("flow_start_ns", "flow_end_ns", "peer")
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
