"""Activity: when a NIC's messages are in flight in a step.

Messages that follow each other at once are one exchange, as in a pipeline's combined send and receive: no pass through
a stage is done in a fraction of the time of a transfer.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.intervals import Rows
from llmprism_tasks.stages.timeline.kernels.interval_union import NO_SEGMENT, Bits, Counterparts, Intervals, joined

SENT_NEXT, RECEIVED_PREVIOUS, RECEIVED_NEXT, SENT_PREVIOUS = 1, 2, 4, 8
"""Bits of an exchange: messages to and from the next and the previous pp_stage."""

SENT, RECEIVED = 16, 32
"""Bits of an exchange: pipeline messages whose place in the schedule is not known."""

SYNCHRONISED, GATHERED, ROUTED = 64, 128, 256
"""Bits of an exchange: gradients, parameters, and messages of other kinds (experts, context)."""

ALL_BITS = 512
"""Above all of them together."""

SCHEDULED = SENT_NEXT | RECEIVED_PREVIOUS | RECEIVED_NEXT | SENT_PREVIOUS
PIPELINED = SCHEDULED | SENT | RECEIVED
OWN_SENDING = SENT_NEXT | SENT_PREVIOUS | SENT
"""Bits of what a NIC sends down or up the pipeline itself."""

SAME_EXCHANGE = 0.1
"""Ratio of the message before it, within which the next one of a pipeline belongs to the same exchange."""

_named = pl.when(pl.col("peer") != NO_SEGMENT).then("peer")


def message_bit(direction: pl.Expr, *, sends: pl.Expr, kind: pl.Expr) -> pl.Expr:
    """Return the bit of a message.

    Parameters
    ----------
    direction : 1 with the next pp_stage, -1 with the previous one, anything else or NULL where that is not known
    """
    known = (
        pl.when(direction == 1)
        .then(pl.when(sends).then(SENT_NEXT).otherwise(RECEIVED_NEXT))
        .when(direction == -1)
        .then(pl.when(sends).then(SENT_PREVIOUS).otherwise(RECEIVED_PREVIOUS))
        .otherwise(pl.when(sends).then(SENT).otherwise(RECEIVED))
    )
    return pl.when(kind == "pp").then(known).when(kind == "dp").then(SYNCHRONISED).otherwise(ROUTED).cast(pl.Int32)


def exchanges(messages: Rows, bits: Bits, others: Counterparts, blocks: pl.DataFrame) -> Intervals:
    """Join messages that overlap, and those of a pipeline that follow each other at once.

    Parameters
    ----------
    messages : part by part (a NIC's step)
    bits : of each side; 0 for gradients, of which only what cost time of its own is an exchange
    others : the parts of the other ends
    blocks : of gradients, as `collectives.blocks` returns
    """
    nobody = np.full(blocks.height, NO_SEGMENT)
    offsets = np.searchsorted(blocks["part"].to_numpy(), np.arange(messages.offsets.size))
    starts, ends, does_ = (blocks[name].to_numpy() for name in ("start_ns", "end_ns", "does"))
    own = Intervals(offsets, starts, ends, does_, nobody)
    return joined(messages, bits, others, own, quick=PIPELINED, at_once=SAME_EXCHANGE)


def rows(exchanged: Intervals) -> pl.DataFrame:
    """Return a frame of exchanges: `part`, `start_ns`, `end_ns`, `message_bit` (bits), `peer` (NULL for nobody)."""
    part = np.repeat(np.arange(exchanged.offsets.size - 1), np.diff(exchanged.offsets))
    columns = dict(zip(("start_ns", "end_ns", "does", "peer"), exchanged[1:], strict=True))
    return pl.DataFrame({"part": part} | columns).with_columns(_named)
