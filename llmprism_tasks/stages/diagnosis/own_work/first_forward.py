"""Entries: how long the first micro-batch of a step is worked on, pipeline stage by stage.

In the middle of a pipeline nobody can tell whether a message waited for its sender or for its receiver. At the entry it
is plain: when a step's first input reaches a stage, the stages behind it are idle, so the time until its output leaves
is the stage's own. The first stage has no input; it works from the end of what it last exchanged with its replicas.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.stages.diagnosis.own_work.kernels.first_forward_ends import NONE, entries
from llmprism_tasks.stages.diagnosis.own_work.nic_arrays import Arranged

FORWARD_AND_BACKWARD = 3
"""A micro-batch's forward and backward pass in forward passes: the backward computes the gradients of the inputs and of
the weights, each as much work as the forward (Narayanan and others, 2021, section 4)."""

AT_ONCE = 0.01
"""Ratio of the step within which no GPU computes a pass: what is sent earlier is the last of the step before."""


def entry_work(flows: Arranged, jobs: pl.Series) -> pl.DataFrame:
    """Time each NIC's first forward pass of a step; where it is the last stage, the backward pass that follows, too.

    Returns
    -------
    of the steps with one, in their order: their columns, `begins_ns`, `own_ns` (from there until the output leaves),
    `pace` (the same), `share` (ratio of the step in which the NIC's passes compute), `last_stage` (whether the backward
    pass is in `own_ns`, too), `entered` (whether it waited for an input: else it is the first stage, or its steps are
    cut after the first micro-batch has passed)
    """
    found = entries(
        flows.transfers,
        flows.numbers,
        flows.of(jobs),
        piped=flows.number("pp"),
        synchronising=flows.number("dp"),
        at_once=AT_ONCE,
    )
    # A stage in the middle sends each micro-batch twice: activations on, and gradients back.
    ends_here = ~pl.col("entered") | pl.col("last_stage")
    each = pl.when("last_stage").then(1.0).otherwise(FORWARD_AND_BACKWARD) * pl.when(ends_here).then(1.0).otherwise(0.5)
    length = pl.col("end_ns") - pl.col("start_ns")
    share = pl.col("pace") * each * (pl.col("outputs") / pl.col("together")) / length
    return (
        flows.steps.with_columns(
            own_ns=(found.output_ns - found.begins_ns).astype(np.float64),
            last_stage=found.last,
            entered=found.input_ns != NONE,
            begins_ns=found.begins_ns,
            outputs=found.outputs,
            together=found.together,
        )
        .filter(pl.col("outputs") > 0)
        .with_columns(pace=pl.col("own_ns"))
        .with_columns(share=share.clip(upper_bound=1.0))
        .drop("outputs", "together")
    )
