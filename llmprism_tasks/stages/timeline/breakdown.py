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
from typing import NamedTuple

import numpy as np
import polars as pl

from llmprism_tasks.contract import frames
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.numerics.intervals import Booleans, lasting
from llmprism_tasks.numerics.ragged import totals
from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.timeline import collectives, exchanges
from llmprism_tasks.stages.timeline.exchanges import ALL_BITS, GATHERED, PIPELINED, SYNCHRONISED
from llmprism_tasks.stages.timeline.kernels.interval_union import (
    NO_SEGMENT,
    Counterparts,
    Gaps,
    Intervals,
    gaps_between,
)
from llmprism_tasks.stages.timeline.kernels.pass_time import idle_times
from llmprism_tasks.stages.timeline.pipeline_passes import worked
from llmprism_tasks.stages.timeline.placement import NIC, Placed, placed
from llmprism_tasks.stages.timeline.wait_chains import root_causes


class Split(NamedTuple):
    """What the gaps between exchanges went to; arrays of shape (gaps,).

    Attributes
    ----------
    order : how often the same was exchanged before after a gap of this part
    compute_ns, bubble_ns, wait_ns : the rest of a gap is not explained
    updating : whether parameters are gathered after it
    together : whether that had to wait for the gradients of the whole job
    """

    order: Integers
    compute_ns: Integers
    bubble_ns: Integers
    wait_ns: Integers
    updating: Booleans
    together: Booleans


@dataclass(frozen=True)
class Account:
    """What the NICs of jobs did in their steps.

    Attributes
    ----------
    placed : flows in the steps of both their ends
    parts : the steps of NICs, numbered: `part`, `job_id`, `addr`, `step_index`, `step_start_ns`, `step_end_ns`, …
    sides : the pairs once for each end, with `pp_stage`, `peer_pp_stage`, `does`
    blocks : as `collectives.blocks` returns
    exchanges : what messages are in flight together, part by part
    between, split : what lies between exchanges, and what it went to
    """

    placed: Placed
    parts: pl.DataFrame
    sides: pl.DataFrame
    blocks: pl.DataFrame
    exchanges: Intervals
    between: Gaps
    split: Split

    @cached_property
    def exchanged(self) -> pl.DataFrame:
        """Return the exchanges, as `exchanges.rows` does."""
        return exchanges.rows(self.exchanges)

    @cached_property
    def gaps(self) -> pl.DataFrame:
        """Return the gaps: `part`, `start_ns`, `end_ns`, `took` (bits of the exchange after it, 0 without one), and
        what it went to."""
        found = {
            "part": self.between.segments.astype(np.int64),
            "start_ns": self.between.starts,
            "end_ns": self.between.ends,
            "took": self.between.took,
        }
        return pl.DataFrame(found | self.split._asdict())

    @cached_property
    def messages(self) -> pl.DataFrame:
        """Return the messages that take time, with what is known of their flows (numbered as `flow`) and sides."""
        every, flows = self.placed.messages, self.placed.flows
        some = every.filter(pl.col("end_ns") > pl.col("start_ns"))
        kept = flows.select(name for name in ("bytes", "switch_path") if name in flows.columns)
        return pl.concat(
            [
                some.drop("side"),
                kept[some["flow"]],
                self.parts.select("step_index")[some["part"]],
                self.sides[some["side"]],
            ],
            how="horizontal",
        )


def account(flows: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, job_members: pl.DataFrame) -> Account:
    """Say what the NICs of jobs did in their steps; parameters as of `placement.placed` and of `breakdown`."""
    return accounted(placed(flows, steps), jobs, job_members)


def accounted(found: Placed, jobs: pl.DataFrame, job_members: pl.DataFrame) -> Account:
    """Say what the NICs of jobs did in their steps; parameters as of `breakdown`."""
    nics = _nic_places(found.nics, jobs, job_members)
    parts = found.parts.hstack(nics.drop("nic", *NIC)[found.parts["nic"].to_numpy()]).with_columns(
        job_step=pl.struct("job_id", "step_index").rank("dense")
    )
    messages, gradient = found.rows, (found.sides["kind"] == "dp").to_numpy()
    moved = lasting(messages, found.sides.height)
    sides = _with_message_bits(found.sides, nics, moved & ~gradient)
    blocks = collectives.blocks(found, parts, moved & gradient)
    bits = np.where(gradient, 0, sides["does"].to_numpy()).astype(np.int32)
    exchanged = exchanges.exchanges(messages, bits, _counterparts(sides, parts), blocks)
    gaps = gaps_between(exchanged, *(parts[f"step_{end}_ns"].to_numpy() for end in ("start", "end")))
    return Account(found, parts, sides, blocks, exchanged, gaps, _split_gaps(gaps, parts))


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
    parts, blocks, split, offsets = told.parts, told.blocks, told.split, told.between.offsets
    step_ns = parts.select(pl.col("step_end_ns") - pl.col("step_start_ns")).to_series().to_numpy()
    whom = root_causes(*_waits(told), step_ns)
    stalled_ns = np.zeros(parts.height, np.int64)
    np.add.at(stalled_ns, blocks["part"].to_numpy(), blocks["wait_ns"].to_numpy())
    busy_ns = totals(told.exchanges.ends - told.exchanges.starts, told.exchanges.offsets)
    compute_ns, bubble_ns, wait_ns = (
        totals(one, offsets) for one in (split.compute_ns, split.bubble_ns, split.wait_ns)
    )
    waiting_ns = wait_ns + stalled_ns
    waited_for = (pl.col("waiting_ns") > 0) & (pl.col("waiting_for") != NO_SEGMENT)
    rows = parts.with_columns(
        window_start_ns=pl.lit(window.start_ns),
        step_ns=step_ns,
        compute_ns=compute_ns,
        communication_ns=busy_ns - stalled_ns,
        bubble_ns=bubble_ns,
        waiting_ns=waiting_ns,
        waiting_for=pl.Series(whom),
        unexplained_ns=step_ns - busy_ns - compute_ns - bubble_ns - wait_ns,
    ).with_columns(waiting_for=pl.col("addr").gather(pl.when(waited_for).then("waiting_for")))
    return frames.conform(rows, "step_breakdown", ordered=True)


def _nic_places(nics: pl.DataFrame, jobs: pl.DataFrame, job_members: pl.DataFrame) -> pl.DataFrame:
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
        .with_columns(alike=pl.coalesce(pl.col("place") - 1, pl.col("place").max().fill_null(0) + pl.col("nic")))
    )


def _with_message_bits(sides: pl.DataFrame, nics: pl.DataFrame, moved: Booleans) -> pl.DataFrame:
    """Say what the messages of each side are to its NIC.

    In interleaved schedules, where the last pp_stage sends to the first, the neighbours do not tell the place in the
    schedule.

    Parameters
    ----------
    moved : shape (sides,), those with messages that take time, gradients apart
    """
    stages = nics["pp_stage"]
    known = sides.with_columns(
        pp_stage=stages[sides["nic"].to_numpy()],
        peer_pp_stage=stages.gather(sides["peer_nic"]),
        moved=pl.Series(moved),
    )
    apart = pl.col("peer_pp_stage") - pl.col("pp_stage")
    around = (pl.col("moved") & (pl.col("kind") == "pp") & (apart.abs() != 1)).any().over("job_id")
    direction = pl.when(~around.fill_null(value=False)).then(apart)
    return known.with_columns(does=exchanges.message_bit(direction, sends=pl.col("sends"), kind=pl.col("kind")))


def _counterparts(sides: pl.DataFrame, parts: pl.DataFrame) -> Counterparts:
    """Return whose parts are at the other ends of sides: those of the same step."""
    nic = parts["nic"].to_numpy()
    offsets = np.searchsorted(nic, np.arange(nic[-1:].max(initial=-1) + 2))
    owners = sides["peer_nic"].fill_null(NO_SEGMENT).to_numpy()
    return Counterparts(owners, parts["step_index"].cast(pl.Int64).to_numpy(), offsets)


def _split_gaps(gaps: Gaps, parts: pl.DataFrame) -> Split:
    """Say what gaps went to; the rest of a gap is not explained."""
    computed, idle = worked(gaps, parts)
    updating = (gaps.took & (GATHERED | PIPELINED)) == GATHERED
    together, update = np.zeros(updating.size, np.bool_), np.flatnonzero(updating)
    idle[update], together[update] = _norm_waits(gaps, update, parts["job_step"].to_numpy())
    computed[update] -= idle[update]
    found = idle_times(gaps.offsets, idle, gaps.took, parts["alike"].to_numpy(), ALL_BITS)
    return Split(found.turns, computed, found.usual, found.beyond, updating, together)


def _norm_waits(gaps: Gaps, update: Integers, job_step: Integers) -> tuple[Integers, Booleans]:
    """Say for how long gaps before an update wait for the norm of all gradients, ns, and whether they do.

    If no group gathers its parameters before the last one has reduced its gradients, all wait for it.
    """
    step, starts = job_step[gaps.segments[update]], gaps.starts[update]
    reduced, gathered = np.zeros((2, job_step.max(initial=0) + 1), np.int64)
    gathered[:] = np.iinfo(np.int64).max
    np.maximum.at(reduced, step, starts)
    np.minimum.at(gathered, step, gaps.ends[update])
    together = (gathered >= reduced)[step]
    return np.where(together, reduced[step] - starts, 0), together


def _waits(told: Account) -> tuple[Integers, Integers, Integers]:
    """Return who waited for whom: the part, that of the other, and for how long, ns.

    Before parameters are updated, the job waits for who came last to the gradients that were reduced last; who that is
    waits for nobody that could be named.
    """
    gaps, blocks, job_step = told.between, told.blocks, told.parts["job_step"].to_numpy()
    waited = np.flatnonzero(told.split.wait_ns)
    late = blocks.filter(pl.col("does") == SYNCHRONISED)
    step, target, end_ns = job_step[late["part"].to_numpy()], late["target"].to_numpy(), late["end_ns"].to_numpy()
    latest, slowest = np.zeros(job_step.max(initial=0) + 1, np.int64), np.full(job_step.max(initial=0) + 1, NO_SEGMENT)
    np.maximum.at(latest, step, end_ns)
    of_latest = end_ns == latest[step]
    np.maximum.at(slowest, step[of_latest], target[of_latest])
    gap = gaps.segments[waited]
    of_gap = np.where(told.split.updating[waited], slowest[job_step[gap]], gaps.peers[waited])
    stalled = blocks.filter(pl.col("wait_ns") > 0)
    part, target, wait_ns = (
        np.concatenate([one, stalled[name].to_numpy()])
        for name, one in (("part", gap), ("target", of_gap), ("wait_ns", told.split.wait_ns[waited]))
    )
    named = (target != part) & (target != NO_SEGMENT)
    return part[named], target[named], wait_ns[named]
