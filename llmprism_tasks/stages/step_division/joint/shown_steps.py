"""Shown steps: the steps of groups, with what the group's pairs and senders send in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.numerics import grouped_sort, ragged
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.stages.step_division.groups import balance
from llmprism_tasks.stages.step_division.joint.joint_steps import JointSteps
from llmprism_tasks.stages.step_division.periodicity import PAIR, WHOLE_PAIR, WITH_GROUP
from llmprism_tasks.stages.traffic import nic_pairs

MERGED_STEPS = 3
"""Steps over which a record of merged ones goes at most: it is of two steps, and may begin in the one before."""


@dataclass(frozen=True)
class ShownSteps:
    """The steps of one group.

    Attributes
    ----------
    flows : bulk flows, as `nic_pairs.in_order` returns
    offsets : where each pair of the flows begins
    together : whether a template of all pairs shows the steps, not single pairs
    pairs : of the group: `pair`, `group`, `src_addr`, `dst_addr`, `sender` (a number), `shows` (whether its link shows
        the steps, in one direction or the other; these come last), `back` (as `balance.answers` returns)
    places : shape (pairs,), among those of the flows
    steps, ends : shape (steps,), the number of each step, and when it ends, ns, in the order of time
    """

    flows: pl.DataFrame
    offsets: Integers
    together: bool
    pairs: pl.DataFrame
    places: Integers
    steps: Integers
    ends: Integers

    def by_pair(self) -> Floats:
        """Return what each pair sends in each step but the first: bytes, shape (pairs, steps - 1)."""
        return _bytes_per_step(self.flows, self.offsets, self.places, self.ends)

    def by_sender(self, each: Floats) -> Floats:
        """Return what each sender does, of what pairs send: bytes, shape (senders, steps - 1)."""
        sender = self.pairs["sender"].to_numpy()
        sent = np.zeros((int(sender.max()) + 1, each.shape[1]))
        np.add.at(sent, sender, each)
        return sent


def shown_steps(joint: JointSteps) -> Iterator[ShownSteps]:
    """Yield the steps of each group."""
    in_step = joint.streams.in_step
    links = pl.concat([in_step.select(PAIR), in_step.select(src_addr="dst_addr", dst_addr="src_addr")]).unique()
    known = joint.streams.found.filter(pl.col("size_class") == WHOLE_PAIR).select("pair", "group", *PAIR)
    together = in_step.group_by("group").agg(together=(pl.col("size_class") == WITH_GROUP).any())
    known = known.join(together, on="group", maintain_order="left")
    pairs = (
        nic_pairs.as_coded(known, joint.flows)
        .join(links.with_columns(shows=pl.lit(value=True)), on=PAIR, how="left")
        .with_columns(
            pl.col("shows").fill_null(value=False),
            sender=pl.col("src_addr").rank("dense").over("group").cast(pl.Int64) - 1,
        )
        .sort("group", "shows", "pair")
    )
    pairs = pairs.with_columns(back=balance.answers(pairs))
    offsets = nic_pairs.starts_of_pairs(joint.flows)
    place = np.searchsorted(joint.flows["pair"].to_numpy()[offsets[:-1]], pairs["pair"].to_numpy())
    numbers = pairs["group"].rle_id().to_numpy().astype(np.int64)
    ended, bounds = joint.step_end_times(place, numbers), ragged.bounds(numbers)
    groups, steps, ends = (ended[name].to_numpy() for name in ("group", "step", "end_ns"))
    of_group, of_all = ragged.bounds(groups), pairs["together"].to_numpy()
    for group, low, high in zip(groups[of_group[:-1]], of_group[:-1], of_group[1:], strict=True):
        mine = slice(bounds[group], bounds[group + 1])
        told = bool(of_all[mine.start])
        yield ShownSteps(joint.flows, offsets, told, pairs[mine], place[mine], steps[low:high], ends[low:high])


def _bytes_per_step(flows: pl.DataFrame, offsets: Integers, place: Integers, ends: Integers) -> Floats:
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
