"""Activity: when a NIC's messages are in flight in a step, and the gaps between them.

Messages that follow each other at once are one exchange, as in a pipeline's combined send and receive: no pass through
a stage is done in a fraction of the time of a transfer. Each gap knows what the exchange before it brought and what the
one after it took, for that tells what was computed in it.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods.joining import Intervals, joined
from llmprism_tasks.methods.stretches import in_order

SENT_NEXT, RECEIVED_PREVIOUS, RECEIVED_NEXT, SENT_PREVIOUS = 1, 2, 4, 8
"""Bits of an exchange: messages to and from the next and the previous pp_stage."""

SENT, RECEIVED = 16, 32
"""Bits of an exchange: pipeline messages whose place in the schedule is not known."""

SYNCHRONISED, GATHERED, ROUTED = 64, 128, 256
"""Bits of an exchange: gradients, parameters, and messages of other kinds (experts, context)."""

SCHEDULED = SENT_NEXT | RECEIVED_PREVIOUS | RECEIVED_NEXT | SENT_PREVIOUS
PIPELINED = SCHEDULED | SENT | RECEIVED
OWN = SENT_NEXT | SENT_PREVIOUS | SENT
"""Bits of what a NIC sends down or up the pipeline itself."""

AT_ONCE = 0.1
"""Ratio of the message before it, within which the next one of a pipeline belongs to the same exchange."""

NOBODY = -1
"""In the place of the part of a peer that is not known, or of more than one."""

_named = pl.when(pl.col("peer") != NOBODY).then("peer")


def does(direction: pl.Expr, *, sends: pl.Expr, kind: pl.Expr) -> pl.Expr:
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


def exchanges(messages: Intervals) -> Intervals:
    """Join messages that overlap, and those of a pipeline that follow each other at once.

    Parameters
    ----------
    messages : part by part (a NIC's step), the bits of each and the part of its other end, or `NOBODY`
    """
    order = in_order(messages.offsets, messages.starts, messages.ends, messages.peers)
    return joined(messages, order, PIPELINED, AT_ONCE)


def rows(exchanged: Intervals) -> pl.DataFrame:
    """Return a frame of exchanges: `part`, `start_ns`, `end_ns`, `does` (bits), `peer` (NULL for nobody)."""
    part = np.repeat(np.arange(exchanged.offsets.size - 1), np.diff(exchanged.offsets))
    columns = dict(zip(("start_ns", "end_ns", "does", "peer"), exchanged[1:], strict=True))
    return pl.DataFrame({"part": part} | columns).with_columns(_named)


def gaps(exchanged: Intervals, parts: pl.DataFrame) -> pl.DataFrame:
    """Return what lies between exchanges, before the first and after the last.

    Parameters
    ----------
    parts : all, in order: `step_start_ns`, `step_end_ns`

    Returns
    -------
    `part`, `start_ns`, `end_ns`, `brought` and `took` (bits of the exchanges around the gap, 0 where there is none),
    `peer` (of the one after it), sorted; gaps of no length are absent
    """
    _, start_ns, end_ns, does, peer = exchanged
    first, last = exchanged.offsets[:-1], exchanged.offsets[1:]
    columns = {
        "part": np.repeat(np.arange(parts.height), 1 + last - first),
        "start_ns": np.insert(end_ns, first, parts["step_start_ns"]),
        "end_ns": np.insert(start_ns, last, parts["step_end_ns"]),
        "brought": np.insert(does, first, 0),
        "took": np.insert(does, last, 0),
        "peer": np.insert(peer, last, NOBODY),
    }
    return pl.DataFrame(columns).filter(pl.col("end_ns") > pl.col("start_ns")).with_columns(_named)


def named(peer: pl.Expr) -> pl.Expr:
    """Return NULL for nobody."""
    return pl.when(peer != NOBODY).then(peer)
