"""Silences: how long a NIC computes between one exchange with its group and the next.

In a collective nobody goes on before the last has come. Who comes early sends what the buffers of the others take and
stalls, so all members of a group are silent for about as long in a step. But the slow one's silences are whole; those
of the others end early, with a little that they send too soon.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages.placement import NIC, STEP

EARLY = 0.1
"""Ratio of a NIC's mean burst of a kind below which one is what went ahead: buffers hold 4 MB a channel
(NCCL_BUFFSIZE), and gradients come in buckets of 25 MB (PyTorch) or 40 million parameters (Megatron-LM)."""


def silent_work(placed: pl.DataFrame) -> pl.DataFrame:
    """Measure each NIC's silences in a step.

    What follows a burst that went ahead is a stall and left out, as are silences beside a pipeline's message: there one
    waits.

    Parameters
    ----------
    placed : flows by endpoint with `addr`, `kind`, `bytes`, `step_index`, `start_ns`, `end_ns` (of the step), in the
        order of `flow_start_ns`

    Returns
    -------
    `job_id`, `addr`, `step_index`, `own_ns` (sum of the silences), `pace` (root of the sum of their squares: it grows
    with their length as their sum does, but not when stalls that are not told from silences cut them in two, and
    hardly with pauses between the pieces of a burst), `share` (ratio of the step that is silent)
    """
    ahead = pl.col("bytes") < EARLY * pl.col("bytes").mean().over(*NIC, "kind")
    inside = pl.all_horizontal(
        ~each.fill_null(value=False) for each in (pl.col("piped"), pl.col("piped").shift().over(NIC))
    )
    begins_ns = pl.max_horizontal(pl.col("over_ns").shift().over(NIC), "start_ns")
    silence = (pl.col("flow_start_ns") - pl.col("begins_ns")).cast(pl.Float64)
    return (
        _bursts(placed)
        .with_columns(begins_ns=begins_ns, inside=inside, stalled=ahead.shift().over(NIC).fill_null(value=False))
        .filter(pl.col("flow_start_ns") > pl.col("begins_ns"), pl.col("inside"), ~pl.col("stalled"))
        .group_by(STEP)
        .agg(
            own_ns=silence.sum(),
            pace=(silence * silence).sum().sqrt(),
            share=silence.sum() / (pl.col("end_ns") - pl.col("start_ns")).first(),
        )
    )


def _bursts(placed: pl.DataFrame) -> pl.DataFrame:
    """Join the flows of a NIC that overlap; a burst is in the step in which it begins."""
    fresh = pl.col("flow_start_ns") > pl.col("flow_end_ns").cum_max().shift().over(NIC)
    return (
        placed.with_columns(burst=fresh.fill_null(value=True).cast(pl.Int64).cum_sum().over(NIC))
        .group_by(*NIC, "burst", maintain_order=True)
        .agg(
            pl.col("step_index", "start_ns", "end_ns", "flow_start_ns", "kind").first(),
            pl.col("bytes").sum(),
            over_ns=pl.col("flow_end_ns").max(),
            piped=(pl.col("kind") == "pp").any(),
        )
    )
