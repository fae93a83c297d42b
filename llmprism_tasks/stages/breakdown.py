"""Breakdown: what each NIC's time in a step went to; the parts add up to the step exactly.

- *compute*: work of the GPU or its host. A message that starts later than its peers' with nobody to wait for says so,
  and so does the time before what a NIC sends on its own account. Gradients that are reduced while the backward pass
  goes on behind them cost nothing of their own: they count as computing until the last round.
- *communication*: messages in flight that the NIC has to wait for, once all of their ends are there. A slow network
  makes it longer for the same bytes.
- *bubble*: waiting in the pipeline, or for the slowest pp_stage before parameters are updated, as all members of the
  pp_stage do in that place of the step.
- *waiting*: what exceeds that, and gradient synchronisation that could not begin, for its last member was not there.
  Who is waited for may wait itself: the chain is walked to its source.
- *unexplained*: what no rule explains.

Where parameters are fully sharded, and for the traffic of experts and context, all that is in flight is communication,
and what is not is computing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from llmprism_tasks import frames
from llmprism_tasks.methods.joining import Intervals
from llmprism_tasks.methods.segments import occurrences
from llmprism_tasks.methods.series import Integers
from llmprism_tasks.stages import activity, culprits, synchronisation
from llmprism_tasks.stages.activity import GATHERED, NOBODY, PIPELINED, SYNCHRONISED
from llmprism_tasks.stages.passes import worked
from llmprism_tasks.stages.placement import NIC, Messages, Placed, placed
from llmprism_tasks.windows import Window

PART = [*NIC, "step_index"]


@dataclass(frozen=True)
class Account:
    """What the NICs of jobs did in their steps.

    Attributes
    ----------
    placed : flows in the steps of both their ends
    parts : the steps of NICs, numbered: `part`, `job_id`, `addr`, `step_index`, `step_start_ns`, `step_end_ns`, …
    sides : the pairs once for each end, with `pp_stage`, `peer_pp_stage`, `does`
    blocks : as `synchronisation.blocks` returns
    exchanged : as `activity.exchanges` returns: `part`, `start_ns`, `end_ns`, `does`, `peer`
    gaps : what lies between exchanges: `part`, `start_ns`, `end_ns`, `took`, `compute_ns`, `bubble_ns`, `wait_ns`, …
    """

    placed: Placed
    parts: pl.DataFrame
    sides: pl.DataFrame
    blocks: pl.DataFrame
    exchanged: pl.DataFrame
    gaps: pl.DataFrame

    @cached_property
    def messages(self) -> pl.DataFrame:
        """Return the messages that take time, with what is known of their flows (numbered as `flow`) and sides."""
        every, flows = self.placed.messages, self.placed.flows
        some = every.where(every.end_ns > every.start_ns)
        kept = flows.select(name for name in ("bytes", "switch_path") if name in flows.columns)
        return pl.concat(
            [
                pl.DataFrame({"part": some.part, "flow": some.flow, "start_ns": some.start_ns, "end_ns": some.end_ns}),
                kept[some.flow],
                self.parts.select("step_index")[some.part],
                self.sides[some.side],
            ],
            how="horizontal",
        )


def account(flows: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, job_members: pl.DataFrame) -> Account:
    """Say what the NICs of jobs did in their steps; parameters as of `placement.placed` and of `breakdown`."""
    return accounted(placed(flows, steps), jobs, job_members)


def accounted(found: Placed, jobs: pl.DataFrame, job_members: pl.DataFrame) -> Account:
    """Say what the NICs of jobs did in their steps; parameters as of `breakdown`."""
    nics = _nics(found.nics, jobs, job_members)
    parts = found.parts.hstack(nics.drop("nic", *NIC)[found.parts["nic"].to_numpy()]).with_columns(
        job_step=pl.struct("job_id", "step_index").rank("dense")
    )
    messages = found.messages
    lasting = messages.end_ns > messages.start_ns
    gradient = (found.sides["kind"] == "dp").to_numpy()[messages.side]
    others = messages.where(lasting & ~gradient)
    sides = _does(found.sides, nics, others)
    blocks = synchronisation.blocks(messages.where(lasting & gradient), others, found, parts)
    exchanged = activity.exchanges(_all(others, blocks, sides, parts))
    gaps = _split(activity.gaps(exchanged, parts), parts)
    return Account(found, parts, sides, blocks, activity.rows(exchanged), gaps)


def breakdown(found: Placed, jobs: pl.DataFrame, job_members: pl.DataFrame, window: Window) -> pl.DataFrame:
    """Split the steps of NICs.

    Parameters
    ----------
    found : bulk flows in the NICs' steps
    jobs, job_members : the window's; `sharded`, `pp_stage` and `dp_group` may be NULL

    Returns
    -------
    step_breakdown
    """
    if found.parts.is_empty():
        return frames.empty("step_breakdown")
    told = accounted(found, jobs, job_members)
    culprit = culprits.walked(_waits(told.gaps, told.blocks, told.parts))
    sums = [
        told.exchanged.group_by("part").agg(busy_ns=(pl.col("end_ns") - pl.col("start_ns")).sum()),
        told.blocks.group_by("part").agg(stalled_ns=pl.col("wait_ns").sum()),
        told.gaps.group_by("part").agg(pl.col("compute_ns", "bubble_ns", "wait_ns").sum()),
        culprit.join(told.parts.select(target="part", waiting_for="addr"), on="target").drop("target"),
    ]
    rows = told.parts
    for table in sums:
        rows = rows.join(table, on="part", how="left", maintain_order="left")
    rows = _totals(rows).with_columns(window_start_ns=pl.lit(window.start_ns))
    return frames.conform(rows, "step_breakdown", ordered=True)


def _totals(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of step_breakdown: what is not accounted for is not explained."""
    rows = rows.with_columns(pl.col("busy_ns", "stalled_ns", "compute_ns", "bubble_ns", "wait_ns").fill_null(0))
    waiting = pl.col("wait_ns") + pl.col("stalled_ns")
    accounted = pl.sum_horizontal("busy_ns", "compute_ns", "bubble_ns", "wait_ns")
    return rows.with_columns(step_ns=pl.col("step_end_ns") - pl.col("step_start_ns")).select(
        *PART,
        "step_ns",
        "compute_ns",
        "bubble_ns",
        communication_ns=pl.col("busy_ns") - pl.col("stalled_ns"),
        waiting_ns=waiting,
        waiting_for=pl.when(waiting > 0).then("waiting_for"),
        unexplained_ns=pl.col("step_ns") - accounted,
    )


def _nics(nics: pl.DataFrame, jobs: pl.DataFrame, job_members: pl.DataFrame) -> pl.DataFrame:
    """Say of each NIC where it is in its job, and number who has the same place.

    `place` numbers the pp_stages of jobs, and is NULL where they are not known; there `alike` numbers NICs, for their
    other steps are what there is to compare with.
    """
    known = pl.col("pp_stage").is_not_null()
    place = pl.when(known).then(pl.struct("job_id", "pp_stage").rank("dense").cast(pl.Int64))
    return (
        nics.join(job_members.select(*NIC, "pp_stage", "dp_group"), on=NIC, how="left", maintain_order="left")
        .join(jobs.select("job_id", "sharded"), on="job_id", how="left", maintain_order="left")
        .with_columns(
            pl.col("sharded").fill_null(value=False), last_pp_stage=pl.col("pp_stage").max().over("job_id"), place=place
        )
        .with_columns(alike=pl.coalesce("place", -1 - pl.col("nic")))
    )


def _does(sides: pl.DataFrame, nics: pl.DataFrame, others: Messages) -> pl.DataFrame:
    """Say what the messages of each side are to its NIC.

    In interleaved schedules, where the last pp_stage sends to the first, the neighbours do not tell the place in the
    schedule.
    """
    stages = nics["pp_stage"]
    known = sides.with_columns(
        pp_stage=stages[sides["nic"].to_numpy()],
        peer_pp_stage=stages.gather(sides["peer_nic"]),
        moved=pl.Series(np.bincount(others.side, minlength=sides.height) > 0),
    )
    apart = pl.col("peer_pp_stage") - pl.col("pp_stage")
    around = (pl.col("moved") & (pl.col("kind") == "pp") & (apart.abs() != 1)).any().over("job_id")
    direction = pl.when(~around.fill_null(value=False)).then(apart)
    return known.with_columns(does=activity.does(direction, sends=pl.col("sends"), kind=pl.col("kind")))


def _all(others: Messages, blocks: pl.DataFrame, sides: pl.DataFrame, parts: pl.DataFrame) -> Intervals:
    """Return all that a NIC was busy with; of gradients, what cost time of its own."""
    owner = blocks["part"].to_numpy()
    place = others.offsets[owner + 1]
    return Intervals(
        others.offsets + np.searchsorted(owner, np.arange(parts.height + 1)),
        np.insert(others.start_ns, place, blocks["start_ns"]),
        np.insert(others.end_ns, place, blocks["end_ns"]),
        np.insert(sides["does"].to_numpy()[others.side], place, blocks["does"]),
        np.insert(_peers(others, sides, parts), place, NOBODY),
    )


def _peers(messages: Messages, sides: pl.DataFrame, parts: pl.DataFrame) -> Integers:
    """Return the part of each message's other end: its step of the same number, or `NOBODY` where it has none."""
    part = messages.part
    new = np.flatnonzero((np.diff(messages.side, prepend=-1) != 0) | (np.diff(part, prepend=-1) != 0))
    number = parts.select(pl.col("step_index").cast(pl.Int64) - pl.col("step_index").min()).to_series().to_numpy()
    steps = number.max(initial=0) + 1
    every = parts["nic"].to_numpy() * steps + number
    wanted = sides["peer_nic"].fill_null(-1).to_numpy()[messages.side[new]] * steps + number[part[new]]
    found = np.minimum(np.searchsorted(every, wanted), every.size - 1)
    peer = np.where(every[found] == wanted, found, NOBODY)
    return np.repeat(peer, np.diff(np.append(new, part.size)))


def _split(gaps: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Split gaps into `compute_ns`, `bubble_ns` and `wait_ns`; the rest of a gap is not explained."""
    described = parts.select("job_step", "pp_stage", "last_pp_stage", "place", "alike")
    split = worked(gaps.hstack(described[gaps["part"].to_numpy()]))
    length = pl.col("end_ns") - pl.col("start_ns")
    piped = (pl.col("took") & PIPELINED) > 0
    updating = ((pl.col("took") & GATHERED) > 0) & ~piped
    # If no group gathers its parameters before the last one has reduced its gradients, all wait for their norm.
    reduced = pl.when(updating).then("start_ns").max().over("job_step")
    together = pl.when(updating).then("end_ns").min().over("job_step") >= reduced
    for_others = pl.when(together).then(reduced - pl.col("start_ns")).otherwise(0)
    idle = pl.when(piped).then(length - pl.col("compute_ns")).when(updating).then(for_others).otherwise(0)
    offsets = np.searchsorted(gaps["part"].to_numpy(), np.arange(parts.height + 1))
    order = occurrences(gaps["took"].to_numpy(), offsets)
    split = split.with_columns(idle=idle, updating=updating, order=pl.Series(order))
    usual = pl.col("idle").quantile(0.5, interpolation="lower").over("alike", "took", "order").cast(pl.Int64)
    split = split.with_columns(bubble_ns=pl.min_horizontal("idle", usual), together=updating & together)
    return split.with_columns(
        compute_ns=pl.col("compute_ns") - pl.when("updating").then("idle").otherwise(0),
        wait_ns=pl.col("idle") - pl.col("bubble_ns"),
    )


def _waits(gaps: pl.DataFrame, blocks: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Return who waited for whom: `part`, `target` (that of the other), `wait_ns`, `step_ns`.

    Before parameters are updated, the job waits for who came last to the gradients that were reduced last; who that is
    waits for nobody that could be named.
    """
    late = blocks.filter(pl.col("does") == SYNCHRONISED).join(parts.select("part", "job_step"), on="part")
    slowest = late.sort("end_ns", "target").group_by("job_step").agg(slowest=pl.col("target").last())
    target = pl.when("updating").then("slowest").otherwise("peer")
    waited = gaps.filter(pl.col("wait_ns") > 0).join(slowest, on="job_step", how="left")
    waiting = waited.select("part", "wait_ns", target=target)
    rows = pl.concat([waiting, blocks.filter(pl.col("wait_ns") > 0).select("part", "wait_ns", "target")])
    steps = parts.select("part", step_ns=pl.col("step_end_ns") - pl.col("step_start_ns"))
    return rows.filter(pl.col("target") != pl.col("part")).join(steps, on="part")
