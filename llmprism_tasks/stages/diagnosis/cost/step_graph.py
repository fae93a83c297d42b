"""Step graph: dependencies between the work, messages and collective rounds of a step, for replay with other durations.

Work before an exchange waits for the previous exchange. A message waits for the work of both its ends, and for the
message before it in each exchange. A collective round waits for the work of all members of its group. The parameter
update waits for the rounds of all groups if it needs the norm of all gradients. Waiting is no operation; it results
from the replay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.stages.diagnosis.cost.replay import finish
from llmprism_tasks.stages.timeline.breakdown import Account
from llmprism_tasks.stages.timeline.exchanges import SYNCHRONISED

WORK, MESSAGE, ROUND, DONE = range(4)
"""Kinds of operations; `DONE` marks the end of an exchange and takes no time."""

JOB_STEP = ["job_id", "step_index"]


@dataclass(frozen=True)
class StepGraph:
    """Operations in topological order.

    Attributes
    ----------
    operations : `position`, `kind`, `duration_ns`. `WORK` and `DONE` have `part`. `WORK` also has `took` and `order`
    (of
        its gap), `first_ns` (time until the first round, if rounds follow it) and `earliest_ns` (if no operation before
        it is known). `MESSAGE` has `flow`; `ROUND` has `group` and `round`
    offsets, predecessors : as for `replay.finish`
    """

    operations: pl.DataFrame
    offsets: Integers
    predecessors: Integers

    def step_ends(self, durations: Floats, parts: pl.DataFrame) -> pl.DataFrame:
        """Replay, and return when each job's steps end: `job_id`, `step_index`, `end_ns` (replayed), sorted.

        Parameters
        ----------
        durations : ns, in the order of `operations`
        """
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
    """Build the graph of all steps of an account; successive steps of a NIC are linked.

    Times are ns since the epoch; as floats they are exact to some 100 ns.
    """
    parts = found.parts.with_columns(nic=pl.struct("job_id", "addr").rank("dense"))
    exchanges = found.exchanged.with_columns(exchange=pl.int_range(pl.len())).join(
        parts.select("part", "nic", "step_index", "step_start_ns"), on="part", maintain_order="left"
    )
    messages = _assign_exchanges(found.messages.filter(pl.col("kind") != "dp"), exchanges, "start_ns")
    rounds = _assign_exchanges(found.blocks, exchanges, "start_ns")
    sent, synced = _message_operations(messages), _round_operations(rounds)
    operations = pl.concat(
        [_work_operations(found, exchanges), sent, synced, _end_operations(exchanges)], how="diagonal_relaxed"
    )
    # An operation's name is its row number: work and `DONE` by their exchange, messages and rounds by their own order.
    first_round = exchanges.height + sent.height
    named = exchanges.with_columns(done=pl.col("exchange") + first_round + synced.height)
    messages = _with_operation_names(messages, sent, exchanges.height, named, "flow")
    rounds = _with_operation_names(rounds, synced, first_round, named, "group", "round")
    edges = [*_exchange_edges(named, messages, rounds), *_norm_edges(found, named, rounds)]
    return _sort_operations(operations, pl.concat(edges))


def _assign_exchanges(rows: pl.DataFrame, exchanges: pl.DataFrame, time: str) -> pl.DataFrame:
    """Add to each row the exchange of its part that contains it."""
    places = exchanges.select("part", "exchange", begun_ns="start_ns").sort("begun_ns")
    return rows.sort(time).join_asof(
        places, left_on=time, right_on="begun_ns", by="part", strategy="backward", check_sortedness=False
    )


def _work_operations(found: Account, exchanges: pl.DataFrame) -> pl.DataFrame:
    """Return the work before each exchange."""
    worked = found.gaps.select(
        "part", "took", "order", start_ns="end_ns", duration_ns="compute_ns", begun_ns="start_ns"
    )
    first = found.blocks.select("part", "start_ns", "first_ns").unique(["part", "start_ns"], keep="first")
    linked = (pl.col("step_index") - pl.col("step_index").shift().over("nic")).is_in([0, 1]).fill_null(value=False)
    begun = exchanges.with_columns(linked=linked)
    for known in (worked, first):
        begun = begun.join(known, on=["part", "start_ns"], how="left", maintain_order="left")
    return begun.select(
        "part",
        "took",
        "order",
        kind=pl.lit(WORK),
        time_ns="start_ns",
        duration_ns=pl.col("duration_ns").fill_null(0),
        first_ns=pl.col("first_ns") - pl.col("begun_ns"),
        earliest_ns=pl.when(~pl.col("linked")).then("step_start_ns"),
    )


def _message_operations(messages: pl.DataFrame) -> pl.DataFrame:
    """Return the messages; a message moves once both its ends have started."""
    moved = messages.group_by("flow").agg(
        time_ns=pl.col("start_ns").max(), duration_ns=pl.col("end_ns").max() - pl.col("start_ns").max()
    )
    return moved.sort("flow").with_columns(kind=pl.lit(MESSAGE))


def _round_operations(rounds: pl.DataFrame) -> pl.DataFrame:
    """Return the collective rounds; a round moves once all members of the group have started."""
    together = rounds.group_by("group", "round").agg(
        time_ns=pl.col("begin_ns").max(),
        duration_ns=pl.col("end_ns").max() - pl.col("begin_ns").max(),
    )
    return together.sort("group", "round").with_columns(kind=pl.lit(ROUND))


def _end_operations(exchanges: pl.DataFrame) -> pl.DataFrame:
    """Return the ends of exchanges."""
    return exchanges.select("part", time_ns="end_ns", kind=pl.lit(DONE), duration_ns=pl.lit(0))


def _with_operation_names(
    rows: pl.DataFrame, operations: pl.DataFrame, first: int, exchanges: pl.DataFrame, *key: str
) -> pl.DataFrame:
    """Add to each row the `name` of its operation, its exchange, and the operation that ends that exchange (`done`)."""
    names = operations.select(*key, name=pl.int_range(pl.len()) + first)
    return rows.join(names, on=key).join(exchanges.select("exchange", "done"), on="exchange")


def _exchange_edges(exchanges: pl.DataFrame, messages: pl.DataFrame, rounds: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the dependencies (`name`, `waits_for`) inside exchanges and between successive ones."""
    near = (pl.col("step_index") - pl.col("step_index").shift().over("nic")).is_in([0, 1])
    following = exchanges.with_columns(before=pl.col("done").shift().over("nic")).filter(near)
    in_order = messages.select("exchange", "name", "start_ns", "end_ns")
    earlier = in_order.select("exchange", "end_ns", follows="name").sort("end_ns")
    after = in_order.sort("start_ns").join_asof(
        earlier, left_on="start_ns", right_on="end_ns", by="exchange", strategy="backward", check_sortedness=False
    )
    return [
        following.select(name="exchange", waits_for="before"),
        after.select("name", waits_for=pl.coalesce("follows", "exchange")),
        messages.select(name="done", waits_for="name"),
        rounds.select("name", waits_for="exchange"),
        rounds.select(name="done", waits_for="name"),
    ]


def _norm_edges(found: Account, exchanges: pl.DataFrame, rounds: pl.DataFrame) -> list[pl.DataFrame]:
    """Return the dependencies of a parameter update on the gradients of all groups, where it has them."""
    steps = found.parts.select("part", *JOB_STEP)
    updates = found.gaps.filter("together").select("part", start_ns="end_ns").join(exchanges, on=["part", "start_ns"])
    reduced = rounds.filter(pl.col("does") == SYNCHRONISED).join(steps, on="part")
    waiting = (
        updates.select("exchange", "part")
        .join(steps, on="part")
        .join(reduced.select("name", *JOB_STEP).unique(), on=JOB_STEP)
    )
    return [waiting.select(name="exchange", waits_for="name")]


def _sort_operations(operations: pl.DataFrame, edges: pl.DataFrame) -> StepGraph:
    """Sort operations by time, which is a topological order, and bring edges to the form that `finish` reads."""
    order = np.argsort(operations["time_ns"].to_numpy(), kind="stable")
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size)
    position, before = (place[edges[name].to_numpy()] for name in ("name", "waits_for"))
    known = before < position
    links = np.sort(position[known] * order.size + before[known])
    links = links[np.diff(links, prepend=-1) > 0]
    position, before = np.divmod(links, max(order.size, 1))
    offsets = np.searchsorted(position, np.arange(order.size + 1))
    return StepGraph(operations[order].with_row_index("position"), offsets, before)
