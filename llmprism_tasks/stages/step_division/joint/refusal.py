"""Refusal: the groups whose single pairs show parts of a pipeline's steps, layers or something else, and no steps."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics import grouped_sort, ragged
from llmprism_tasks.numerics.robust import MAJORITY, Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups import balance
from llmprism_tasks.stages.step_division.groups.templates.levels import NEARLY_ALL
from llmprism_tasks.stages.step_division.joint.joint_steps import JointSteps
from llmprism_tasks.stages.step_division.periodicity import PAIR, WHOLE_PAIR, WITH_GROUP
from llmprism_tasks.stages.traffic import nic_pairs

MERGED_STEPS = 3
"""Steps over which a record of merged ones goes at most: it is of two steps, and may begin in the one before."""


def groups_without_steps(joint: JointSteps, settings: RhythmSettings) -> pl.DataFrame:
    """Return the groups whose single pairs show no steps: `group`, `parts`.

    What they show are `parts` of a pipeline's steps where bytes come back, over links that show them, later than in the
    one that they were sent in. And they are layers, or something else, where most bytes are sent in few of them. Where
    just a few NICs show them, all senders have to send the same in nearly all of them, as in the steps of a template.
    """
    alone = joint.streams.in_step.filter(pl.col("size_class") != WITH_GROUP)
    links = pl.concat([alone.select(PAIR), alone.select(src_addr="dst_addr", dst_addr="src_addr")]).unique()
    known = joint.streams.found.filter(pl.col("size_class") == WHOLE_PAIR).select("pair", "group", *PAIR)
    known = known.join(alone.select("group").unique(), on="group", how="semi")
    shows = pl.lit(value=True)
    pairs = (
        nic_pairs.as_coded(known, joint.flows)
        .join(links.with_columns(shows=shows), on=PAIR, how="left")
        .with_columns(pl.col("shows").fill_null(value=False))
        .sort("group", "shows", "pair")
    )
    offsets = nic_pairs.starts_of_pairs(joint.flows)
    place = np.searchsorted(joint.flows["pair"].to_numpy()[offsets[:-1]], pairs["pair"].to_numpy())
    numbers = pairs["group"].rle_id().to_numpy().astype(np.int64)
    ended = step_end_times(joint, place, numbers)
    sender = pairs.select(pl.col("src_addr").rank("dense").over("group").cast(pl.Int64) - 1).to_series().to_numpy()
    back, on_link = balance.answers(pairs), pairs["shows"].to_numpy()
    rows, bounds, ends = [], ragged.bounds(numbers), ended["end_ns"].to_numpy()
    of_group = ragged.bounds(ended["group"].to_numpy())
    for group, low, high in zip(ended["group"].to_numpy()[of_group[:-1]], of_group[:-1], of_group[1:], strict=True):
        mine = slice(bounds[group], bounds[group + 1])
        each = bytes_per_step(joint.flows, offsets, place[mine], ends[low:high])
        links_of = np.flatnonzero(on_link[mine])  # the last of the group, and so are those that answer them
        first = links_of[0] if links_of.size else 0
        # What the data end in the middle of may still come back, wherever in the step single pairs part it.
        seen = each[links_of][:, :-1] if each.shape[1] > 1 else each[links_of]
        late = balance.unreturned(seen, np.maximum(back[mine][links_of] - first, -1), one_by_one=True)
        sent = np.zeros((int(sender[mine].max()) + 1, each.shape[1]))
        np.add.at(sent, sender[mine], each)
        showing = np.unique(sender[mine][on_link[mine]]).size
        if showing >= settings.least_support * len(sent):
            # Of captured steps 0.9 to 1 of the bytes are alike, of layers that were taken for steps 0.37.
            alike = balance.alike_bytes_ratio(sent) >= MAJORITY
        else:
            alike = balance.alike_bytes_ratio(sent, settings.byte_tolerance) >= NEARLY_ALL
        if (parts := late > balance.UNRETURNED) or not alike:
            rows.append((bounds[group], parts))
    chosen, parts_of = [row for row, _ in rows], pl.Series([parts for _, parts in rows], dtype=pl.Boolean)
    return pairs[chosen].select("group", parts=parts_of)


def step_end_times(joint: JointSteps, place: Integers, group: Integers) -> pl.DataFrame:
    """Return when the steps of groups end: `group`, `step`, `end_ns`, in the order of time in each group.

    Parameters
    ----------
    place : of the pairs of groups, among those of the flows
    group : of each of these pairs, a number
    """
    group_of = np.full(joint.periods.size, -1)
    group_of[place] = group
    steps = np.flatnonzero(joint.steps >= 0)
    return (
        joint.taken.table[steps]
        .select("end_ns", group=group_of[joint.places[steps]], step=joint.steps[steps])
        .filter(pl.col("group") >= 0)
        .group_by("group", "step")
        .agg(pl.col("end_ns").max())
        .sort("group", "end_ns")
    )


def bytes_per_step(flows: pl.DataFrame, offsets: Integers, place: Integers, ends: Integers) -> Floats:
    """Return what some pairs send in each step but the first, given their ends: bytes, shape (pairs, steps).

    A record carries its bytes evenly over its time: of those that the collector merged, in several steps. One that goes
    over more steps than these is a copy of files, and left out.
    """
    rows, within = grouped_sort.spread(offsets, place)
    starts, until, sizes = (flows[name].to_numpy()[rows] for name in ("flow_start_ns", "flow_end_ns", "bytes"))
    first, last = np.searchsorted(ends, starts), np.searchsorted(ends, until)
    counts = np.where(last - first < MERGED_STEPS, np.minimum(last + 1, ends.size) - first, 0)
    record = np.repeat(np.arange(rows.size), counts)
    step = np.arange(record.size) - np.repeat(np.cumsum(counts) - counts - first, counts)
    begins = np.maximum(starts[record], np.append(starts.min(initial=0), ends)[step])
    lasts = np.minimum(until[record], ends[step]) - begins
    share = (lasts + 1) / (until - starts + 1)[record]  # nanoseconds, both ends counted: a record may begin as it ends
    cell = np.repeat(np.arange(place.size), np.diff(within))[record] * ends.size + step
    each: Floats = np.bincount(cell, share * sizes[record], place.size * ends.size).astype(np.float64)
    return each.reshape(place.size, ends.size)[:, 1:]
