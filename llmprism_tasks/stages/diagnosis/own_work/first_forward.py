"""First forward pass: how long each pipeline stage works on the first micro-batch of a step.

In the middle of a pipeline's step, flows do not show whether a message waited for its sender or its receiver. At its
beginning they do: when the first input of a step reaches a stage, the stages behind it are idle, so the time until the
output leaves is the stage's own. The first stage has no input; its work begins at the end of its last exchange with its
replicas.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.stages.diagnosis.own_work.kernels.first_forward_ends import NO_TIME, entries
from llmprism_tasks.stages.diagnosis.own_work.kernels.step_spans import carried
from llmprism_tasks.stages.diagnosis.own_work.nic_arrays import NicArrays

FORWARD_AND_BACKWARD = 3
"""Forward and backward pass of a micro-batch, in forward passes: the backward pass computes gradients of the inputs and
of the weights, each as much work as the forward pass (Narayanan and others, 2021, section 4)."""

UNANSWERED = 2.5
"""Micro-batches below which a last stage has received before it sends its first gradient, in 1F1B: the stage before it
is one forward pass ahead, and makes one more before it waits for a gradient (Narayanan and others, 2021, figure 4). In
GPipe it has three or more. They are counted by their bytes: a message may come in two parts, or be longer."""

BEFORE_ANY_PASS = 0.05
"""Ratio of the time for which a GPU's outputs are apart, on average in a step, in which it finishes no pass: what it
sends earlier in the step is the end of the one before. So is what it sends so soon after its first input, where steps
are cut after the first micro-batch of an interleaved pipeline has passed. A forward pass takes a third of that time
where all of the step is passes, and a twentieth where most of it is waiting and gradients."""


def first_forward_work(flows: NicArrays, jobs: pl.Series) -> pl.DataFrame:
    """Measure each NIC's first forward pass of a step; for the last stage, with the backward pass that follows.

    Where all forward passes come before the first backward pass, as in GPipe (Huang and others, 2019), a last stage
    waits for its other inputs before it answers. Its own work is then not seen.

    Returns
    -------
    the steps with a first pass, in their order, with

    - `begins_ns`: when the pass begins
    - `own_ns`: from there until the output leaves
    - `pace`: the same
    - `share`: ratio of the step in which the NIC's passes compute
    - `last_stage`: whether `own_ns` includes the backward pass
    - `entered`: whether the NIC waited for an input. If not, it is the first stage, or its steps are cut after the
      first micro-batch has passed
    - `outputs`, `sent`: how many messages it sent down the pipeline since, and how many bytes in all of the step
    """
    transfers = flows.transfers
    found = entries(
        transfers,
        flows.numbers,
        flows.of(jobs),
        piped=flows.number("pp"),
        synchronising=flows.number("dp"),
        at_once=BEFORE_ANY_PASS,
    )
    # A middle stage sends twice per micro-batch: an activation forward and a gradient back.
    ends_here = ~pl.col("entered") | pl.col("last_stage")
    each = pl.when("last_stage").then(1.0).otherwise(FORWARD_AND_BACKWARD) * pl.when(ends_here).then(1.0).otherwise(0.5)
    length = pl.col("end_ns") - pl.col("start_ns")
    share = pl.col("pace") * each * (pl.col("outputs") / pl.col("together")) / length
    return (
        flows.steps.with_columns(
            own_ns=(found.output_ns - found.begins_ns).astype(np.float64),
            last_stage=found.last,
            entered=found.input_ns != NO_TIME,
            begins_ns=found.begins_ns,
            outputs=found.outputs,
            together=found.together,
            queued=found.last & (found.unanswered > UNANSWERED * found.first_input),
            sent=carried(transfers, flows.numbers, transfers.kinds == flows.number("pp"), transfers.senders),
        )
        .filter(pl.col("outputs") > 0, ~pl.col("queued"))
        .with_columns(pace=pl.col("own_ns"))
        .with_columns(share=share.clip(upper_bound=1.0))
        .drop("together", "queued")
    )
