"""The joint steps of groups of NICs, as the bursts of their periodic streams show them, and how they are numbered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.alignment import line_up, whole_steps
from llmprism_tasks.stages.step_division.groups.group_steps import Found
from llmprism_tasks.stages.step_division.kernels.burst_totals import Totals
from llmprism_tasks.stages.step_division.periodicity import WHOLE_PAIR, WITH_GROUP
from llmprism_tasks.stages.step_division.segmentation import Cut, cut
from llmprism_tasks.stages.traffic import nic_pairs


@dataclass(frozen=True)
class Streams:
    """Streams of groups.

    Attributes
    ----------
    found : all, as `stream_rhythms` returns, with `group`
    in_step : of these, those in their group's period, as `group_period.in_period` returns
    once : of groups without a period, those that show the end of one step: STREAM_COLUMNS, `src_addr`, `dst_addr`
    together : the steps of groups whose pairs show them together, which the others have no part in
    of_few : the groups whose steps only a few of their NICs show: `group`. What the others send has no end of its own
    alike : the steps by a template of all pairs, of groups whose single pairs show the same period
    """

    found: pl.DataFrame
    in_step: pl.DataFrame
    once: pl.DataFrame
    together: Found
    of_few: pl.DataFrame
    alike: Found


@dataclass(frozen=True)
class JointSteps:
    """The steps of groups, as the bursts of their periodic streams show them.

    Attributes
    ----------
    flows : bulk flows, as `nic_pairs.in_order` returns
    taken : those of the streams, in bursts
    places : shape (bursts,), of each one's pair among those of the flows
    steps : shape (bursts,), the step that each is part of, counted from 0 in each group, in the order of time; -1 for
        none
    periods : shape (pairs,), ns, of each one's group; NaN for pairs without a periodic stream
    streams : all streams of the groups
    before_ns : the time before which flows are summed up apart
    """

    flows: pl.DataFrame
    taken: Cut
    places: Integers
    steps: Integers
    periods: Floats
    streams: Streams
    before_ns: int

    def steps_of(self, rows: Integers) -> Integers:
        """Return the steps of some flows, by their rows; -1 for those that are part of none."""
        return np.append(self.steps, -1)[self.taken.burst[rows]]  # the last stands for the flows of no burst

    def step_end_times(self, place: Integers, group: Integers) -> pl.DataFrame:
        """Return when the steps of groups end: `group`, `step`, `end_ns`, in the order of time in each group.

        Parameters
        ----------
        place : of the pairs of groups, among those of the flows
        group : of each of these pairs, a number
        """
        group_of = np.full(self.periods.size, -1)
        group_of[place] = group
        steps = np.flatnonzero(self.steps >= 0)
        return (
            self.taken.table[steps]
            .select("end_ns", group=group_of[self.places[steps]], step=self.steps[steps])
            .filter(pl.col("group") >= 0)
            .group_by("group", "step")
            .agg(pl.col("end_ns").max())
            .sort("group", "end_ns")
        )

    @property
    def sent(self) -> Totals:
        """Return what pairs send in the bursts of steps; `series` and `position` are the place of the pair."""
        known = np.flatnonzero(self.steps >= 0)
        columns = ("start_ns", "end_ns", "bytes", "end_before_ns", "bytes_before")
        sums = (self.taken.table[name].to_numpy()[known] for name in columns)
        place = self.places[known]
        return Totals(place, self.steps[known], place, *sums)

    @property
    def pairs(self) -> pl.DataFrame:
        """Return of each pair of the flows `pair`, `job_id`, `period_ns` (of the job; NULL if no stream of the pair is
        periodic) and `periodic` (whether it shows any step)."""
        periodic = np.zeros(self.periods.size, np.bool_)
        periodic[self.places[self.steps >= 0]] = True
        period = pl.Series(self.periods, nan_to_null=True)
        return nic_pairs.pairs_of(self.flows, ["job_id"]).with_columns(period_ns=period, periodic=periodic)

    @property
    def numbered(self) -> pl.DataFrame:
        """Return the flows that are part of a step, with their `step` and `group_period_ns`; what was sent early counts
        with the rest."""
        periods = np.repeat(self.periods, np.diff(nic_pairs.starts_of_pairs(self.flows)))
        step = self.steps_of(np.arange(self.flows.height))
        steps = self.flows.with_columns(bytes=self.taken.sizes, group_period_ns=periods, step=step)
        return steps.filter(pl.col("step") >= 0)


def jointly_cut_streams(found: pl.DataFrame, together: Found) -> pl.DataFrame:
    """Return the streams of pairs that are cut together, as `group_period.in_period` returns others."""
    whole = found.filter(pl.col("size_class") == WHOLE_PAIR).drop("threshold_ns", "clarity", "group")
    kinds = {"size_class": pl.lit(WITH_GROUP, pl.Int64), "threshold_ns": pl.lit(0.0)}
    return whole.join(together.streams, on="pair", maintain_order="left").with_columns(**kinds)


def number_steps(
    flows: pl.DataFrame, every: Streams, streams: pl.DataFrame, settings: RhythmSettings, before_ns: int
) -> JointSteps:
    """Number the steps of each group by the bursts of its periodic streams.

    Bursts that carry less than `least_step` of a typical step's bytes and belong to no other (the broadcast of the
    first weights) are left out, unless they are cut off by the beginning of the first window with flows of the group:
    where the data begin is for each group to say, since groups may be looked at one by one.

    Parameters
    ----------
    flows : bulk flows, as `nic_pairs.in_order` returns
    every : all streams of the groups
    streams : of these, those that show the steps: STREAM_COLUMNS, a row each; of a pair one, or several of its sizes
    """
    streams = streams.sort("pair", "size_class")
    asked = streams.select("pair", "size_class", "threshold_ns")
    taken = cut(flows, asked, every.together, settings, before_ns=before_ns)
    described = streams.rename({"group_period_ns": "period_ns"})
    bursts = taken.table.drop("end_before_ns", "bytes_before", "number").with_row_index("burst")
    together = (streams["size_class"] == WITH_GROUP).to_numpy()[taken.table["stream"].to_numpy()]
    bursts = bursts.filter(pl.Series(~together))
    lined_up = line_up(bursts.sort("stream", maintain_order=True), described, settings)
    steps = whole_steps(lined_up, described, settings)
    of_beat = np.full(lined_up["beat"].n_unique(), -1)
    of_beat[steps["beat"].to_numpy()] = steps["step"].to_numpy()
    step = np.where(together, taken.table["number"].to_numpy(), -1)
    step[lined_up["burst"].to_numpy()] = of_beat[lined_up["beat"].to_numpy()]
    pairs = flows["pair"].to_numpy()[nic_pairs.starts_of_pairs(flows)[:-1]]
    place, periods = np.searchsorted(pairs, streams["pair"].to_numpy()), np.full(pairs.size, np.nan)
    periods[place] = streams["group_period_ns"].to_numpy()
    return JointSteps(flows, taken, place[taken.table["stream"].to_numpy()], step, periods, every, before_ns)
