"""Step graph: what each NIC's work, messages and synchronisation wait for, to be played again with other durations.

Work before an exchange waits for the exchange before it; a message waits for the work of both of its ends, and for what
it followed in their exchanges; a round of synchronisation for the work of all members of the group, and the update of
parameters, where it waits for the norm of all gradients, for all groups. Waiting is no operation: it comes out of the
replay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.methods.replay import finish
from llmprism_tasks.methods.series import Floats, Integers
from llmprism_tasks.stages.activity import SYNCHRONISED
from llmprism_tasks.stages.breakdown import Account

WORK, MESSAGE, ROUND, DONE = range(4)
"""Kinds of operations; `DONE`, when an exchange is over, takes no time."""

JOB_STEP = ["job_id", "step_index"]


@dataclass(frozen=True)
class StepGraph:
    """Operations in topological order.

    Attributes
    ----------
    operations : `position`, `kind`, `duration_ns`; of `WORK` and `DONE` `part`; of `WORK` `took` and `order` (of its
        gap), `first_ns` (its time until the first round, where rounds follow it) and `earliest_ns` (where nothing known
        comes before it); of `MESSAGE` `flow`; of `ROUND` `group` and `round`
    offsets, predecessors : as for `methods.replay.finish`
    """

    operations: pl.DataFrame
    offsets: Integers
    predecessors: Integers

    def step_ends(self, durations: Floats, parts: pl.DataFrame) -> pl.DataFrame:
        """Replay, and return when each job ends its steps: `job_id`, `step_index`, `end_ns` (replayed), sorted."""
        earliest = self.operations["earliest_ns"].cast(pl.Float64).fill_null(-np.inf).to_numpy()
        ends = finish(durations, earliest, self.offsets, self.predecessors)
        done = self.operations.with_columns(end_ns=pl.Series(ends)).filter(pl.col("kind") == DONE)
        return (
            done.join(parts.select("part", *JOB_STEP), on="part")
            .group_by(JOB_STEP)
            .agg(pl.col("end_ns").max())
            .sort(JOB_STEP)
        )


def step_graph(found: Account) -> StepGraph:
    """Build the graph of all steps of an account; steps of a NIC that follow each other are linked.

    Times are ns since the epoch; floats hold them to some 100 ns.
    """
    parts = found.parts.with_columns(nic=pl.struct("job_id", "addr").rank("dense"))
    exchanges = found.exchanged.with_row_index("exchange").join(
        parts.select("part", "nic", "step_index", "step_start_ns"), on="part", maintain_order="left"
    )
    messages = _in_exchanges(found.messages.filter(pl.col("kind") != "dp"), exchanges, "start_ns")
    rounds = _in_exchanges(found.blocks, exchanges, "start_ns")
    operations = _operations(found, exchanges, messages, rounds)
    edges = pl.concat(
        [
            *_exchange_edges(exchanges, messages, rounds),
            *_norm_edges(found, exchanges, rounds),
        ]
    )
    return _ordered(operations, edges)


def _in_exchanges(rows: pl.DataFrame, exchanges: pl.DataFrame, time: str) -> pl.DataFrame:
    """Say in which exchange of its part each row is."""
    places = exchanges.select("part", "exchange", begun_ns="start_ns").sort("begun_ns")
    return rows.sort(time).join_asof(
        places, left_on=time, right_on="begun_ns", by="part", strategy="backward", check_sortedness=False
    )


def _name(kind: int, first: str, second: str | None = None) -> pl.Expr:
    """Name an operation, for edges to refer to."""
    number = pl.col(second).cast(pl.Int64) if second else pl.lit(-1, dtype=pl.Int64)
    return pl.struct(kind=pl.lit(kind), first=pl.col(first).cast(pl.Int64), second=number)


def _operations(found: Account, exchanges: pl.DataFrame, messages: pl.DataFrame, rounds: pl.DataFrame) -> pl.DataFrame:
    """Return all operations with `name`, and `time_ns` and `kind` to sort them by."""
    worked = found.gaps.select(
        "part", "took", "order", start_ns="end_ns", duration_ns="compute_ns", begun_ns="start_ns"
    )
    first = found.blocks.select("part", "start_ns", "first_ns")
    linked = (pl.col("step_index") - pl.col("step_index").shift().over("nic")).is_in([0, 1]).fill_null(value=False)
    begun = exchanges.with_columns(linked=linked)
    for known in (worked, first):
        begun = begun.join(known, on=["part", "start_ns"], how="left")
    work = begun.select(
        "part",
        "took",
        "order",
        name=_name(WORK, "exchange"),
        kind=pl.lit(WORK),
        time_ns="start_ns",
        duration_ns=pl.col("duration_ns").fill_null(0),
        first_ns=pl.col("first_ns") - pl.col("begun_ns"),
        earliest_ns=pl.when(~pl.col("linked")).then("step_start_ns"),
    )
    done = exchanges.select(
        name=_name(DONE, "exchange"), kind=pl.lit(DONE), time_ns="end_ns", duration_ns=pl.lit(0), part="part"
    )
    moved = messages.group_by("flow").agg(
        time_ns=pl.col("start_ns").max(), duration_ns=pl.col("end_ns").max() - pl.col("start_ns").max()
    )
    sent = moved.select("flow", "time_ns", "duration_ns", name=_name(MESSAGE, "flow"), kind=pl.lit(MESSAGE))
    together = rounds.group_by("group", "round").agg(
        time_ns=pl.col("begin_ns").max(),
        duration_ns=pl.col("end_ns").max() - pl.col("begin_ns").max(),
    )
    synced = together.select(
        "group", "round", "time_ns", "duration_ns", name=_name(ROUND, "group", "round"), kind=pl.lit(ROUND)
    )
    return pl.concat([work, done, sent, synced], how="diagonal_relaxed")


def _exchange_edges(exchanges: pl.DataFrame, messages: pl.DataFrame, rounds: pl.DataFrame) -> list[pl.DataFrame]:
    """Return `name` and `waits_for` of what happens in and between exchanges."""
    before = pl.col("exchange").shift().over("nic")
    near = (pl.col("step_index") - pl.col("step_index").shift().over("nic")).is_in([0, 1])
    following = exchanges.with_columns(before=before).filter(near)
    in_order = messages.select("exchange", "flow", "start_ns", "end_ns")
    earlier = in_order.select("exchange", "end_ns", follows="flow").sort("end_ns")
    after = in_order.sort("start_ns").join_asof(
        earlier, left_on="start_ns", right_on="end_ns", by="exchange", strategy="backward", check_sortedness=False
    )
    first = after.filter(pl.col("follows").is_null())
    later = after.drop_nulls("follows")
    return [
        following.select(name=_name(WORK, "exchange"), waits_for=_name(DONE, "before")),
        first.select(name=_name(MESSAGE, "flow"), waits_for=_name(WORK, "exchange")),
        later.select(name=_name(MESSAGE, "flow"), waits_for=_name(MESSAGE, "follows")),
        messages.select(name=_name(DONE, "exchange"), waits_for=_name(MESSAGE, "flow")),
        rounds.select(name=_name(ROUND, "group", "round"), waits_for=_name(WORK, "exchange")),
        rounds.select(name=_name(DONE, "exchange"), waits_for=_name(ROUND, "group", "round")),
    ]


def _norm_edges(found: Account, exchanges: pl.DataFrame, rounds: pl.DataFrame) -> list[pl.DataFrame]:
    """Let the update wait for the gradients of all groups where it does."""
    steps = found.parts.select("part", *JOB_STEP)
    updates = found.gaps.filter("together").select("part", start_ns="end_ns").join(exchanges, on=["part", "start_ns"])
    reduced = rounds.filter(pl.col("does") == SYNCHRONISED).join(steps, on="part")
    waiting = (
        updates.select("exchange", "part")
        .join(steps, on="part")
        .join(reduced.select("group", "round", *JOB_STEP).unique(), on=JOB_STEP)
    )
    return [waiting.select(name=_name(WORK, "exchange"), waits_for=_name(ROUND, "group", "round"))]


def _ordered(operations: pl.DataFrame, edges: pl.DataFrame) -> StepGraph:
    """Put operations in order of time, which is topological, and edges in the form of `finish`."""
    ordered = operations.sort("time_ns", "kind", "name").with_row_index("position")
    place = ordered.select("name", pl.col("position").cast(pl.Int64))
    known = (
        edges.join(place, on="name")
        .join(place.rename({"name": "waits_for", "position": "before"}), on="waits_for")
        .filter(pl.col("before") < pl.col("position"))
        .unique(["position", "before"])
        .sort("position", "before")
    )
    counts = np.bincount(known["position"].to_numpy(), minlength=ordered.height)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return StepGraph(ordered, offsets, known["before"].to_numpy().astype(np.int64))
