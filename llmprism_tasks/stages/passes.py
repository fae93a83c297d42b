"""Passes: how much of the gaps between a pipeline's messages is computing.

A message of a pipeline starts when both of its ends have come to it, so a gap before one may be work of this NIC, or
waiting for the other. What was worked on is known from the schedule: what a gap sends onward it has computed. How long
that takes is known from the shortest gap of its kind, in which nobody had to be waited for: who computes slowly does so
in all of its gaps, who waits does so in some.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods.joining import Gaps
from llmprism_tasks.methods.pace import NONE, at_pace, lower_medians, shortest
from llmprism_tasks.methods.series import Floats, Integers
from llmprism_tasks.stages.activity import (
    BITS,
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


UNKNOWN = -1
"""In the place of passes that the schedule does not tell."""

KINDS = FORWARD + BACKWARD + 1
"""Numbers that the bits of passes make."""


def worked(gaps: Gaps, parts: pl.DataFrame) -> Integers:
    """Say how much of each gap was computing, as far as the schedule tells: shape (gaps,), ns.

    Parameters
    ----------
    gaps : part by part, with the bits of `activity`
    parts : `pp_stage`, `last_pp_stage` and `place` (a number for each pp_stage of a job, from 1), which are NULL where
        they are not known
    """
    sorts, sort = _sorts(gaps, parts)
    passes, whole, unknown = (sorts[name].to_numpy()[sort] for name in ("passes", "whole", "unknown"))
    lengths, places = gaps.lengths, parts.select(pl.col("place").fill_null(0) - 1).to_series().to_numpy()
    usual = _usual(shortest(gaps.offsets, lengths, passes, KINDS), places)
    paced = at_pace(gaps.offsets, lengths, passes, usual, places, as_usual=AS_USUAL)
    return np.where(whole | (paced == NONE), lengths * unknown, paced)


def _sorts(gaps: Gaps, parts: pl.DataFrame) -> tuple[pl.DataFrame, Integers]:
    """Return what sorts of gaps there are, and the sort of each, its row.

    Returns
    -------
    `passes` that were done in it, whether the `whole` gap is computing, or would be where nothing is usual (`unknown`)
    """
    first = (pl.col("pp_stage") == 0).fill_null(value=False)
    last = (pl.col("pp_stage") == pl.col("last_pp_stage")).fill_null(value=False)
    end = parts.select(2 * first.cast(pl.Int64) + last.cast(pl.Int64)).to_series().to_numpy()
    code = np.repeat(end * BITS**2, np.diff(gaps.offsets)) + (gaps.brought * BITS + gaps.took)
    met = np.flatnonzero(np.bincount(code))
    number = np.zeros(met[-1:].max(initial=-1) + 1, np.int64)
    number[met] = np.arange(met.size)
    around = {"brought": met // BITS % BITS, "took": met % BITS}
    sorts = pl.DataFrame(around | {"first": met // BITS**2 >= 2, "last": met // BITS**2 % 2 > 0})
    took, entry = pl.col("took"), (pl.col("brought") == 0) & ((pl.col("took") & OWN) > 0)
    whole = (took > 0) & (entry | ((took & PIPELINED) == 0))
    unknown = whole | ((took & (OWN & ~SCHEDULED)) > 0)
    return sorts.select(passes=_passes(), whole=whole, unknown=unknown), number[code]


def _passes() -> pl.Expr:
    """Tell which passes were done in a gap: what it sends onward; the ends of the pipeline send in one direction.

    The first pp_stage has nowhere to send gradients to: it goes backward when it has received some. The last one sends
    gradients only, and has gone forward before. `UNKNOWN` where the schedule does not tell.
    """
    first, last = pl.col("first"), pl.col("last")
    # Once the gradients are reduced, the last backward pass is over, though its own may still be sent.
    reduced = (pl.col("brought") & SYNCHRONISED) > 0
    sent_next, sent_previous = (pl.col("took") & SENT_NEXT) > 0, ((pl.col("took") & SENT_PREVIOUS) > 0) & ~reduced
    received = (pl.col("brought") & RECEIVED_NEXT) > 0
    forward = pl.when(last).then(sent_previous).otherwise(sent_next).cast(pl.Int32)
    backward = pl.when(first).then(received).otherwise(sent_previous).cast(pl.Int32)
    done = FORWARD * forward + BACKWARD * backward
    # What others than the first pp_stage send before they have received anything is left over from the step before.
    begun = (pl.col("brought") > 0) | first
    return pl.when(begun & ((pl.col("took") & PIPELINED) > 0) & (done > 0)).then(done).otherwise(UNKNOWN)


def _usual(least: Integers, places: Integers) -> Floats:
    """Return the usual of the shortest such gaps that the pp_stage's members have: shape (places, KINDS).

    A backward pass alone is also what both take more than a forward pass.

    Parameters
    ----------
    least : shape (parts, KINDS)
    places : shape (parts,), -1 for none
    """
    part, passes = np.nonzero((least != NONE) & (places >= 0)[:, np.newaxis])
    number = int(places.max(initial=-1)) + 1
    usual = lower_medians(least[part, passes], places[part] * KINDS + passes, number * KINDS).reshape(number, KINDS)
    alone = np.maximum(usual[:, FORWARD + BACKWARD] - usual[:, FORWARD], 0)
    known = ~np.isnan(usual[:, BACKWARD])
    usual[known, BACKWARD] = np.fmin(usual[known, BACKWARD], alone[known])
    return usual
