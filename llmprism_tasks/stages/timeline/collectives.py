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

from llmprism_tasks.numerics.intervals import Booleans, latest_before
from llmprism_tasks.numerics.ragged import sums
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.parallelism import pair_graph
from llmprism_tasks.stages.timeline import exchanges
from llmprism_tasks.stages.timeline.kernels.collective_rounds import Attendances, attendances, summaries
from llmprism_tasks.stages.timeline.placement import NIC, Placed

GATHERED_PER_REDUCED = (1.0, 0.5)
"""Bytes of all gathered parameters per byte of reduced gradients: in the same precision, and in half of it. Source:
Megatron-LM, megatron/core/distributed/param_and_grad_buffer.py (gradients in 32 bits, parameters in 16)."""

BYTES_TOLERANCE = 0.03
"""Ratio by which they may differ: headers, and tensors that are padded to be divided among the ranks."""


def rounds(found: Placed, gradient: Booleans, groups: Integers) -> tuple[Attendances, pl.DataFrame]:
    """Divide gradient traffic into the rounds in which all members of a group take part.

    Parameters
    ----------
    gradient : shape (sides,), those that carry gradients
    groups : shape (parts,), a number for each group and step, -1 where there is none

    Returns
    -------
    what each part did in each round, and of these rounds: `group`, `round`, `begin_ns` (when the last member came),
    `last` (the part of that member), `gather` (whether parameters are gathered in it)
    """
    met = attendances(found.rows, gradient, found.flows["bytes"].to_numpy(), groups, int(groups.max(initial=-1)) + 1)
    of_rounds = {"group": met.groups, "round": met.numbers, "begin_ns": met.latest, "last": met.last}
    common = pl.DataFrame(of_rounds | {"bytes": sums(met.sizes, met.offsets)})
    return met, common.with_columns(gather=_is_gather()).drop("bytes")


def _is_gather() -> pl.Expr:
    """Tell the round that gathers parameters: as many bytes as all rounds before it, and more than each of them.

    It is told of rounds: `group`, `round`, `bytes`.
    """
    last = (pl.col("round") == pl.col("round").max().over("group")) & (pl.col("round") > 0)
    mine = pl.col("bytes")
    whole, largest = mine.sum().over("group"), pl.when(~last).then(mine).max().over("group")
    ratio = mine / (whole - mine)
    alike = pl.any_horizontal((ratio / gathered - 1).abs() <= BYTES_TOLERANCE for gathered in GATHERED_PER_REDUCED)
    bucket = ((mine / largest - 1).abs() <= BYTES_TOLERANCE) & (pl.col("round") > 1)
    return last & alike & ~bucket


def groups_of(parts: pl.DataFrame, nics: pl.DataFrame, links: pl.DataFrame) -> Integers:
    """Number the gradient group of each NIC in each step, -1 where it has none.

    Groups are those of the layout where it is known, else made of who exchanges gradients with whom.

    Parameters
    ----------
    parts : `nic`, `job_step` (a number for each step of a job), `dp_group` (may be NULL)
    nics : `job_id`, `addr`, in order of their numbers
    links : `job_id`, `addr`, `peer` of those that exchange gradients
    """
    linked = pair_graph.components(links.select("job_id", src_addr="addr", dst_addr="peer"))
    component = nics.join(linked, on=NIC, how="left", maintain_order="left")["component"].gather(parts["nic"])
    named = pl.struct("job_step", "dp_group", pl.when(pl.col("dp_group").is_null()).then("component"))
    number = pl.when(pl.col("component").is_not_null()).then(named.rank("dense").cast(pl.Int64)).otherwise(-1)
    return parts.with_columns(component=component).select(number).to_series().to_numpy()


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
    met, common = rounds(found, gradient, groups_of(parts, found.nics, links))
    rows = _exposed_rounds(met, common, parts["sharded"].to_numpy()).sort("part", "begin_ns", "round")
    rows = rows.hstack(parts.select("step_start_ns", "step_end_ns")[rows["part"].to_numpy()])
    done = latest_before(
        np.searchsorted(rows["part"].to_numpy(), np.arange(parts.height + 1)),
        rows["begin_ns"].to_numpy(),
        found.rows,
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
        does=pl.when("gather").then(exchanges.GATHERED).otherwise(exchanges.SYNCHRONISED).cast(pl.Int32),
        wait_ns=pl.col("begin_ns") - pl.col("start_ns"),
        target="last",
    )


def _exposed_rounds(met: Attendances, common: pl.DataFrame, sharded: Booleans) -> pl.DataFrame:
    """Return what of the gradients' rounds, and of the parameters' gather, costs a member time of its own.

    It was ahead of the last member by as much as in the round in which it was most: only then is it known to have had
    nothing else to do. Where parameters are sharded, it is each round.

    Parameters
    ----------
    met, common : as `rounds` returns
    sharded : shape (parts,)

    Returns
    -------
    the columns of `common`, `part`, `first_ns`, `lead_ns`, `end_ns`
    """
    found = summaries(met, common["gather"].to_numpy(), sharded)
    return common[found.of_last].with_columns(
        part=met.members[found.last],
        first_ns=met.starts[found.first],
        lead_ns=found.leads,
        end_ns=found.ends,
        last=common["last"].to_numpy()[found.of_most],
    )
