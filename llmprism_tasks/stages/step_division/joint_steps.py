"""The joint rhythm of a group of NICs: its period, and the steps that its periodic bursts make together.

Every training step synchronises all replicas, so each data-parallel pair is quiet once per step, whatever else it
does. One pair's records are few and may be lost, split or merged; the pairs of one job tell the same story many
times. Here the bursts of all pairs that share the job's period are lined up, each shifted by its own typical delay
(later pipeline stages synchronise earlier), and bursts that then fall together are one step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from llmprism_tasks.numerics import grouped_sort, ragged
from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.alignment import line_up, whole_steps
from llmprism_tasks.stages.step_division.groups import balance
from llmprism_tasks.stages.step_division.groups.group_period import (
    SILENT_PERIODS,
    ends_of,
    group_periods,
    in_period,
    same_period,
)
from llmprism_tasks.stages.step_division.groups.group_steps import (
    Found,
    merge_steps,
    recut_at_step_ends,
    steps_together,
)
from llmprism_tasks.stages.step_division.groups.single_burst import first_bursts
from llmprism_tasks.stages.step_division.groups.templates.levels import EXPLAINED_BYTES, NEARLY_ALL
from llmprism_tasks.stages.step_division.kernels.burst_totals import Totals
from llmprism_tasks.stages.step_division.periodicity import (
    AT_LAGS,
    AT_TURNS,
    PAIR,
    WHOLE_PAIR,
    WITH_GROUP,
    PairRhythms,
    answered,
    lag_rhythms,
    stream_rhythms,
)
from llmprism_tasks.stages.step_division.segmentation import STREAM_COLUMNS, Cut, cut
from llmprism_tasks.stages.traffic import nic_pairs

SEVERAL_PERIODS = 1.5
"""Ratio of two periods from which on the longer one is several of the shorter."""


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
    """

    found: pl.DataFrame
    in_step: pl.DataFrame
    once: pl.DataFrame
    together: Found
    of_few: pl.DataFrame


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

    def first_flows(self) -> Integers:
        """Return the row of a flow of each burst that is part of a step: of its first."""
        rows = np.flatnonzero(self.taken.burst >= 0)[::-1]
        first = np.zeros(self.steps.size, np.int64)
        first[self.taken.burst[rows]] = rows
        return first[self.steps >= 0]

    def steps_of(self, rows: Integers) -> Integers:
        """Return the steps of some flows, by their rows; -1 for those that are part of none."""
        return np.append(self.steps, -1)[self.taken.burst[rows]]  # the last stands for the flows of no burst

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


def steps_of_jobs(
    flows: pl.DataFrame,
    settings: RhythmSettings,
    *,
    known: PairRhythms | None = None,
    until_ns: int = 0,
    before_ns: int = 0,
) -> JointSteps:
    """Find the steps of jobs.

    Parameters
    ----------
    flows : bulk flows with `job_id`
    known : rhythms that were found in the same traffic index
    until_ns, before_ns : as for `steps_of_groups`
    """
    flows = nic_pairs.in_order(flows)
    jobs = flows.select("pair", group="job_id")[nic_pairs.starts_of_pairs(flows)[:-1]]
    rhythms = stream_rhythms(flows, settings) if known is None else known.of(flows)
    found = rhythms.join(jobs, on="pair", maintain_order="left")
    return steps_of_groups(flows, found, settings, until_ns=until_ns, before_ns=before_ns)


def steps_of_groups(
    flows: pl.DataFrame, found: pl.DataFrame, settings: RhythmSettings, *, until_ns: int = 0, before_ns: int = 0
) -> JointSteps:
    """Find the steps of groups by their periodic streams.

    A group whose pairs just repeat with the micro-batches of a pipeline has none.

    Parameters
    ----------
    flows : bulk flows, as `nic_pairs.in_order` returns
    found : as `stream_rhythms` returns for them, with a column `group`
    until_ns : as for `group_periods`
    before_ns : what is sent in steps is also summed up for what was sent before this time
    """
    bounds = {"until_ns": until_ns, "before_ns": before_ns}
    none = found.select("group", parts=pl.lit(value=True)).clear()
    joint = _steps_of_groups(flows, found, none, settings, **bounds)
    refused = _groups_without_steps(joint, settings)
    return joint if refused.is_empty() else _steps_of_groups(flows, found, refused, settings, **bounds)


def _steps_of_groups(
    flows: pl.DataFrame,
    found: pl.DataFrame,
    refused: pl.DataFrame,
    settings: RhythmSettings,
    *,
    until_ns: int,
    before_ns: int,
) -> JointSteps:
    """Do what `steps_of_groups` does, but for what single pairs of some groups (`_groups_without_steps`) show.

    Where nobody tells the steps of a pipeline of which they are parts, or which is a line, they end where nothing is
    under way.
    """
    whole = found.filter(pl.col("size_class") == WHOLE_PAIR)
    seen = steps_together(flows, whole, settings)
    together, clear = (seen.of(seen.streams.filter(told)) for told in (pl.col("told"), ~pl.col("told")))
    shared = _jointly_cut_streams(nic_pairs.as_coded(found, flows), together)
    lines = _pipeline_only_groups(shared.with_columns(size_class=pl.lit(WHOLE_PAIR, pl.Int64)), settings)
    together = together.of(together.streams.join(lines, on="group", how="anti"))
    alone, periods = _streams_and_periods(
        flows, found.join(together.streams, on="group", how="anti", maintain_order="left"), settings, until_ns
    )
    periods = periods.join(refused, on="group", how="anti")
    clear = clear.of(several_steps(clear.streams, periods))
    periods = periods.join(clear.streams, on="group", how="anti")
    together = merge_steps([together, clear])
    alone = alone.join(clear.streams, on="group", how="anti", maintain_order="left")
    in_step, known = _streams_in_period(flows, alone, periods, settings), periods.select("group")
    answered = pl.concat([in_step.select("group"), together.streams.select("group")]).unique()
    silent = whole.join(answered, on="group", how="anti", maintain_order="left")
    parts = refused.filter("parts").select("group")
    in_lines = _pipeline_only_groups(nic_pairs.as_coded(silent, flows), settings).cast(parts.schema)
    piped = pl.concat([parts, in_lines])["group"]
    rest = steps_together(flows, silent, settings, by_bytes=True, parts=piped)
    together = merge_steps([together, rest])
    alone = alone.join(together.streams, on="group", how="anti", maintain_order="left")
    untold = alone.filter(pl.col("size_class") != AT_LAGS).join(
        pl.concat([known, refused.select("group")]), on="group", how="anti", maintain_order="left"
    )
    of_few = group_periods(flows, nic_pairs.as_coded(untold, flows), settings, until_ns=until_ns, of_few=True)
    in_step = pl.concat([in_step, _streams_in_period(flows, untold, of_few, settings)])
    known = pl.concat([known, of_few.select("group")])
    once = _single_burst_streams(flows, alone.join(known, on="group", how="anti"), settings, until_ns)
    found = pl.concat([alone, found.join(together.streams, on="group", how="semi", maintain_order="left")])
    shared = _jointly_cut_streams(nic_pairs.as_coded(found, flows), together).select(in_step.columns)
    streams = Streams(found, pl.concat([in_step, shared]), once, together, of_few.select("group"))
    in_step = streams.in_step
    return _number_steps(
        flows, streams, pl.concat([in_step.select(STREAM_COLUMNS), once.select(STREAM_COLUMNS)]), settings, before_ns
    )


def several_steps(clear: pl.DataFrame, periods: pl.DataFrame) -> pl.DataFrame:
    """Return the groups whose clear template is as long as several of what single pairs take for steps: `group`.

    These are layers or micro-batches. And so it is the other way around where silences show a forward and a backward
    pass in the template: what single pairs take for a step is several, up to a pause such as an evaluation.

    Parameters
    ----------
    clear : streams of `Found` that silences alone do not tell
    periods : as `group_periods` returns
    """
    period = clear.group_by("group").agg(pl.col("group_period_ns", "ended").first())
    longer = pl.col("group_period_ns") >= SEVERAL_PERIODS * pl.col("period_ns")
    shorter = pl.col("ended") & (SEVERAL_PERIODS * pl.col("group_period_ns") <= pl.col("period_ns"))
    return period.join(periods, on="group").filter(longer | shorter).select("group")


def _groups_without_steps(joint: JointSteps, settings: RhythmSettings) -> pl.DataFrame:
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
    ended = _step_end_times(joint, place, numbers)
    sender = pairs.select(pl.col("src_addr").rank("dense").over("group").cast(pl.Int64) - 1).to_series().to_numpy()
    back, on_link = balance.answers(pairs), pairs["shows"].to_numpy()
    rows, bounds, ends = [], ragged.bounds(numbers), ended["end_ns"].to_numpy()
    of_group = ragged.bounds(ended["group"].to_numpy())
    for group, low, high in zip(ended["group"].to_numpy()[of_group[:-1]], of_group[:-1], of_group[1:], strict=True):
        mine = slice(bounds[group], bounds[group + 1])
        each = _bytes_per_step(joint.flows, offsets, place[mine], ends[low:high])
        links_of = np.flatnonzero(on_link[mine])  # the last of the group, and so are those that answer them
        first = links_of[0] if links_of.size else 0
        late = balance.unreturned(each[links_of], np.maximum(back[mine][links_of] - first, -1))
        sent = np.zeros((int(sender[mine].max()) + 1, each.shape[1]))
        np.add.at(sent, sender[mine], each)
        showing = np.unique(sender[mine][on_link[mine]]).size
        if showing >= settings.least_support * len(sent):
            alike = balance.alike_bytes_ratio(sent) >= balance.BYTES_IN_ALIKE_STEPS
        else:
            alike = balance.alike_bytes_ratio(sent, settings.byte_tolerance) >= NEARLY_ALL
        if (parts := late > balance.UNRETURNED) or not alike:
            rows.append((bounds[group], parts))
    chosen, parts_of = [row for row, _ in rows], pl.Series([parts for _, parts in rows], dtype=pl.Boolean)
    return pairs[chosen].select("group", parts=parts_of)


def _step_end_times(joint: JointSteps, place: Integers, group: Integers) -> pl.DataFrame:
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


def _bytes_per_step(flows: pl.DataFrame, offsets: Integers, place: Integers, ends: Integers) -> Floats:
    """Return what some pairs send in each step but the first, given their ends: bytes, shape (pairs, steps).

    A record carries its bytes evenly over its time: of those that the collector merged, in several steps.
    """
    rows, within = grouped_sort.spread(offsets, place)
    starts, until, sizes = (flows[name].to_numpy()[rows] for name in ("flow_start_ns", "flow_end_ns", "bytes"))
    first, last = np.searchsorted(ends, starts), np.searchsorted(ends, until)
    counts = np.minimum(last + 1, ends.size) - first
    record = np.repeat(np.arange(rows.size), counts)
    step = np.arange(record.size) - np.repeat(np.cumsum(counts) - counts - first, counts)
    begins = np.maximum(starts[record], np.append(starts.min(initial=0), ends)[step])
    lasts = np.minimum(until[record], ends[step]) - begins
    share = (lasts + 1) / (until - starts + 1)[record]  # nanoseconds, both ends counted: a record may begin as it ends
    cell = np.repeat(np.arange(place.size), np.diff(within))[record] * ends.size + step
    each: Floats = np.bincount(cell, share * sizes[record], place.size * ends.size).astype(np.float64)
    return each.reshape(place.size, ends.size)[:, 1:]


def steps_ended_by(joint: JointSteps, pairs: pl.DataFrame, settings: RhythmSettings) -> JointSteps:
    """Return the same steps of jobs, by the same numbers, as the bursts of some pairs alone show them.

    Whoever found the steps, jobs that are silent between them end them alike, as `step_ends` says.

    Bursts of these pairs that the joint steps left out, because their pair is too broken to show the period, or because
    they end elsewhere in the step than others, are lined up with the rest. Where some of these have a number, all have.

    Parameters
    ----------
    joint : as `steps_of_jobs` returns
    pairs : `src_addr`, `dst_addr`. Those that are too broken to show the period are cut at the gap typical of their
        job's others
    """
    streams = _recut_streams(joint, pairs, settings)
    once = streams.once.join(pairs, on=PAIR, how="semi")
    chosen = pl.concat([_streams_of_pairs(streams, pairs).select(STREAM_COLUMNS), once.select(STREAM_COLUMNS)])
    own = _number_steps(joint.flows, streams, chosen, settings, joint.before_ns)
    return replace(own, steps=_joint_step_numbers(own, joint))


def _recut_streams(joint: JointSteps, ending: pl.DataFrame, settings: RhythmSettings) -> Streams:
    """Return the streams of jobs, of which those that are silent between their steps are cut there."""
    streams = joint.streams
    ended = streams.together.streams.filter("ended")
    known = pl.concat([ended.select("group"), streams.of_few.cast(ended.select("group").schema)])
    groups = streams.in_step.select("group").unique().join(known, on="group", how="anti")
    whole = nic_pairs.as_coded(streams.found.filter(pl.col("size_class") == WHOLE_PAIR), joint.flows)
    whole = whole.join(groups, on="group", how="semi", maintain_order="left").sort("group", "pair")
    if whole.is_empty():
        return streams
    pairs = joint.flows["pair"].to_numpy()[nic_pairs.starts_of_pairs(joint.flows)[:-1]]
    numbers = whole["group"].rle_id().to_numpy().astype(np.int64)
    ends = _step_end_times(joint, np.searchsorted(pairs, whole["pair"].to_numpy()), numbers)
    names = whole["group"].gather(ragged.bounds(numbers)[:-1])
    steps = ends.with_columns(group=names.gather(ends["group"]))
    alone = _groups_without_other_traffic(streams.found.filter(pl.col("size_class") == WHOLE_PAIR), ending)
    anew = recut_at_step_ends(joint.flows, whole, steps, alone, settings)
    others = streams.together.streams.join(anew.streams, on="group", how="anti")
    found = streams.found.join(anew.streams, on="group", how="semi", maintain_order="left")
    shared = _jointly_cut_streams(nic_pairs.as_coded(found, joint.flows), anew).select(streams.in_step.columns)
    kept = streams.in_step.join(anew.streams, on="group", how="anti", maintain_order="left")
    in_step = pl.concat([kept, shared])
    return replace(streams, in_step=in_step, together=merge_steps([streams.together.of(others), anew]))


def _groups_without_other_traffic(pairs: pl.DataFrame, ending: pl.DataFrame) -> pl.Series:
    """Return the groups that send hardly anything but what ends their steps.

    Parameters
    ----------
    pairs : `group`, `src_addr`, `dst_addr`, `bytes`
    """
    sent = pairs.group_by("group").agg(pl.col("bytes").sum())
    theirs = pairs.join(ending, on=PAIR, how="semi").group_by("group").agg(ending=pl.col("bytes").sum())
    return sent.join(theirs, on="group").filter(pl.col("ending") >= EXPLAINED_BYTES * pl.col("bytes"))["group"]


def _joint_step_numbers(own: JointSteps, joint: JointSteps) -> Integers:
    """Return the joint steps of bursts, -1 for none: of those that fall together, the one that most of their bytes are
    part of. Where none of them is part of any, the nearest in time, unless others are part of that."""
    bursts = _bursts_in_steps(own).with_columns(joint=joint.steps_of(own.first_flows()))
    shared = bursts.filter(pl.col("joint") >= 0).group_by("job", "step", "joint").agg(pl.col("bytes").sum())
    known = shared.sort("job", "step", "bytes", "joint").group_by("job", "step", maintain_order=True).last()
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
    numbered = bursts.drop("joint").join(numbers, on=["job", "step"], how="left", maintain_order="left")
    steps[bursts["burst"].to_numpy()] = numbered["joint"].fill_null(-1).to_numpy()
    return steps


def _bursts_in_steps(found: JointSteps) -> pl.DataFrame:
    """Return the bursts that are part of a step: `burst`, `job` (a number), `step`, `end_ns`, `bytes`."""
    jobs = nic_pairs.pairs_of(found.flows, ["job_id"])["job_id"].rank("dense").to_numpy()
    return (
        found.taken.table.select("end_ns", "bytes", job=jobs[found.places], step=found.steps)
        .with_row_index("burst")
        .filter(pl.col("step") >= 0)
    )


def _jointly_cut_streams(found: pl.DataFrame, together: Found) -> pl.DataFrame:
    """Return the streams of pairs that are cut together, as `group_period.in_period` returns others."""
    whole = found.filter(pl.col("size_class") == WHOLE_PAIR).drop("threshold_ns", "clarity", "group")
    kinds = {"size_class": pl.lit(WITH_GROUP, pl.Int64), "threshold_ns": pl.lit(0.0)}
    return whole.join(together.streams, on="pair", maintain_order="left").with_columns(**kinds)


def _streams_and_periods(
    flows: pl.DataFrame, found: pl.DataFrame, settings: RhythmSettings, until_ns: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the streams and the periods of their groups.

    Where no whole pair shows its group's steps, streams are added of pairs that send the same after the same bytes: a
    period that only some message sizes have may be that of the layers.
    """
    # Coded, for there are so many that text would take most of the time.
    periods = group_periods(flows, nic_pairs.as_coded(found, flows), settings, until_ns=until_ns)
    of_groups = found.join(periods.rename({"period_ns": "around"}), on="group", how="left")
    shown = of_groups.filter(pl.col("size_class") < 0, same_period("period_ns", "around", settings)).select("group")
    silent = found.filter(pl.col("size_class") == WHOLE_PAIR, pl.col("period_ns").is_null())
    lagged = lag_rhythms(flows, silent.join(shown.unique(), on="group", how="anti"), settings)
    if lagged.is_empty():
        return found, periods
    every = pl.concat([found, lagged])
    return every, group_periods(flows, nic_pairs.as_coded(every, flows), settings, until_ns=until_ns)


def _streams_in_period(
    flows: pl.DataFrame, found: pl.DataFrame, periods: pl.DataFrame, settings: RhythmSettings
) -> pl.DataFrame:
    """Return the streams in their group's period, as `in_period` does."""
    found = nic_pairs.as_coded(found, flows)
    turning = found.filter(pl.col("size_class") == AT_TURNS).join(
        periods.select("group", around="period_ns"), on="group"
    )
    shown = turning.filter(same_period("period_ns", "around", settings)).select("group").unique()
    stepping = in_period(found, periods, settings)
    lines = _pipeline_only_groups(stepping, settings).join(shown, on="group", how="anti")
    return stepping.join(lines, on="group", how="anti")


def _number_steps(
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


def _single_burst_streams(
    flows: pl.DataFrame, found: pl.DataFrame, settings: RhythmSettings, until_ns: int
) -> pl.DataFrame:
    """Return the streams of groups without a period that show one step's end: STREAM_COLUMNS, and their addresses."""
    if found.is_empty():
        return pl.DataFrame(schema={name: found.schema.get(name, pl.Float64) for name in [*STREAM_COLUMNS, *PAIR]})
    once = first_bursts(flows, found, settings, until_ns=until_ns)
    return once.with_columns(size_class=pl.lit(WHOLE_PAIR, pl.Int64), clarity=pl.lit(0.0)).select(
        *STREAM_COLUMNS, *PAIR
    )


def _pipeline_only_groups(streams: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Find the groups whose streams are all a pipeline's: `group`.

    They have one size, as much comes back, and these link three NICs or more in a line, none with more than two
    neighbours, whatever else they have. Unless they also turn, they just repeat with its micro-batches. Two replicas
    that exchange gradients have one neighbour each.
    """
    alike = answered(streams.filter(pl.col("size_class") == WHOLE_PAIR), settings).with_columns(answered=True)
    pairs = (
        streams.filter(pl.col("size_class") != AT_TURNS)
        .select("group", *PAIR)
        .unique()
        .join(alike, on=PAIR, how="left")
    )
    neighbours = ends_of(pairs).group_by("group", "addr").agg(neighbours=pl.len())
    shape = neighbours.group_by("group").agg(
        nics=pl.len(), most=pl.col("neighbours").max(), ends=pl.col("neighbours").sum()
    )
    answering = ends_of(pairs.filter("answered")).group_by("group", "addr").agg(neighbours=pl.len())
    between = answering.filter(pl.col("neighbours") == 4)  # two neighbours, each in both directions
    return (
        pairs.group_by("group")
        .agg(answered=pl.col("answered").fill_null(value=False).mean())
        .join(shape, on="group")
        .join(between, on="group", how="semi")
        .filter(
            pl.col("answered") >= settings.least_support,
            pl.col("most") == 4,
            pl.col("ends") < 4 * pl.col("nics"),
        )
        .select("group")
    )


def _streams_of_pairs(streams: Streams, pairs: pl.DataFrame) -> pl.DataFrame:
    """Return the streams of given pairs, whether they show their group's period or not."""
    in_step = streams.in_step
    fitting = in_step.with_columns(nic_pairs.named(in_step.select(PAIR))).join(pairs, on=PAIR, how="semi")
    # Groups whose pairs are cut where their direction turns have no typical gap, so their other pairs cannot be cut.
    typical = (
        fitting.filter(pl.col("size_class") > AT_LAGS)
        .group_by("group")
        .agg(
            pl.col("threshold_ns").median(),
            pl.col("group_period_ns").first(),
            turns=pl.col("size_class").min() == AT_TURNS,
        )
        .filter(~pl.col("turns"))
        .drop("turns")
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
