"""Lanes: what each NIC of a job did over some steps, one lane for each NIC and kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from llmprism_tasks.reports.timeline.split import FLIGHTS, joined, tiles

KINDS = ("compute", *FLIGHTS, "idle")
"""Kinds of lanes, from top to bottom. `compute` and `idle` are inferred, the others are what flow records show."""

SLICES = {
    "addr": pl.String,
    "kind": pl.String,
    "row": pl.Int64,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "step": pl.Int64,
    "peer": pl.String,
    "bytes": pl.Int64,
    "direction": pl.String,
    "micro_batch": pl.Int64,
    "inferred": pl.Boolean,
}

STEP_NUMBER = ["window_start_ns", "step_index"]


@dataclass(frozen=True)
class Lanes:
    """The timeline of one job over some whole steps.

    Attributes
    ----------
    nics : the NICs, in the order of their lanes: `addr`, `host`, `pp_stage`, `dp_group` (the last two may be NULL)
    steps : `addr` (NULL for the job's own step), `step`, `start_ns`, `end_ns`, and `window_start_ns` and `step_index`,
        by which the tables know it; `step` counts the job's steps from 0 in the order of time
    slices : sorted by NIC, kind, row and start. `addr`, `kind` (one of `KINDS`), `row` (number of the row in its lane:
        slices of one row do not overlap), `start_ns`, `end_ns`, `step`; of messages `peer` and `bytes`; of pipeline
        messages `direction` (forward, backward; NULL where the pp_stages do not tell) and `micro_batch` (from 0 in its
        step; NULL where messages ran together); `inferred` (computing and idling are)
    tiles : the steps of NICs, tiled by what they went to, as `split.tiles` returns them
    faults : what was diagnosed of the job then, the worst first: `kind`, `subject_type`, `subject`, `start_ns`,
        `end_ns` (as far as it lies in the steps), `severity`, `confidence`, `explanation` of the worst window
    """

    nics: pl.DataFrame
    steps: pl.DataFrame
    slices: pl.DataFrame
    tiles: pl.DataFrame
    faults: pl.DataFrame


def lanes(tables: Mapping[str, pl.DataFrame], start_ns: int, end_ns: int) -> Lanes:
    """Arrange a job's rows as lanes.

    Parameters
    ----------
    tables : the job's rows of `jobs`, `job_members`, `steps`, `timeline`, `step_breakdown` and `diagnoses`
    start_ns, end_ns : the steps to return: those of the job of which some part lies in between. Steps are whole

    Returns
    -------
    lanes of the NICs with rows in `timeline`; empty frames where there is no step
    """
    numbers = _numbered(tables["steps"], start_ns, end_ns)
    steps, timeline, step_breakdown = (
        tables[name].join(numbers, on=STEP_NUMBER, maintain_order="left")
        for name in ("steps", "timeline", "step_breakdown")
    )
    timeline = timeline.with_columns(pl.col("phase", "peer").cast(pl.String))
    tiled = tiles(timeline, step_breakdown)
    members = tables["job_members"].sort("window_start_ns").unique("addr", keep="last")
    nics = (
        members.join(timeline, on="addr", how="semi")
        .sort("pp_stage", "dp_group", "host", "addr")
        .select("addr", "host", "pp_stage", "dp_group")
    )
    messages = _messages(timeline.filter(pl.col("phase").is_in(FLIGHTS)), tables["jobs"], members)
    inferred = (
        joined(tiled, ["addr", "step", "part"])
        .filter(pl.col("part") != "communication")
        .with_columns(kind="part", row=pl.lit(0), bytes=pl.lit(0), inferred=pl.lit(value=True))
        .drop("part")
    )
    slices = pl.concat([pl.DataFrame(schema=SLICES), inferred, messages], how="diagonal_relaxed")
    order = nics.select("addr", place=pl.int_range(pl.len()))
    kind = pl.col("kind").replace_strict({name: i for i, name in enumerate(KINDS)}, return_dtype=pl.Int64)
    return Lanes(
        nics,
        steps.sort("step", "addr").select("addr", "step", "start_ns", "end_ns", *STEP_NUMBER),
        slices.join(order, on="addr").sort("place", kind, "row", "start_ns", "end_ns").select(*SLICES),
        tiled,
        _faults(tables["diagnoses"], steps),
    )


def _numbered(steps: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """Number the job's steps of a time: `window_start_ns`, `step_index`, `step`.

    Where a NIC ends a step in one window and its job in the next, the first window's `step_index` is not in the job's
    own steps. It is the job's step that goes on then; the newest may not be known yet.
    """
    own = steps.filter(pl.col("addr").is_null()).select(*STEP_NUMBER, "start_ns", "end_ns").sort("end_ns")
    early = (
        steps.join(own, on=STEP_NUMBER, how="anti")
        .group_by(STEP_NUMBER)
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .sort("end_ns")
        .join_asof(own.with_columns(until=pl.col("end_ns")), on="end_ns", strategy="forward", suffix="_own")
        .with_columns(goes_on=(pl.col("start_ns_own") < pl.col("end_ns")).fill_null(value=False))
    )
    newest = early.filter(~pl.col("goes_on")).select(own.columns)
    chosen = (
        pl.concat([own, newest])
        .filter(pl.col("start_ns") < end_ns, pl.col("end_ns") > start_ns)
        .sort("start_ns", "end_ns")
        .select(*STEP_NUMBER, step=pl.int_range(pl.len()))
    )
    joined = early.filter("goes_on").join(
        chosen, left_on=[f"{name}_own" for name in STEP_NUMBER], right_on=STEP_NUMBER, coalesce=True
    )
    return pl.concat([chosen, joined.select(chosen.columns)])


def _messages(flights: pl.DataFrame, jobs: pl.DataFrame, members: pl.DataFrame) -> pl.DataFrame:
    """Return slices of messages; each peer has a row of its own, and messages with one peer do not overlap."""
    stages = members.select("addr", "pp_stage")
    counts = jobs.select("window_start_ns", "micro_batches")
    pair = ["addr", "step", "phase", "peer"]
    sends = pl.when(pl.col("phase") == "pp_send").then(1).when(pl.col("phase") == "pp_recv").then(-1)
    away = (pl.col("peer_pp_stage") - pl.col("pp_stage")) * sends
    return (
        flights.join(stages, on="addr", how="left")
        .join(stages.rename({"addr": "peer", "pp_stage": "peer_pp_stage"}), on="peer", how="left")
        .join(counts, on="window_start_ns", how="left")
        .sort(*pair, "start_ns")
        .with_columns(
            kind="phase",
            row=pl.col("peer").rank("dense").over("addr", "phase").cast(pl.Int64) - 1,
            direction=pl.when(away == 1).then(pl.lit("forward")).when(away == -1).then(pl.lit("backward")),
            micro_batch=pl.when(
                pl.col("phase").is_in(["pp_send", "pp_recv"]) & (pl.len().over(pair) == pl.col("micro_batches"))
            ).then(pl.int_range(pl.len()).over(pair)),
            inferred=pl.lit(value=False),
        )
        .select(*SLICES)
    )


def _faults(diagnoses: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return each fault once, as far as it lies in the steps."""
    subject = ["kind", "subject_type", "subject"]
    since, until = steps.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return (
        diagnoses.with_columns(start_ns=pl.col("start_ns").clip(since), end_ns=pl.col("end_ns").clip(None, until))
        .filter(pl.col("start_ns") < pl.col("end_ns"))
        .sort("severity", *subject, "window_start_ns", descending=[True, *[False] * 4])
        .group_by(subject, maintain_order=True)
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("severity", "confidence", "explanation").first())
    )
