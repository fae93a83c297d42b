"""Activity: when a NIC's messages are in flight in a step, and the gaps between them.

Messages that follow each other at once are one exchange, as in a pipeline's combined send and receive: no pass through
a stage is done in a fraction of the time of a transfer. Each gap knows what the exchange before it brought and what the
one after it took, for that tells what was computed in it.
"""

from __future__ import annotations

import polars as pl

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


def exchanges(messages: pl.DataFrame) -> pl.DataFrame:
    """Join messages that overlap, and those of a pipeline that follow each other at once.

    Parameters
    ----------
    messages : `part` (a NIC's step), `start_ns`, `end_ns`, `does` (bits), `peer` (the part of the other end)

    Returns
    -------
    `part`, `start_ns`, `end_ns`, `does` (bits of all), `peer` (of the message that started first), sorted
    """
    before = pl.col("end_ns").cum_max().shift().over("part")
    length = pl.col("end_ns") - pl.col("start_ns")
    piped = (pl.col("does") & PIPELINED) > 0
    slack = pl.when(piped & piped.shift().over("part")).then(length.shift().over("part") * AT_ONCE).otherwise(0)
    apart = (pl.col("start_ns") > before + slack).fill_null(value=True)
    return (
        messages.sort("part", "start_ns", "end_ns", "peer")
        .with_columns(exchange=apart.cast(pl.Int64).cum_sum())
        .group_by("exchange", maintain_order=True)
        .agg(
            pl.col("part").first(),
            pl.col("start_ns").first(),
            pl.col("end_ns").max(),
            pl.col("does").bitwise_or(),
            pl.col("peer").first(),
        )
        .drop("exchange")
    )


def gaps(exchanged: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Return what lies between exchanges, before the first and after the last.

    Parameters
    ----------
    parts : `part`, `step_start_ns`, `step_end_ns`

    Returns
    -------
    `part`, `start_ns`, `end_ns`, `brought` and `took` (bits of the exchanges around the gap, 0 where there is none),
    `peer` (of the one after it), sorted; gaps of no length are absent
    """
    ends = parts.select(
        "part",
        start_ns="step_end_ns",
        end_ns="step_end_ns",
        does=pl.lit(0, dtype=pl.Int32),
        peer=pl.lit(None, dtype=pl.Int64),
    )
    row = pl.concat([exchanged, ends]).sort("part", "start_ns", maintain_order=True)
    return (
        row.join(parts.select("part", "step_start_ns"), on="part", maintain_order="left")
        .select(
            "part",
            start_ns=pl.col("end_ns").shift().over("part").fill_null(pl.col("step_start_ns")),
            end_ns="start_ns",
            brought=pl.col("does").shift().over("part").fill_null(0),
            took="does",
            peer="peer",
        )
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )
