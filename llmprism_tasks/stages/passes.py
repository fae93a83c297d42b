"""Passes: how much of the gaps between a pipeline's messages is computing.

A message of a pipeline starts when both of its ends have come to it, so a gap before one may be work of this NIC, or
waiting for the other. What was worked on is known from the schedule: what a gap sends onward it has computed. How long
that takes is known from the shortest gap of its kind, in which nobody had to be waited for: who computes slowly does so
in all of its gaps, who waits does so in some.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.stages.activity import (
    OWN,
    PIPELINED,
    RECEIVED_NEXT,
    SCHEDULED,
    SENT_NEXT,
    SENT_PREVIOUS,
    SYNCHRONISED,
)

FORWARD, BACKWARD = 1, 2
"""Bits of the passes that were done in a gap."""

AS_USUAL = 1.1
"""Ratio to the usual work up to which a gap is all work: jitter of single passes (3 % in captures), and some more."""


def worked(gaps: pl.DataFrame) -> pl.DataFrame:
    """Say how much of each gap was computing, as far as the schedule tells.

    Parameters
    ----------
    gaps : as `activity.gaps` returns, with `pp_stage`, `last_pp_stage` and `place` (a number for each pp_stage of a
        job), which are NULL where they are not known

    Returns
    -------
    gaps with `compute_ns`, and `usual_ns` (what the members of the pp_stage compute in such a gap; NULL where the
    schedule does not tell)
    """
    length = pl.col("end_ns") - pl.col("start_ns")
    counted = gaps.with_columns(passes=_passes(), length=length)
    known = counted.join(_usual(counted), on=["place", "passes"], how="left", maintain_order="left")
    pace = (pl.col("length") / pl.col("usual_ns")).min().over("part")
    at_pace = pl.col("usual_ns") * pl.max_horizontal(pace, 1.0)
    entry = (pl.col("brought") == 0) & ((pl.col("took") & OWN) > 0)
    computed = (
        pl.when(pl.col("took") == 0)
        .then(0)
        .when(entry | ((pl.col("took") & PIPELINED) == 0))
        .then("length")
        .when(pl.col("usual_ns").is_not_null())
        .then(pl.when(pl.col("length") <= AS_USUAL * at_pace).then("length").otherwise(at_pace))
        .when((pl.col("took") & (OWN & ~SCHEDULED)) > 0)
        .then("length")
        .otherwise(0)
    )
    return known.with_columns(compute_ns=computed.cast(pl.Int64)).drop("length", "passes")


def _passes() -> pl.Expr:
    """Tell which passes were done in a gap: what it sends onward; the ends of the pipeline send in one direction.

    The first pp_stage has nowhere to send gradients to: it goes backward when it has received some. The last one sends
    gradients only, and has gone forward before. NULL where the schedule does not tell.
    """
    first, last = pl.col("pp_stage") == 0, pl.col("pp_stage") == pl.col("last_pp_stage")
    # Once the gradients are reduced, the last backward pass is over, though its own may still be sent.
    reduced = (pl.col("brought") & SYNCHRONISED) > 0
    sent_next, sent_previous = (pl.col("took") & SENT_NEXT) > 0, ((pl.col("took") & SENT_PREVIOUS) > 0) & ~reduced
    received = (pl.col("brought") & RECEIVED_NEXT) > 0
    forward = pl.when(last).then(sent_previous).otherwise(sent_next).cast(pl.Int32)
    backward = pl.when(first).then(received).otherwise(sent_previous).cast(pl.Int32)
    done = FORWARD * forward + BACKWARD * backward
    # What others than the first pp_stage send before they have received anything is left over from the step before.
    begun = (pl.col("brought") > 0) | first
    return pl.when(begun & ((pl.col("took") & PIPELINED) > 0) & (done > 0)).then(done)


def _usual(gaps: pl.DataFrame) -> pl.DataFrame:
    """Return `place`, `passes`, `usual_ns`: the usual of the shortest such gaps that the pp_stage's members have.

    The lower median: of two peers, the quicker shows what is usual. A backward pass alone is also what both take more
    than a forward pass.
    """
    told = gaps.select("place", "part", "passes", "length").drop_nulls()
    shortest = told.group_by("place", "part", "passes").agg(pl.col("length").min())
    usual = shortest.group_by("place", "passes").agg(usual_ns=pl.col("length").quantile(0.5, interpolation="lower"))
    forward, both = (
        pl.when(pl.col("passes") == passes).then("usual_ns").max().over("place")
        for passes in (FORWARD, FORWARD + BACKWARD)
    )
    alone = pl.min_horizontal("usual_ns", (both - forward).clip(lower_bound=0))
    return usual.with_columns(usual_ns=pl.when(pl.col("passes") == BACKWARD).then(alone).otherwise("usual_ns"))
