"""Silences: how long a NIC computes between one exchange with its group and the next.

In a collective nobody goes on before the last has come. Who comes early sends what the buffers of the others take and
stalls, so all members of a group are silent for about as long in a step. But the slow one's silences are whole; those
of the others end early, with a little that they send too soon.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages.diagnosis.own_work.kernels import step_gaps
from llmprism_tasks.stages.diagnosis.own_work.nic_arrays import Arranged

EARLY = 0.1
"""Ratio of a NIC's mean burst of a kind below which one is what went ahead: buffers hold 4 MB a channel
(NCCL_BUFFSIZE), and gradients come in buckets of 25 MB (PyTorch) or 40 million parameters (Megatron-LM)."""


def silent_work(flows: Arranged, jobs: pl.Series, *, early: float = EARLY) -> pl.DataFrame:
    """Measure each NIC's silences in a step.

    What follows a burst that went ahead is a stall and left out, as are silences beside a pipeline's message: there one
    waits.

    Parameters
    ----------
    jobs : those to look at
    early : ratio of a NIC's mean burst of a kind below which one went ahead

    Returns
    -------
    of the steps with any, in their order: their columns, `own_ns` (sum of the silences), `later_ns` (the same without
    the longest, which holds all that comes before the first exchange), `pace` (root of the sum of
    their squares: it grows with their length as their sum does, but not when stalls that are not told from silences cut
    them in two, and hardly with pauses between the pieces of a burst), `share` (ratio of the step that is silent)
    """
    length, squares, longest, count = step_gaps.silences(
        flows.transfers, flows.numbers, flows.of(jobs), early=early, piped=flows.number("pp")
    )
    return (
        flows.steps.with_columns(own_ns=length, pace=squares, later_ns=length - longest)
        .filter(pl.Series(count > 0))
        .with_columns(pl.col("pace").sqrt(), share=pl.col("own_ns") / (pl.col("end_ns") - pl.col("start_ns")))
    )
