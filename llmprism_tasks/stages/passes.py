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
from llmprism_tasks.methods.stretches import Numbers
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
    sorts, sort = _sorts(gaps)
    first = (pl.col("pp_stage") == 0).fill_null(value=False).alias("first")
    last = (pl.col("pp_stage") == pl.col("last_pp_stage")).fill_null(value=False).alias("last")
    end = parts.select(2 * first.cast(pl.Int64) + last.cast(pl.Int64)).to_series().to_numpy()
    lengths, places = gaps.lengths, parts.select(pl.col("place").fill_null(0) - 1).to_series().to_numpy()
    passes = _passes(sorts)[np.repeat(end, np.diff(gaps.offsets)), sort]
    usual = _usual(shortest(gaps.offsets, lengths, passes, KINDS), places)
    paced = at_pace(gaps.offsets, lengths, passes, usual, places, as_usual=AS_USUAL)
    took, entry = pl.col("took"), (pl.col("brought") == 0) & ((pl.col("took") & OWN) > 0)
    own = (took > 0) & (entry | ((took & PIPELINED) == 0))
    whole, unknown = (sorts.select(one).to_series().to_numpy() for one in (own, own | (took & (OWN & ~SCHEDULED) > 0)))
    return np.where(whole[sort] | (paced == NONE), lengths * unknown[sort], paced)


def _sorts(gaps: Gaps) -> tuple[pl.DataFrame, Integers]:
    """Return what sorts of gaps there are, `brought` and `took`, and the sort of each."""
    code = gaps.brought * BITS + gaps.took
    met = np.flatnonzero(np.bincount(code))
    number = np.zeros(met[-1:].max(initial=-1) + 1, np.int64)
    number[met] = np.arange(met.size)
    return pl.DataFrame({"brought": met // BITS, "took": met % BITS}), number[code]


def _passes(sorts: pl.DataFrame) -> Numbers:
    """Tell which passes were done in gaps: what they send onward; the ends of the pipeline send in one direction.

    The first pp_stage has nowhere to send gradients to: it goes backward when it has received some. The last one sends
    gradients only, and has gone forward before. `UNKNOWN` where the schedule does not tell.

    Parameters
    ----------
    sorts : `brought`, `took`

    Returns
    -------
    shape (4, sorts): for a pp_stage that is neither the last nor the first, the last, the first, and both
    """
    # Once the gradients are reduced, the last backward pass is over, though its own may still be sent.
    reduced = (pl.col("brought") & SYNCHRONISED) > 0
    sent_next, sent_previous = (pl.col("took") & SENT_NEXT) > 0, ((pl.col("took") & SENT_PREVIOUS) > 0) & ~reduced
    received = (pl.col("brought") & RECEIVED_NEXT) > 0
    told = []
    for first, last in ((False, False), (False, True), (True, False), (True, True)):
        forward, backward = sent_previous if last else sent_next, received if first else sent_previous
        done = FORWARD * forward.cast(pl.Int32) + BACKWARD * backward.cast(pl.Int32)
        # What others than the first pp_stage send before they have received anything is left over from the step before.
        begun = (pl.col("brought") > 0) | pl.lit(first)
        known = begun & ((pl.col("took") & PIPELINED) > 0) & (done > 0)
        told.append(sorts.select(pl.when(known).then(done).otherwise(UNKNOWN)).to_series().to_numpy())
    return np.array(told)


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
