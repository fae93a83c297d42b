"""Split: where in a step a NIC computes, moves data it has to wait for, and waits.

`step_breakdown` says how much of a step each part is, but not when. The table `timeline` says when messages were in
flight, and calls what is between them `compute` or `idle` by what ends it. Here each step is tiled so that both hold:
the times in flight are as measured, and the parts add up to those of `step_breakdown`.

- Computing fills what the timeline calls `compute`, then the beginnings of what it calls `idle`: a NIC works before it
  waits. Where it is less than there is room for, it is spread evenly: no gap has more than a common limit. Computing
  beyond all gaps goes on behind messages in flight: gradients first, from the first on.
- Messages in flight that are neither communication nor covered by computing wait for the last member of their
  collective: the NIC idles, before its last round.

Times in flight are measured; the times of computing and waiting within a step are inferred.
"""

from __future__ import annotations

import polars as pl

STEP = ["addr", "step"]

FLIGHTS = ("pp_send", "pp_recv", "dp_sync", "other")
"""Phases with messages in flight."""

GAPS = ("compute", "idle")
"""Phases without."""

PARTS = ("compute", "communication", "idle")
"""What a tile is. `idle` is bubble, waiting and what is not explained, together."""


def tiles(timeline: pl.DataFrame, step_breakdown: pl.DataFrame) -> pl.DataFrame:
    """Tile the steps of NICs.

    Parameters
    ----------
    timeline : `addr`, `step`, `phase`, `start_ns`, `end_ns` of whole steps
    step_breakdown : `addr`, `step`, `compute_ns`, `communication_ns`; where it lacks a step, the timeline's own names
        of the gaps count, and all that is in flight is communication

    Returns
    -------
    `addr`, `step`, `start_ns`, `end_ns`, `part` (one of `PARTS`), `in_flight` (the phases in flight, joined by `+`;
    empty for none), sorted by `addr`, `start_ns`. Tiles of a step neither overlap nor leave a gap
    """
    pieces = _pieces(timeline).join(step_breakdown.select(*STEP, "compute_ns", "communication_ns"), on=STEP, how="left")
    gaps = _computed(pieces.filter(pl.col("in_flight") == ""))
    flights = _carried(pieces.filter(pl.col("in_flight") != ""), gaps)
    cut = pl.concat([gaps, flights], how="diagonal")
    begin, length = pl.col("start_ns"), pl.col("length_ns")
    computed, waited = begin + pl.col("computed_ns"), begin + pl.col("computed_ns") + pl.col("idle_ns")
    bounds = {"compute": (begin, computed), "idle": (computed, waited), "communication": (waited, begin + length)}
    found = pl.concat(
        cut.select(*STEP, start_ns=start, end_ns=end, part=pl.lit(part), in_flight="in_flight")
        for part, (start, end) in bounds.items()
    )
    whole = joined(found.filter(pl.col("end_ns") > pl.col("start_ns")), [*STEP, "part", "in_flight"])
    return whole.select(*STEP, "start_ns", "end_ns", "part", "in_flight")


def _pieces(timeline: pl.DataFrame) -> pl.DataFrame:
    """Cut steps where a phase begins or ends: `addr`, `step`, `start_ns`, `length_ns`, `in_flight`, `gap`."""
    rows = timeline.select(*STEP, pl.col("phase").cast(pl.String), "start_ns", "end_ns")
    rows = rows.filter(pl.col("end_ns") > pl.col("start_ns"))
    events = pl.concat(
        [
            rows.select(*STEP, "phase", at="start_ns", change=pl.lit(1)),
            rows.select(*STEP, "phase", at="end_ns", change=pl.lit(-1)),
        ]
    ).sort(*STEP, "at")
    going = [
        pl.when(pl.col("phase") == phase).then("change").otherwise(0).cum_sum().over(STEP).alias(phase)
        for phase in (*FLIGHTS, *GAPS)
    ]
    named = [pl.when(pl.col(phase) > 0).then(pl.lit(phase)) for phase in FLIGHTS]
    return (
        events.with_columns(*going, until=pl.col("at").shift(-1).over(STEP))
        .filter(pl.col("until") > pl.col("at"))
        .select(
            *STEP,
            start_ns="at",
            length_ns=pl.col("until") - pl.col("at"),
            in_flight=pl.concat_str(named, separator="+", ignore_nulls=True),
            works=pl.col("compute") > 0,
            gradients=pl.col("dp_sync") + pl.col("other") > 0,
        )
    )


def _computed(gaps: pl.DataFrame) -> pl.DataFrame:
    """Say how much of each gap is computing (`computed_ns`); the rest is idle (`idle_ns`)."""
    own = pl.col("length_ns").filter("works").sum().over(STEP)
    whole = pl.coalesce("compute_ns", own)
    wanted = gaps.with_columns(
        wanted_ns=pl.when("works").then(pl.min_horizontal(whole, own)).otherwise((whole - own).clip(0))
    )
    group = [*STEP, "works"]
    length, left = pl.col("length_ns"), pl.len().over(group) - pl.int_range(pl.len()).over(group)
    shorter = length.cum_sum().over(group) - length
    # The limit that all gaps together fill to: the first in order of length that need not be filled to its end says.
    limit = ((pl.col("wanted_ns") - shorter) / left).filter(shorter + length * left >= pl.col("wanted_ns"))
    filled = wanted.sort(*group, "length_ns").with_columns(limit_ns=limit.first().over(group))
    computed = pl.min_horizontal(length, pl.coalesce("limit_ns", length)).round().cast(pl.Int64)
    return filled.with_columns(computed_ns=computed).with_columns(idle_ns=length - pl.col("computed_ns"))


def _carried(flights: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """Say how much of the time in flight computing goes on behind it, and how much is waiting."""
    done = gaps.group_by(STEP).agg(done_ns=pl.col("computed_ns").sum())
    length = pl.col("length_ns")
    ordered = flights.join(done, on=STEP, how="left").sort(*STEP, pl.col("gradients").not_(), "start_ns")
    flown = length.sum().over(STEP)
    behind = (pl.col("compute_ns").fill_null(0) - pl.col("done_ns").fill_null(0)).clip(0)
    behind = pl.min_horizontal(behind, flown)
    stalled = (flown - behind - pl.col("communication_ns").fill_null(flown)).clip(0)
    ended = length.cum_sum().over(STEP)
    inside = [(until - (ended - length)).clip(0, length) for until in (behind, behind + stalled)]
    return ordered.with_columns(computed_ns=inside[0], idle_ns=inside[1] - inside[0])


def joined(rows: pl.DataFrame, same: list[str]) -> pl.DataFrame:
    """Join tiles that touch and have the same values; returns these, `start_ns` and `end_ns`, by NIC and time."""
    ordered = rows.sort("addr", "start_ns")
    begins = pl.struct(same).ne_missing(pl.struct(same).shift(1)) | (pl.col("start_ns") != pl.col("end_ns").shift(1))
    numbered = ordered.with_columns(run=begins.fill_null(value=True).cum_sum())
    times = (pl.col("start_ns").min(), pl.col("end_ns").max())
    return numbered.group_by("run", *same, maintain_order=True).agg(times).drop("run")
