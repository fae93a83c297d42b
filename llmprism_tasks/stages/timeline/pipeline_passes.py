"""Pipeline passes: how much of the gaps between a pipeline's messages is computing.

A message of a pipeline starts when both of its ends are ready, so the gap before it is computing of this NIC, or
waiting for the other. The schedule tells what was computed: the data that the gap sends onward. The shortest gap of its
kind tells how long the computing takes, for in it the NIC did not wait. A slow GPU is slow in all of its gaps; a NIC
that waits does so in some.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.stages.timeline.exchanges import (
    ALL_BITS,
    OWN_SENDING,
    PIPELINED,
    RECEIVED_NEXT,
    SCHEDULED,
    SENT_NEXT,
    SENT_PREVIOUS,
    SYNCHRONISED,
)
from llmprism_tasks.stages.timeline.kernels.interval_union import Gaps, sorts
from llmprism_tasks.stages.timeline.kernels.pass_time import (
    NO_LENGTH,
    Numbers,
    Sorts,
    Stints,
    at_pace,
    lower_medians,
    shortest,
)

FORWARD, BACKWARD = 1, 2
"""Bits of the passes that were done in a gap."""

USUAL_WORK_RATIO = 1.1
"""Ratio to the usual work up to which a gap is all work: jitter of single passes (3 % in captures), and some more."""


UNKNOWN_PASSES = -1
"""In the place of passes that the schedule does not tell."""

PASS_CODES = FORWARD + BACKWARD + 1
"""Numbers that the bits of passes make."""


def worked(gaps: Gaps, parts: pl.DataFrame) -> tuple[Integers, Integers]:
    """Say how much of each gap was computing, as far as the schedule tells, and how much was idle; ns, shape (gaps,).

    Only in gaps before a pipeline's messages is somebody idle.

    Parameters
    ----------
    gaps : part by part, with the bits of `exchanges`
    parts : `pp_stage`, `last_pp_stage` and `place` (a number for each pp_stage of a job, from 1), which are NULL where
        they are not known
    """
    sort, known = _gap_sorts(gaps, parts)
    stints = Stints(gaps.offsets, gaps.starts, gaps.ends, sort)
    places = parts.select(pl.col("place").fill_null(0) - 1).to_series().to_numpy()
    usual = _usual_pass_times(shortest(stints, known.works, PASS_CODES), places)
    return at_pace(stints, known, usual, places, as_usual=USUAL_WORK_RATIO)


def _gap_sorts(gaps: Gaps, parts: pl.DataFrame) -> tuple[Numbers, Sorts]:
    """Return the sort of each gap, and what is known of the sorts: the passes that were done in them."""
    first = (pl.col("pp_stage") == 0).fill_null(value=False)
    last = (pl.col("pp_stage") == pl.col("last_pp_stage")).fill_null(value=False)
    end = parts.select(2 * first.cast(pl.Int64) + last.cast(pl.Int64)).to_series().to_numpy()
    sort, codes = sorts(gaps, end, ALL_BITS)
    end, brought = np.divmod(codes // ALL_BITS, ALL_BITS)
    around = pl.DataFrame({"brought": brought, "took": codes % ALL_BITS, "first": end >= 2, "last": end % 2 > 0})
    took, entry = pl.col("took"), (pl.col("brought") == 0) & ((pl.col("took") & OWN_SENDING) > 0)
    piped = (took & PIPELINED) > 0
    whole = (took > 0) & (entry | ~piped)
    unknown = whole | ((took & (OWN_SENDING & ~SCHEDULED)) > 0)
    known = around.select(passes=_pass_bits(), whole=whole, unknown=unknown, piped=piped)
    return sort, Sorts(*(column.to_numpy() for column in known))


def _pass_bits() -> pl.Expr:
    """Tell which passes were done in a gap: what it sends onward; the ends of the pipeline send in one direction.

    The first pp_stage has nowhere to send gradients to: it goes backward when it has received some. The last one sends
    gradients only, and has gone forward before. `UNKNOWN_PASSES` where the schedule does not tell.
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
    return pl.when(begun & ((pl.col("took") & PIPELINED) > 0) & (done > 0)).then(done).otherwise(UNKNOWN_PASSES)


def _usual_pass_times(least: Integers, places: Integers) -> Floats:
    """Return the usual of the shortest such gaps that the pp_stage's members have: shape (places, PASS_CODES).

    A backward pass alone is also what both take more than a forward pass.

    Parameters
    ----------
    least : shape (parts, PASS_CODES)
    places : shape (parts,), -1 for none
    """
    part, passes = np.nonzero((least != NO_LENGTH) & (places >= 0)[:, np.newaxis])
    number = int(places.max(initial=-1)) + 1
    usual = lower_medians(least[part, passes], places[part] * PASS_CODES + passes, number * PASS_CODES).reshape(
        number, PASS_CODES
    )
    alone = np.maximum(usual[:, FORWARD + BACKWARD] - usual[:, FORWARD], 0)
    known = ~np.isnan(usual[:, BACKWARD])
    usual[known, BACKWARD] = np.fmin(usual[known, BACKWARD], alone[known])
    return usual
