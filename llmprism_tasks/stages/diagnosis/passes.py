"""Passes: how long stages of a pipeline work on a step's first gradient, with nobody to wait for.

When a gradient first comes to a stage, the stage before it waits for that stage's own, in 1F1B as in GPipe: until it
leaves, one pass backward is worked on. The first stage sends no gradient. What it sends next, in 1F1B, is an activation
after one pass backward and one forward, unless whoever takes it is busy for longer.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages.placement import STEP

TIMES = ["flow_start_ns", "flow_end_ns"]


def answers(flows: pl.DataFrame, steps: pl.DataFrame, stages: pl.DataFrame) -> pl.DataFrame:
    """Time the answer of each NIC, but those of the last stage, to the first gradient that it gets in a step.

    Parameters
    ----------
    flows : bulk flows with `job_id` and `kind`
    steps : of NICs: `job_id`, `addr`, `step_index`, `start_ns`, `end_ns`
    stages : `job_id`, `addr`, `pp_stage`

    Returns
    -------
    `job_id`, `addr`, `step_index`, `answer_ns`; nothing of interleaved pipelines, in which stages are no line
    """
    hops = _hops(flows, stages)
    inputs = hops.filter(pl.col("way") == -1).select("job_id", *TIMES, addr="dst_addr")
    next_way = pl.when(pl.col("src_stage") == 0).then(1).otherwise(-1)
    outputs = hops.filter(pl.col("way") == next_way).select("job_id", *TIMES, addr="src_addr")
    first = in_steps(inputs, steps).sort(TIMES).group_by(STEP, maintain_order=True)
    # A message may be several records, side by side.
    whole = pl.col("flow_end_ns").filter(pl.col("flow_start_ns") <= pl.col("flow_end_ns").first()).max()
    left = in_steps(outputs, steps).select(*STEP, "flow_start_ns").join(first.agg(came_ns=whole), on=STEP)
    answer = pl.col("flow_start_ns") - pl.col("came_ns")
    return left.filter(answer > 0).group_by(STEP).agg(answer_ns=answer.min())


def _hops(flows: pl.DataFrame, stages: pl.DataFrame) -> pl.DataFrame:
    """Return the messages of the jobs whose stages are a line, with `src_stage` and `way` (1 is forward)."""
    hops = flows.filter(pl.col("kind") == "pp").select("job_id", "src_addr", "dst_addr", *TIMES)
    for end in ("src", "dst"):
        names = {"addr": f"{end}_addr", "pp_stage": f"{end}_stage"}
        hops = hops.join(stages.select("job_id", *names).rename(names), on=["job_id", f"{end}_addr"])
    ways = hops.with_columns(way=pl.col("dst_stage") - pl.col("src_stage"))
    return ways.filter((pl.col("way").abs() == 1).all().over("job_id"))


def in_steps(messages: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add the step of the NIC in which a message starts; leave out those that start in none."""
    spans = steps.select(*STEP, "start_ns", "end_ns").sort("start_ns")
    placed = messages.sort("flow_start_ns").join_asof(
        spans, left_on="flow_start_ns", right_on="start_ns", by=["job_id", "addr"], check_sortedness=False
    )
    return placed.filter(pl.col("flow_start_ns") < pl.col("end_ns"))
