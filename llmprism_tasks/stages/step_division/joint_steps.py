"""The joint rhythm of a group of NICs: its period, and the steps that its periodic bursts make together.

Every training step synchronises all replicas, so each data-parallel pair is quiet once per step, whatever else it
does. One pair's records are few and may be lost, split or merged; the pairs of one job tell the same story many
times. Here the bursts of all pairs that share the job's period are lined up, each shifted by its own typical delay
(later pipeline stages synchronise earlier), and bursts that then fall together are one step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.alignment import line_up, whole_steps
from llmprism_tasks.stages.step_division.group_period import OVER, ends_of, group_periods, in_period, same_period
from llmprism_tasks.stages.step_division.kernels.burst_totals import Totals
from llmprism_tasks.stages.step_division.periodicity import PAIR, PORTIONS, TURNS, WHOLE, answered, stream_rhythms
from llmprism_tasks.stages.step_division.segmentation import STEPPING, Cut, cut
from llmprism_tasks.stages.step_division.single_burst import first_bursts
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.remembered import remembered


@dataclass(frozen=True)
class Stepping:
    """The steps of groups, as the bursts of their periodic streams show them.

    Attributes
    ----------
    flows : bulk flows, as `nic_pairs.in_order` returns
    taken : those of the streams, in bursts
    places : shape (bursts,), of each one's pair among those of the flows
    steps : shape (bursts,), the step that each is part of, counted from 0 in each group, in the order of time; -1 for
        none
    periods : shape (pairs,), ns, of each one's group; NaN for pairs without a periodic stream
    """

    flows: pl.DataFrame
    taken: Cut
    places: Integers
    steps: Integers
    periods: Floats

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
        step = np.append(self.steps, -1)[self.taken.burst]  # the last stands for the flows of no burst
        steps = self.flows.with_columns(bytes=self.taken.sizes, group_period_ns=periods, step=step)
        return steps.filter(pl.col("step") >= 0)


def of_jobs(
    flows: pl.DataFrame, settings: RhythmSettings, *, pairs: pl.DataFrame | None = None, until_ns: int = 0
) -> pl.DataFrame:
    """Number the steps of jobs by the flows of their periodic streams.

    Parameters
    ----------
    flows : bulk flows with `job_id`
    pairs : `src_addr`, `dst_addr` of the pairs to go by; without it, all that share their job's period
    until_ns : as for `group_periods`

    Returns
    -------
    the flows of periodic streams, as `Stepping.numbered` has them. Pairs that are named but too broken to show the
    period themselves are cut at the gap typical of their job's others.
    """
    return steps_of_jobs(flows, settings, pairs=pairs, until_ns=until_ns).numbered


def steps_of_jobs(
    flows: pl.DataFrame,
    settings: RhythmSettings,
    *,
    pairs: pl.DataFrame | None = None,
    until_ns: int = 0,
    before_ns: int = 0,
) -> Stepping:
    """Return the steps by which `of_jobs` numbers flows; parameters as for `steps_of_groups`."""
    flows = nic_pairs.in_order(flows)
    jobs = flows.select("pair", group="job_id")[nic_pairs.starts_of_pairs(flows)[:-1]]
    found = stream_rhythms(flows, settings).join(jobs, on="pair", maintain_order="left")
    return steps_of_groups(flows, found, settings, pairs=pairs, until_ns=until_ns, before_ns=before_ns)


def steps_of_groups(
    flows: pl.DataFrame,
    found: pl.DataFrame,
    settings: RhythmSettings,
    *,
    pairs: pl.DataFrame | None = None,
    until_ns: int = 0,
    before_ns: int = 0,
) -> Stepping:
    """Number the steps of groups by the flows of their periodic streams.

    A group whose pairs just repeat with the micro-batches of a pipeline has none.

    Parameters
    ----------
    flows : bulk flows, as `nic_pairs.in_order` returns
    found : as `stream_rhythms` returns for them, with a column `group`
    pairs : `src_addr`, `dst_addr` of the pairs to go by; without it, all that share their group's period
    until_ns : as for `group_periods`
    before_ns : what is sent in steps is also summed up for what was sent before this time
    """
    stepping, known = _in_step(flows, found, settings, until_ns)
    streams = _named_streams(found, stepping, pairs).select(STEPPING)
    once = _seen_once(flows, found.join(known, on="group", how="anti"), pairs, settings, until_ns)
    return _numbered(flows, pl.concat([streams, once]), settings, before_ns)


@remembered
def _in_step(
    flows: pl.DataFrame, found: pl.DataFrame, settings: RhythmSettings, until_ns: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the streams in their group's period, as `in_period` does, and the groups that need no other: `group`."""
    found = nic_pairs.as_coded(found, flows)  # of which there are so many that text would take most of the time
    periods = group_periods(flows, found, settings, until_ns=until_ns)
    turning = found.filter(pl.col("size_class") == TURNS).join(periods.select("group", around="period_ns"), on="group")
    shown = turning.filter(same_period("period_ns", "around", settings)).select("group").unique()
    stepping = in_period(found, periods, settings)
    lines = _lines(stepping, settings).join(shown, on="group", how="anti")
    return stepping.join(lines, on="group", how="anti"), periods.select("group")


def _numbered(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings, before_ns: int) -> Stepping:
    """Number the steps of each group by the bursts of its periodic streams.

    Bursts that carry less than `least_step` of a typical step's bytes and belong to no other (the broadcast of the
    first weights) are left out, unless they are cut off by the beginning of the first window with flows of the group:
    where the data begin is for each group to say, since groups may be looked at one by one.

    Parameters
    ----------
    flows : bulk flows, as `nic_pairs.in_order` returns
    streams : STEPPING, a row each; of a pair one, or several of its sizes
    """
    streams = streams.sort("pair", "size_class")
    taken = cut(flows, streams.select("pair", "size_class", "threshold_ns"), settings, before_ns=before_ns)
    described = streams.rename({"group_period_ns": "period_ns"})
    bursts = taken.table.drop("end_before_ns", "bytes_before").with_row_index("burst")
    lined_up = line_up(bursts.sort("stream", maintain_order=True), described, settings)
    steps = whole_steps(lined_up, described, settings)
    of_beat = np.full(lined_up["beat"].n_unique(), -1)
    of_beat[steps["beat"].to_numpy()] = steps["step"].to_numpy()
    step = np.full(bursts.height, -1)
    step[lined_up["burst"].to_numpy()] = of_beat[lined_up["beat"].to_numpy()]
    every = flows["pair"].to_numpy()[nic_pairs.starts_of_pairs(flows)[:-1]]
    place, periods = np.searchsorted(every, streams["pair"].to_numpy()), np.full(every.size, np.nan)
    periods[place] = streams["group_period_ns"].to_numpy()
    return Stepping(flows, taken, place[taken.table["stream"].to_numpy()], step, periods)


def _seen_once(
    flows: pl.DataFrame, found: pl.DataFrame, pairs: pl.DataFrame | None, settings: RhythmSettings, until_ns: int
) -> pl.DataFrame:
    """Return the streams of groups without a period that show the end of one step: STEPPING."""
    if found.is_empty():
        return pl.DataFrame(schema={name: found.schema.get(name, pl.Float64) for name in STEPPING})
    once = first_bursts(flows, found, settings, until_ns=until_ns)
    if pairs is not None:
        once = once.join(pairs, on=PAIR, how="semi")
    return once.with_columns(size_class=pl.lit(WHOLE, pl.Int64), clarity=pl.lit(0.0)).select(STEPPING)


def _lines(streams: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Find the groups whose streams are all a pipeline's: `group`.

    They have one size, as much comes back, and they link three NICs or more in a line, none with more than two
    neighbours. Unless they also turn, they just repeat with its micro-batches.
    """
    alike = answered(streams.filter(pl.col("size_class") == WHOLE), settings).with_columns(answered=True)
    pairs = (
        streams.filter(pl.col("size_class") != TURNS).select("group", *PAIR).unique().join(alike, on=PAIR, how="left")
    )
    neighbours = ends_of(pairs).group_by("group", "addr").agg(neighbours=pl.len())
    shape = neighbours.group_by("group").agg(
        nics=pl.len(), most=pl.col("neighbours").max(), ends=pl.col("neighbours").sum()
    )
    return (
        pairs.group_by("group")
        .agg(answered=pl.col("answered").fill_null(value=False).mean())
        .join(shape, on="group")
        .filter(
            pl.col("answered") >= settings.least_support,
            pl.col("most") == 4,  # two neighbours, each in both directions
            pl.col("ends") < 4 * pl.col("nics"),
        )
        .select("group")
    )


def _named_streams(found: pl.DataFrame, stepping: pl.DataFrame, pairs: pl.DataFrame | None) -> pl.DataFrame:
    """Return the streams in their group's period, or those of given pairs whether they show it or not."""
    if pairs is None:
        return stepping
    fitting = stepping.with_columns(nic_pairs.named(stepping.select(PAIR))).join(pairs, on=PAIR, how="semi")
    # No gap is typical of a group whose pairs are cut at their turns: what does not turn cannot be cut.
    typical = (
        fitting.filter(pl.col("size_class") > PORTIONS)
        .group_by("group")
        .agg(
            pl.col("threshold_ns").median(),
            pl.col("group_period_ns").first(),
            turns=pl.col("size_class").min() == TURNS,
        )
        .filter(~pl.col("turns"))
        .drop("turns")
    )
    broken = (
        found.filter(pl.col("size_class") == WHOLE)
        .join(pairs, on=PAIR, how="semi")
        .join(fitting, on=PAIR, how="anti")
        .drop("threshold_ns")
        .join(typical, on="group")
        # Nor is broken what repeats within the period: beside its gradients it exchanges blocks in every layer.
        .filter(~(OVER * pl.col("period_ns") <= pl.col("group_period_ns")).fill_null(value=False))
    )
    return pl.concat([fitting, broken.select(fitting.columns)])
