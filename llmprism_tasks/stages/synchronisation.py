"""Synchronisation: when the members of a gradient group came together in a step, and who came last.

A collective moves when its last member is there. Members that come early push what the buffers hold and stall, so each
member's first record of a round tells when it came, and the latest of them all when the round began. Rounds follow each
other as gradient buckets fill; while they do, the backward pass goes on behind them, so only the last round costs time
of its own. Where the optimizer is distributed, the gradients are followed by a gather of the parameters: a last round
of as many bytes as all of the gradients, or half of them in half the precision.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods.gatherings import attendances, gatherings, in_turn, summaries
from llmprism_tasks.methods.segments import sums
from llmprism_tasks.methods.series import Integers
from llmprism_tasks.methods.stretches import Booleans, Stretches, latest_before, merged
from llmprism_tasks.stages import activity, layout
from llmprism_tasks.stages.placement import NIC, Placed

GATHERED = (1.0, 0.5)
"""Bytes of all gathered parameters per byte of reduced gradients: in the same precision, and in half of it. Source:
Megatron-LM, megatron/core/distributed/param_and_grad_buffer.py (gradients in 32 bits, parameters in 16)."""

SAME_BYTES = 0.03
"""Ratio by which they may differ: headers, and tensors that are padded to be divided among the ranks."""


def rounds(gradients: Stretches, groups: Integers) -> pl.DataFrame:
    """Divide gradient traffic into the rounds in which all members of a group take part.

    Parameters
    ----------
    gradients : when each part (a NIC's step) had gradients in flight, and how many bytes
    groups : shape (parts,), a number for each group and step, -1 where there is none

    Returns
    -------
    one row per member and round, round by round: `part`, `group`, `round`, `came_ns`, `end_ns`, `begin_ns` (when the
    last member came), `last` (the part of that member), `gather` (whether parameters are gathered in it)
    """
    offsets, part, bursts, *taken = in_turn(
        *(gradients.offsets, gradients.starts, gradients.ends, gradients.sizes, groups),
        int(groups.max(initial=-1)) + 1,
    )
    met = attendances(gatherings(part, bursts, offsets), part, offsets, *taken)
    of_rounds = {"group": met.series, "round": met.numbers, "begin_ns": met.latest, "last": met.last}
    common = pl.DataFrame(of_rounds | {"bytes": sums(met.sizes, met.offsets)}).with_columns(gather=_gathers())
    of_members = pl.DataFrame({"part": met.members, "came_ns": met.starts, "end_ns": met.ends})
    return of_members.hstack(common.drop("bytes")[np.repeat(np.arange(common.height), np.diff(met.offsets))])


def _gathers() -> pl.Expr:
    """Tell the round that gathers parameters: as many bytes as all rounds before it, and more than each of them.

    It is told of rounds: `group`, `round`, `bytes`.
    """
    last = (pl.col("round") == pl.col("round").max().over("group")) & (pl.col("round") > 0)
    mine = pl.col("bytes")
    whole, largest = mine.sum().over("group"), pl.when(~last).then(mine).max().over("group")
    ratio = mine / (whole - mine)
    alike = pl.any_horizontal((ratio / gathered - 1).abs() <= SAME_BYTES for gathered in GATHERED)
    bucket = ((mine / largest - 1).abs() <= SAME_BYTES) & (pl.col("round") > 1)
    return last & alike & ~bucket


def groups_of(parts: pl.DataFrame, links: pl.DataFrame) -> Integers:
    """Number the gradient group of each NIC in each step, -1 where it has none.

    Groups are those of the layout where it is known, else made of who exchanges gradients with whom.

    Parameters
    ----------
    parts : `job_id`, `addr`, `step_index`, `dp_group` (may be NULL)
    links : `job_id`, `addr`, `peer` of those that exchange gradients
    """
    linked = layout.components(links.select("job_id", src_addr="addr", dst_addr="peer"))
    named = pl.struct("job_id", "step_index", "dp_group", pl.when(pl.col("dp_group").is_null()).then("component"))
    number = pl.when(pl.col("component").is_not_null()).then(named.rank("dense").cast(pl.Int64)).otherwise(-1)
    return parts.join(linked, on=NIC, how="left", maintain_order="left").select(number).to_series().to_numpy()


def blocks(found: Placed, parts: pl.DataFrame, gradient: Booleans) -> pl.DataFrame:
    """Return when each NIC could only synchronise: from when it had come, and done all else, until the end.

    Parameters
    ----------
    parts : those of `found`, with `dp_group` and `sharded`
    gradient : shape (sides,), those with messages that take time and carry gradients

    Returns
    -------
    sorted by `part` and `begin_ns`: `part`, `group`, `round`, `start_ns`, `begin_ns` (when the last one came),
    `first_ns` (when this one came to the first of its rounds), `end_ns`, `does`, `wait_ns` (start to begin), `target`
    (the part of the last one). The gradients' last round and the gather of parameters are a block each; where
    parameters are sharded, each round is one.
    """
    links = found.sides.filter(pl.Series(gradient))
    rows = rounds(_in_flight(found, gradient), groups_of(parts, links)).with_columns(
        lead_ns=pl.col("begin_ns") - pl.col("came_ns"), first_ns="came_ns"
    )
    sharded = parts["sharded"].to_numpy()[rows["part"].to_numpy()]
    rows = pl.concat([_exposed(rows.filter(~sharded)), rows.filter(sharded)]).sort("part", "begin_ns", "round")
    rows = rows.hstack(parts.select("step_start_ns", "step_end_ns")[rows["part"].to_numpy()])
    done = latest_before(
        np.searchsorted(rows["part"].to_numpy(), np.arange(parts.height + 1)),
        rows["begin_ns"].to_numpy(),
        found.messages.rows,
        (found.sides["kind"] != "dp").to_numpy(),
    )
    start = pl.max_horizontal(pl.col("begin_ns") - pl.col("lead_ns"), pl.lit(pl.Series(done)), "step_start_ns")
    # Where steps were cut apart, the last one may come after this one's step.
    begin = pl.min_horizontal("begin_ns", "step_end_ns")
    return rows.with_columns(start_ns=pl.min_horizontal(start, begin), begin_ns=begin).select(
        "part",
        "group",
        "round",
        "start_ns",
        "begin_ns",
        "first_ns",
        end_ns=pl.max_horizontal("end_ns", "begin_ns"),
        does=pl.when("gather").then(activity.GATHERED).otherwise(activity.SYNCHRONISED).cast(pl.Int32),
        wait_ns=pl.col("begin_ns") - pl.col("start_ns"),
        target="last",
    )


def _in_flight(found: Placed, gradient: Booleans) -> Stretches:
    """Return when each part had gradients in flight, to whomever."""
    kinds, sizes = np.where(gradient, 0, -1), found.flows["bytes"].to_numpy()
    return merged(found.messages.rows, kinds, gradient, sizes, np.zeros(1, np.bool_), shortest=1)


def _exposed(rows: pl.DataFrame) -> pl.DataFrame:
    """Return what of the gradients' rounds, and of the parameters' gather, costs a member time of its own.

    It was ahead of the last member by as much as in the round in which it was most: only then is it known to have had
    nothing else to do.
    """
    key = rows.select(2 * pl.col("part") + pl.col("gather").cast(pl.Int64)).to_series().to_numpy()
    first, last, ahead, ends = summaries(key, rows["lead_ns"].to_numpy(), rows["end_ns"].to_numpy())
    return rows[last].with_columns(
        rows["first_ns"][first], *rows.select("lead_ns", "last")[ahead], pl.Series("end_ns", ends)
    )
