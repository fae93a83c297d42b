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

import polars as pl

from llmprism_tasks import frames
from llmprism_tasks.stages import activity, culprits, synchronisation
from llmprism_tasks.stages.activity import GATHERED, PIPELINED, SYNCHRONISED
from llmprism_tasks.stages.passes import PLACE, worked
from llmprism_tasks.stages.placement import NIC, placed
from llmprism_tasks.windows import Window

STEP = ["job_id", "step_index"]
PART = [*NIC, "step_index"]


@dataclass(frozen=True)
class Account:
    """What the NICs of jobs did in their steps.

    Attributes
    ----------
    parts : the steps of NICs, numbered: `part`, `job_id`, `addr`, `step_index`, `step_start_ns`, `step_end_ns`, …
    messages : flows in the steps of both their ends, with `part`, `flow` (its number), `kind`, `does`
    blocks : as `synchronisation.blocks` returns
    exchanged : as `activity.exchanges` returns
    gaps : what lies between exchanges: `part`, `start_ns`, `end_ns`, `took`, `compute_ns`, `bubble_ns`, `wait_ns`, …
    """

    parts: pl.DataFrame
    messages: pl.DataFrame
    blocks: pl.DataFrame
    exchanged: pl.DataFrame
    gaps: pl.DataFrame


def account(flows: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, job_members: pl.DataFrame) -> Account:
    """Say what the NICs of jobs did in their steps; parameters as of `breakdown`."""
    parts = _parts(steps, jobs, job_members)
    messages = _messages(flows, parts)
    blocks = synchronisation.blocks(messages, parts)
    exchanged = _exchanged(messages, blocks, parts)
    return Account(parts, messages, blocks, exchanged, _split(activity.gaps(exchanged, parts), parts))


def breakdown(
    flows: pl.DataFrame, steps: pl.DataFrame, jobs: pl.DataFrame, job_members: pl.DataFrame, window: Window
) -> pl.DataFrame:
    """Split the steps of NICs.

    Parameters
    ----------
    flows : bulk flows with `job_id` and `kind`
    steps : of NICs: `job_id`, `addr`, `step_index`, `start_ns`, `end_ns`
    jobs, job_members : the window's; `sharded`, `pp_stage` and `dp_group` may be NULL

    Returns
    -------
    step_breakdown
    """
    if steps.is_empty():
        return frames.empty("step_breakdown")
    found = account(flows, steps, jobs, job_members)
    culprit = culprits.walked(_waits(found.gaps, found.blocks, found.parts))
    sums = [
        found.exchanged.group_by("part").agg(busy_ns=(pl.col("end_ns") - pl.col("start_ns")).sum()),
        found.blocks.group_by("part").agg(stalled_ns=pl.col("wait_ns").sum()),
        found.gaps.group_by("part").agg(pl.col("compute_ns", "bubble_ns", "wait_ns").sum()),
        culprit.join(found.parts.select(target="part", waiting_for="addr"), on="target").drop("target"),
    ]
    rows = found.parts
    for table in sums:
        rows = rows.join(table, on="part", how="left")
    return frames.conform(_totals(rows).with_columns(window_start_ns=pl.lit(window.start_ns)), "step_breakdown")


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


def _parts(steps: pl.DataFrame, jobs: pl.DataFrame, job_members: pl.DataFrame) -> pl.DataFrame:
    """Number the steps of NICs, and say of each where it is in its job."""
    return (
        steps.select(*PART, step_start_ns="start_ns", step_end_ns="end_ns")
        .join(job_members.select(*NIC, "pp_stage", "dp_group"), on=NIC, how="left")
        .join(jobs.select("job_id", pl.col("sharded").fill_null(value=False)), on="job_id", how="left")
        .with_columns(last_pp_stage=pl.col("pp_stage").max().over("job_id"))
        .sort(PART)
        .with_row_index("part")
        .with_columns(pl.col("part").cast(pl.Int64))
    )


def _messages(flows: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Place flows in the steps of their ends, and say what each is to its NIC.

    In interleaved schedules, where the last pp_stage sends to the first, the neighbours do not tell the place in the
    schedule.
    """
    spans = parts.rename({"step_start_ns": "start_ns", "step_end_ns": "end_ns"})
    recent = flows.filter(pl.col("flow_end_ns") > parts["step_start_ns"].min())
    stages = parts.select("job_id", peer="addr", peer_pp_stage="pp_stage").unique()
    found = placed(recent.with_row_index("flow"), spans).filter(pl.col("end_ns") > pl.col("start_ns"))
    known = found.join(stages, on=["job_id", "peer"], how="left")
    apart = pl.col("peer_pp_stage") - pl.col("pp_stage")
    around = ((pl.col("kind") == "pp") & (apart.abs() != 1)).any().over("job_id")
    direction = pl.when(~around.fill_null(value=False)).then(apart)
    return known.with_columns(does=activity.does(direction, sends=pl.col("sends"), kind=pl.col("kind")))


def _exchanged(messages: pl.DataFrame, blocks: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Join what a NIC was busy with; of gradients, what cost time of its own."""
    own = messages.filter(pl.col("kind") != "dp")
    peers = parts.select(*STEP, "part", peer="addr").rename({"part": "peer_part"})
    columns = ["part", "start_ns", "end_ns", "does", "peer"]
    named = own.join(peers, on=[*STEP, "peer"], how="left").drop("peer").rename({"peer_part": "peer"})
    nobody = blocks.with_columns(peer=pl.lit(None, dtype=pl.Int64))
    return activity.exchanges(pl.concat([named.select(columns), nobody.select(columns)]))


def _split(gaps: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Split gaps into `compute_ns`, `bubble_ns` and `wait_ns`; the rest of a gap is not explained."""
    # Without a pp_stage, a NIC's other steps are what there is to compare with.
    alone = pl.when(pl.col("pp_stage").is_null()).then("addr")
    place = parts.select("part", *STEP, "pp_stage", "last_pp_stage", alone=alone)
    split = worked(gaps.join(place, on="part", maintain_order="left"))
    length = pl.col("end_ns") - pl.col("start_ns")
    updating = (pl.col("took") & GATHERED) > 0
    # If no group gathers its parameters before the last one has reduced its gradients, all wait for their norm.
    reduced = pl.col("start_ns").filter(updating).max().over(STEP)
    together = pl.col("end_ns").filter(updating).min().over(STEP) >= reduced
    for_others = pl.when(together).then(reduced - pl.col("start_ns")).otherwise(0)
    piped = (pl.col("took") & PIPELINED) > 0
    idle = pl.when(piped).then(length - pl.col("compute_ns")).when(updating).then(for_others).otherwise(0)
    split = split.with_columns(idle=idle, updating=updating, order=pl.int_range(pl.len()).over("part", "took"))
    usual = pl.col("idle").quantile(0.5, interpolation="lower").over(*PLACE, "alone", "took", "order").cast(pl.Int64)
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
    late = blocks.filter(pl.col("does") == SYNCHRONISED).join(parts.select("part", *STEP), on="part")
    slowest = late.sort("end_ns", "target").group_by(STEP).agg(slowest=pl.col("target").last())
    target = pl.when("updating").then("slowest").otherwise("peer")
    waiting = gaps.join(slowest, on=STEP, how="left").select("part", "wait_ns", target=target)
    rows = pl.concat([waiting, blocks.select("part", "wait_ns", "target")]).filter(pl.col("wait_ns") > 0)
    steps = parts.select("part", step_ns=pl.col("step_end_ns") - pl.col("step_start_ns"))
    return rows.filter(pl.col("target") != pl.col("part")).join(steps, on="part")
