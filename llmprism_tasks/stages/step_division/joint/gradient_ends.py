"""Gradient ends: the same steps of jobs, ended by the pairs that synchronise gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from llmprism_tasks.numerics import ragged
from llmprism_tasks.numerics.robust import MAJORITY, Flags, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.group_steps import merge_steps, recut_at_step_ends
from llmprism_tasks.stages.step_division.groups.rhythm_rows import SILENT_PERIODS, same_period
from llmprism_tasks.stages.step_division.groups.templates.levels import EXPLAINED_BYTES, NEARLY_ALL
from llmprism_tasks.stages.step_division.joint.cycles import with_whole_steps
from llmprism_tasks.stages.step_division.joint.joint_steps import JointSteps, Streams, jointly_cut_streams, number_steps
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS
from llmprism_tasks.stages.step_division.periodicity import AT_TURNS, PAIR, WHOLE_PAIR
from llmprism_tasks.stages.step_division.segmentation import STREAM_COLUMNS
from llmprism_tasks.stages.traffic import nic_pairs


def steps_ended_by(
    joint: JointSteps, pairs: pl.DataFrame, settings: RhythmSettings, *, last_run: bool = True
) -> JointSteps:
    """Return the same steps of jobs, by the same numbers, as the bursts of some pairs alone show them.

    Whoever found the steps, jobs that are silent between them end them alike, as `step_ends` says.

    Bursts of these pairs that the joint steps left out, because their pair is too broken to show the period, or because
    they end elsewhere in the step than others, are lined up with the rest. Where some of these have a number, all have.

    Parameters
    ----------
    joint : as `steps_of_jobs` returns
    pairs : `src_addr`, `dst_addr`, `kind`. Those that are too broken to show the period are cut at the gap typical of
        their job's others
    last_run : whether the numbers after the joint steps are free
    """
    streams = _recut_streams(joint, pairs, settings)
    once = streams.once.join(pairs, on=PAIR, how="semi")
    chosen = pl.concat([_streams_of_pairs(streams, pairs).select(STREAM_COLUMNS), once.select(STREAM_COLUMNS)])
    own = number_steps(joint.flows, streams, chosen, settings, joint.before_ns)
    cut = chosen.join(_uncut_pairs(own), on="pair", how="anti")
    if 0 < cut.height < chosen.height:
        own = number_steps(joint.flows, streams, cut, settings, joint.before_ns)
    own = with_whole_steps(own, settings)
    own = replace(own, steps=_without_uncut_bursts(own))
    return replace(own, steps=_joint_step_numbers(own, joint, last_run=last_run))


def _recut_streams(joint: JointSteps, ending: pl.DataFrame, settings: RhythmSettings) -> Streams:
    """Return the streams of jobs, of which those that are silent between their steps are cut there."""
    streams = joint.streams
    periods = streams.in_step.select("group", "group_period_ns").unique("group")
    every = streams.found.filter(pl.col("size_class") == WHOLE_PAIR)
    pausing = _pausing_gradients(every, ending, periods, settings)
    ends = ending.select(*PAIR, ending=pl.lit(value=True)).unique()
    marked = pausing.join(ends, on=PAIR, how="left", maintain_order="left").with_columns(
        pl.col("ending").fill_null(value=False)
    )
    whole = nic_pairs.as_coded(marked, joint.flows)
    alone = _groups_without_other_traffic(every, ending)
    # Where blocks of context or tokens are sent, too, the backward pass does not end with its last long silence. And
    # gradients that pause tell the end more exactly than the passes, which are seen by what never pauses.
    ended = streams.together.streams.filter("ended", pl.col("group").is_in(alone.implode())).select("group")
    ended = ended.join(whole.filter("pauses"), on="group", how="anti")
    known = pl.concat([ended, streams.of_few.cast(ended.schema), _gradients_between_tokens(streams, ending)])
    groups = periods.join(known, on="group", how="anti")
    whole = whole.join(groups, on="group", how="semi", maintain_order="left").sort("group", "pair")
    if whole.is_empty():
        return streams
    pairs = joint.flows["pair"].to_numpy()[nic_pairs.starts_of_pairs(joint.flows)[:-1]]
    numbers = whole["group"].rle_id().to_numpy().astype(np.int64)
    ends = joint.step_end_times(np.searchsorted(pairs, whole["pair"].to_numpy()), numbers)
    names = whole["group"].gather(ragged.bounds(numbers)[:-1])
    steps = ends.with_columns(group=names.gather(ends["group"]))
    tokens = nic_pairs.as_coded(ending.filter(pl.col("kind") == "ep").select(PAIR), whole)
    exchanging = whole.join(tokens, on=PAIR, how="semi").select("pair", "group", *PAIR)
    reducing = _gradients_among_tokens(joint.flows, exchanging, steps)
    anew = recut_at_step_ends(joint.flows, whole, steps, alone, settings, reducing=reducing)
    others = streams.together.streams.join(anew.streams, on="group", how="anti")
    found = streams.found.join(anew.streams, on="group", how="semi", maintain_order="left")
    shared = jointly_cut_streams(nic_pairs.as_coded(found, joint.flows), anew).select(streams.in_step.columns)
    kept = streams.in_step.join(anew.streams, on="group", how="anti", maintain_order="left")
    in_step = pl.concat([kept, shared])
    return replace(streams, in_step=in_step, together=merge_steps([streams.together.of(others), anew]))


def _gradients_between_tokens(streams: Streams, ending: pl.DataFrame) -> pl.DataFrame:
    """Return the groups whose steps only messages of one size show, which share their pairs with tokens, whose sizes
    never repeat: `group`. These messages are gradients, and end the step; what else is sent has no end of its own."""
    sized = streams.in_step.filter((pl.col("size_class") >= 0).all().over("group"))
    shared = sized.with_columns(nic_pairs.named(sized.select(PAIR)))
    return shared.join(ending.filter(pl.col("kind") == "ep"), on=PAIR, how="semi").select("group").unique()


def _gradients_among_tokens(flows: pl.DataFrame, exchanging: pl.DataFrame, steps: pl.DataFrame) -> Flags:
    """Return which flows of pairs that exchange tokens are gradients: shape (flows,). Sizes of tokens never repeat; of
    theirs as many come in nearly each step. All NICs reduce them: where only some show any, the collector joined the
    others with tokens, and what is left says nothing of when the last come. Where steps end soon after the
    last of them already, they tell nothing new.

    Parameters
    ----------
    exchanging : `pair`, `group`, `src_addr`, `dst_addr`
    steps : `group`, `step`, `end_ns`, when the steps end that were found
    """
    found = np.zeros(flows.height, np.bool_)
    if exchanging.is_empty():
        return found
    ends = steps.select("group", "step", "end_ns", flow_start_ns="end_ns").sort("flow_start_ns")
    sent = (
        flows.select("pair", "flow_start_ns", "bytes")
        .with_row_index("row")
        .join(exchanging.select("pair", "group"), on="pair")
        .sort("flow_start_ns")
        .join_asof(ends, on="flow_start_ns", by="group", check_sortedness=False)
    )
    size = ["pair", "bytes"]
    several = pl.col("step").filter(pl.col("step") < pl.col("step").max()).n_unique().over("pair")
    each = sent.with_columns(steps=several).group_by(*size, "step").agg(pl.len(), pl.col("steps").first())
    usual = pl.col("len") == pl.col("len").mode().min().over(size)
    again = each.group_by(size).agg(ratio=usual.sum() / pl.col("steps").first(), steps=pl.col("steps").first())
    repeated = again.filter(pl.col("ratio") >= NEARLY_ALL, pl.col("steps") > FEW_BURSTS)
    told = exchanging.with_columns(told=pl.col("pair").is_in(repeated["pair"].implode()))
    everywhere = [pl.col(end).filter("told").n_unique() == pl.col(end).n_unique() for end in PAIR]
    groups = told.group_by("group").agg(told=pl.all_horizontal(everywhere)).filter("told")
    gradients = sent.join(repeated, on=size, how="semi").join(groups, on="group", how="semi")
    gradients = gradients.join(_ended_between(gradients), on="group", how="anti")
    found[gradients["row"].to_numpy()] = True
    return found


def _ended_between(gradients: pl.DataFrame) -> pl.DataFrame:
    """Return the groups most of whose steps end in the first half of their longest time without gradients: `group`.

    Parameters
    ----------
    gradients : `group`, `step`, `end_ns` (of the step that ended before), `flow_start_ns`, in order of time
    """
    step, end_ns, start_ns = (pl.col(name).shift(-1).over("group") for name in ("step", "end_ns", "flow_start_ns"))
    gap = start_ns - pl.col("flow_start_ns")
    gaps = gradients.with_columns(at_end=step != pl.col("step"), gap=gap, into=end_ns - pl.col("flow_start_ns"))
    inside = pl.col("gap").filter(~pl.col("at_end")).max().fill_null(0)
    last = pl.col("at_end") & (pl.col("into") <= MAJORITY * pl.col("gap"))
    each = gaps.group_by("group", "step").agg(soon=pl.col("gap").filter(last).max().fill_null(-1) >= inside)
    most = each.group_by("group").agg(pl.col("soon").mean())
    return most.filter(pl.col("soon") >= MAJORITY).select("group")


def _pausing_gradients(
    pairs: pl.DataFrame, ending: pl.DataFrame, periods: pl.DataFrame, settings: RhythmSettings
) -> pl.DataFrame:
    """Return pairs with `pauses`: whether they synchronise gradients once in each step and do nothing else, while their
    senders send most bytes over pairs that do not pause once in each step.

    Where parameters are sharded inside groups of hosts and gathered throughout the step, gradients are reduced among
    the groups in the backward pass.

    Parameters
    ----------
    pairs : whole pairs, as `stream_rhythms` returns, with `group`
    periods : `group`, `group_period_ns`
    """
    reduces = ending.filter(pl.col("kind") == "dp").select(*PAIR, reduces=pl.lit(value=True))
    once = (same_period("period_ns", "group_period_ns", settings) & pl.col("reduces")).fill_null(value=False)
    known = (
        pairs.join(reduces, on=PAIR, how="left", maintain_order="left")
        .join(periods.cast({"group": pairs.schema["group"]}), on="group", how="left", maintain_order="left")
        .with_columns(once=once)
    )
    sent = pl.col("bytes").filter(pl.col("once").any().over("group", "src_addr")).sum()
    few = pl.col("bytes").filter("once").sum() < MAJORITY * sent
    return known.select(pairs.columns, pauses=pl.col("once") & few.over("group"))


def _groups_without_other_traffic(pairs: pl.DataFrame, ending: pl.DataFrame) -> pl.Series:
    """Return the groups that send hardly anything but what ends their steps.

    Parameters
    ----------
    pairs : `group`, `src_addr`, `dst_addr`, `bytes`
    """
    sent = pairs.group_by("group").agg(pl.col("bytes").sum())
    theirs = pairs.join(ending, on=PAIR, how="semi").group_by("group").agg(ending=pl.col("bytes").sum())
    return sent.join(theirs, on="group").filter(pl.col("ending") >= EXPLAINED_BYTES * pl.col("bytes"))["group"]


def _joint_step_numbers(own: JointSteps, joint: JointSteps, *, last_run: bool) -> Integers:
    """Return the joint steps of bursts, -1 for none: of those that fall together, the one that most of their bytes are
    part of. Where none of them is part of any, the nearest in time, unless others are part of that.

    Joint steps that end in the middle of a step lack the last one, half of which is part of the joint step before. It
    gets the number after that.
    """
    bursts, shared = _bursts_in_steps(own), _shared_bytes(own, joint)
    known = shared.sort("job", "step", "bytes", "joint").group_by("job", "step", maintain_order=True).last()
    if last_run:
        known = _with_last_step(known, bursts)
    ended = bursts.group_by("job", "step").agg(pl.col("end_ns").max()).sort("end_ns")
    joint_ends = _bursts_in_steps(joint).group_by("job", joint="step").agg(pl.col("end_ns").max()).sort("end_ns")
    nearest = (
        ended.join(known, on=["job", "step"], how="anti", maintain_order="left")
        .join_asof(joint_ends, on="end_ns", by="job", strategy="nearest", check_sortedness=False)
        .join(known, on=["job", "joint"], how="anti", maintain_order="left")
        .unique(["job", "joint"], keep="last", maintain_order=True)
    )
    numbers = pl.concat([each.select("job", "step", "joint") for each in (known, nearest)])
    steps = np.full(own.steps.size, -1)
    numbered = bursts.join(numbers, on=["job", "step"], how="left", maintain_order="left")
    steps[bursts["burst"].to_numpy()] = numbered["joint"].fill_null(-1).to_numpy()
    return steps


def _shared_bytes(own: JointSteps, joint: JointSteps) -> pl.DataFrame:
    """Return how many bytes of a job's steps are part of each of its joint steps: `job` (a number), `step`, `joint`,
    `bytes`."""
    rows = np.flatnonzero((own.taken.burst >= 0) & (joint.taken.burst >= 0))
    steps, joint_steps = own.steps_of(rows), joint.steps_of(rows)
    both = (steps >= 0) & (joint_steps >= 0)
    frame = pl.DataFrame({"step": steps[both], "joint": joint_steps[both], "bytes": own.taken.sizes[rows[both]]})
    job = _job_numbers(own)[np.searchsorted(nic_pairs.starts_of_pairs(own.flows), rows[both], side="right") - 1]
    return frame.with_columns(job=job).group_by("job", "step", "joint").agg(pl.col("bytes").sum())


def _with_last_step(known: pl.DataFrame, bursts: pl.DataFrame) -> pl.DataFrame:
    """Return the joint steps of a job's steps, where the last two, both whole, are part of the last one: one more.

    Parameters
    ----------
    known : `job`, `step`, `joint`, sorted by `job` and `step`
    bursts : as `_bursts_in_steps` returns
    """
    moved = bursts.group_by("job", "step").agg(pl.col("bytes").sum())
    whole = pl.col("bytes") >= MAJORITY * pl.col("bytes").median().over("job")
    of_steps = known.drop("bytes").join(moved, on=["job", "step"], maintain_order="left").with_columns(whole=whole)
    again = (pl.col("joint", "whole") == pl.col("joint", "whole").shift().over("job")) & pl.col("whole")
    last = pl.col("step") == pl.col("step").max().over("job")
    return of_steps.with_columns(joint=pl.col("joint") + (last & pl.all_horizontal(again)).fill_null(value=False))


def _uncut_pairs(own: JointSteps) -> pl.DataFrame:
    """Return the pairs that send most of their bytes in uncut bursts: `pair`. They never pause, and show no step, but
    what they begin with would fall together with the gradients of the first."""
    bursts = _bursts_in_steps(own).with_columns(place=own.places[own.steps >= 0])
    uncut = _uncut_bursts(own)["burst"]
    sent = pl.col("bytes").sum()
    uncut_bytes = pl.col("bytes").filter(pl.col("burst").is_in(uncut.implode())).sum()
    places = bursts.group_by("place").agg(sent, uncut=uncut_bytes).filter(pl.col("uncut") >= MAJORITY * pl.col("bytes"))
    return own.flows.select("pair")[nic_pairs.starts_of_pairs(own.flows)[:-1]][places["place"]]


def _without_uncut_bursts(own: JointSteps) -> Integers:
    """Return the steps of bursts, -1 also for those that are uncut: they end none."""
    steps = own.steps.copy()
    steps[_uncut_bursts(own)["burst"].to_numpy()] = -1
    return steps


def _uncut_bursts(own: JointSteps) -> pl.DataFrame:
    """Return the bursts that hold a whole step before the one that they end with, for no gap parted what their pair
    sent in these steps: `burst`."""
    bursts = _bursts_in_steps(own)
    ends = bursts.group_by("job", "step").agg(pl.col("end_ns").max()).sort("job", "step")
    whole_step_before = ends.select("job", "step", since_ns=pl.col("end_ns").shift(2).over("job"))
    held = bursts.join(whole_step_before, on=["job", "step"]).filter(pl.col("start_ns") < pl.col("since_ns"))
    return held.select("burst")


def _bursts_in_steps(found: JointSteps) -> pl.DataFrame:
    """Return the bursts that are part of a step: `burst`, `job` (a number), `step`, `start_ns`, `end_ns`, `bytes`."""
    jobs = _job_numbers(found)
    return (
        found.taken.table.select("start_ns", "end_ns", "bytes", job=jobs[found.places], step=found.steps)
        .with_row_index("burst")
        .filter(pl.col("step") >= 0)
    )


def _job_numbers(found: JointSteps) -> Integers:
    """Return a number for the job of each pair: shape (pairs,)."""
    return nic_pairs.pairs_of(found.flows, ["job_id"])["job_id"].rank("dense").to_numpy()


def _streams_of_pairs(streams: Streams, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the streams of given pairs, whether they show their group's period or not."""
    in_step = streams.in_step
    fitting = in_step.with_columns(nic_pairs.named(in_step.select(PAIR))).join(pairs, on=PAIR, how="semi")
    # Groups whose pairs are cut where their direction turns have no typical gap, so their other pairs cannot be cut.
    # Nor have those that only messages of one size show, for pairs also send others between these.
    typical = (
        fitting.filter(pl.col("size_class") == WHOLE_PAIR, ~(pl.col("size_class") == AT_TURNS).any().over("group"))
        .group_by("group")
        .agg(pl.col("threshold_ns").median(), pl.col("group_period_ns").first())
    )
    broken = (
        streams.found.filter(pl.col("size_class") == WHOLE_PAIR)
        .join(streams.of_few, on="group", how="anti")
        .join(pairs, on=PAIR, how="semi")
        .join(fitting, on=PAIR, how="anti")
        .drop("threshold_ns")
        .join(typical, on="group")
        # A pair whose own period is shorter is not broken: it exchanges blocks in every layer beside its gradients.
        .filter(~(SILENT_PERIODS * pl.col("period_ns") <= pl.col("group_period_ns")).fill_null(value=False))
    )
    return pl.concat([fitting, broken.select(fitting.columns)])
