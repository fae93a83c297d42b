"""Entries: how long the first micro-batch of a step is worked on, pipeline stage by stage.

In the middle of a pipeline nobody can tell whether a message waited for its sender or for its receiver. At the entry it
is plain: when a step's first input reaches a stage, the stages behind it are idle, so the time until its output leaves
is the stage's own. The first stage has no input; it works from the end of what it last exchanged with its replicas.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages.placement import NIC, STEP

FORWARD_AND_BACKWARD = 3
"""A micro-batch's forward and backward pass in forward passes: the backward computes the gradients of the inputs and of
the weights, each as much work as the forward (Narayanan and others, 2021, section 4)."""

AT_ONCE = 0.01
"""Ratio of the step within which no GPU computes a pass: what is sent earlier is the last of the step before."""


def entry_work(placed: pl.DataFrame) -> pl.DataFrame:
    """Time each NIC's first forward pass of a step; where it is the last stage, the backward pass that follows, too.

    Parameters
    ----------
    placed : flows by endpoint with `addr`, `peer`, `sends`, `kind` (`pp` or `dp`), `step_index`, `start_ns`, `end_ns`
        (of the step), in the order of `flow_start_ns`

    Returns
    -------
    `job_id`, `addr`, `step_index`, `own_ns`, `pace` (the same), `share` (ratio of the step in which the NIC's passes
    compute), `last_stage` (whether the backward pass is in `own_ns`, too), `entered` (whether it waited for an input:
    else it is the first stage, or its steps are cut after the first micro-batch has passed)
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    pipeline, sends = pl.col("kind") == "pp", pl.col("sends")
    late_one = pipeline & sends & (pl.col("flow_start_ns") < pl.col("start_ns") + AT_ONCE * length)
    real = placed.filter(~late_one)
    inputs = real.group_by(STEP).agg(
        input_ns=pl.col("flow_end_ns").filter(pipeline & ~sends).first(),
        sender=pl.col("peer").filter(pipeline & ~sends).first(),
        first_ns=pl.col("flow_start_ns").filter(pipeline & sends).first(),
    )
    first_stage = (pl.col("first_ns") < pl.col("input_ns")).fill_null(value=True).mean().over(NIC) > 0.5
    inputs = inputs.with_columns(input_ns=pl.when(~first_stage).then("input_ns"))
    after = pipeline & sends & (pl.col("flow_start_ns") >= pl.col("input_ns")).fill_null(value=True)
    output_ns = pl.col("flow_start_ns").filter(after).first()
    exchanged_ns = pl.col("flow_end_ns").filter(~pipeline & (pl.col("flow_end_ns") <= output_ns)).max()
    together = after & (pl.col("flow_start_ns") < pl.col("flow_end_ns").filter(after).first())
    passes = (
        real.join(inputs, on=STEP)
        .group_by(STEP)
        .agg(
            pl.col("input_ns").first(),
            begins_ns=pl.coalesce(pl.col("input_ns").first(), exchanged_ns, pl.col("start_ns").first()),
            output_ns=output_ns,
            last_stage=(pl.col("sender").first() == pl.col("peer").filter(after).first())
            & pl.col("input_ns").first().is_not_null(),
            messages=after.sum() / together.sum(),
            length_ns=length.first(),
        )
    )
    # A stage in the middle sends each micro-batch twice: activations on, and gradients back.
    ends = pl.col("input_ns").is_null() | pl.col("last_stage")
    each = pl.when("last_stage").then(1.0).otherwise(FORWARD_AND_BACKWARD) * pl.when(ends).then(1.0).otherwise(0.5)
    own = pl.col("output_ns") - pl.col("begins_ns")
    return passes.drop_nulls("output_ns").select(
        *STEP,
        own_ns=own.cast(pl.Float64),
        pace=own.cast(pl.Float64),
        share=(own * each * pl.col("messages") / pl.col("length_ns")).clip(upper_bound=1.0),
        last_stage="last_stage",
        entered=pl.col("input_ns").is_not_null(),
    )
