"""The joint rhythm of a group of NICs: its period, and the steps that its periodic bursts make together.

Every training step synchronises all replicas, so each data-parallel pair is quiet once per step, whatever else it
does. One pair's records are few and may be lost, split or merged; the pairs of one job tell the same story many
times. Here the bursts of all pairs that share the job's period are lined up, each shifted by its own typical delay
(later pipeline stages synchronise earlier), and bursts that then fall together are one step.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.balance import main_pairs
from llmprism_tasks.stages.step_division.groups.group_period import group_periods, in_period
from llmprism_tasks.stages.step_division.groups.group_steps import merge_steps, steps_together
from llmprism_tasks.stages.step_division.groups.rhythm_rows import ends_of, same_period
from llmprism_tasks.stages.step_division.groups.single_burst import first_bursts
from llmprism_tasks.stages.step_division.joint.cycles import with_whole_steps
from llmprism_tasks.stages.step_division.joint.joint_steps import JointSteps, Streams, jointly_cut_streams, number_steps
from llmprism_tasks.stages.step_division.joint.refusal import groups_that_break_off, groups_without_steps
from llmprism_tasks.stages.step_division.periodicity import (
    AT_LAGS,
    AT_TURNS,
    PAIR,
    WHOLE_PAIR,
    PairRhythms,
    answered,
    lag_rhythms,
    stream_rhythms,
    taking_turns,
)
from llmprism_tasks.stages.step_division.segmentation import STREAM_COLUMNS
from llmprism_tasks.stages.traffic import nic_pairs

SEVERAL_PERIODS = 1.5
"""Ratio of two periods from which on the longer one is several of the shorter."""


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
    joint = _steps_of_groups(flows, found, none, settings, none["group"], **bounds)
    refused = groups_without_steps(joint, settings)
    told = groups_that_break_off(joint, before_ns, until_ns)
    if refused.is_empty() and told.is_empty():
        return joint
    return _steps_of_groups(flows, found, refused, settings, told, **bounds)


def _steps_of_groups(
    flows: pl.DataFrame,
    found: pl.DataFrame,
    refused: pl.DataFrame,
    settings: RhythmSettings,
    told: pl.Series,
    *,
    until_ns: int,
    before_ns: int,
) -> JointSteps:
    """Do what `steps_of_groups` does, but for what single pairs of some groups (`groups_without_steps`) show. Of those
    that are `told`, a template says all.

    Where nobody tells the steps of a pipeline of which they are parts, or which is a line, they end where nothing is
    under way.
    """
    whole = found.filter(pl.col("size_class") == WHOLE_PAIR)
    coded = nic_pairs.as_coded(found, flows)
    turns = _turn_periods(coded, settings)
    seen = steps_together(flows, whole, settings, turns=turns)
    sure = pl.col("told") | pl.col("group").is_in(told.implode())
    together, clear = (seen.of(seen.streams.filter(one)) for one in (sure, ~sure))
    shared = jointly_cut_streams(coded, together)
    lines = _pipeline_only_groups(shared.with_columns(size_class=pl.lit(WHOLE_PAIR, pl.Int64)), settings)
    together = together.of(together.streams.join(lines, on="group", how="anti"))
    alone, periods = _streams_and_periods(
        flows, found.join(together.streams, on="group", how="anti", maintain_order="left"), settings, until_ns
    )
    periods = periods.join(refused, on="group", how="anti")
    alike = clear.of(_of_same_period(clear.streams, periods, settings))
    clear = clear.of(several_steps(clear.streams, periods, _of_same_period_as_turns(periods, turns, settings)))
    periods = periods.join(clear.streams, on="group", how="anti")
    together = merge_steps([together, clear])
    alone = alone.join(clear.streams, on="group", how="anti", maintain_order="left")
    in_step, known = _streams_in_period(flows, alone, periods, settings), periods.select("group")
    answered = pl.concat([in_step.select("group"), together.streams.select("group")]).unique()
    silent = whole.join(answered, on="group", how="anti", maintain_order="left")
    parts = refused.filter("parts").select("group")
    coded = nic_pairs.as_coded(silent, flows)
    in_lines, emptied = (_pipeline_only_groups(coded, settings, emptied=after) for after in (False, True))
    piped = pl.concat([parts, emptied.cast(parts.schema)])["group"]
    rest = steps_together(
        flows, silent, settings, by_bytes=True, parts=piped, turns=turns, turning=in_lines.cast(parts.schema)["group"]
    )
    untold = alone.filter(pl.col("size_class") != AT_LAGS).join(
        pl.concat([known, refused.select("group")]), on="group", how="anti", maintain_order="left"
    )
    of_few = group_periods(flows, nic_pairs.as_coded(untold, flows), settings, until_ns=until_ns, of_few=True)
    rest = rest.of(_without_same_period(rest.streams, of_few, settings))
    together = merge_steps([together, rest])
    of_few = of_few.join(together.streams, on="group", how="anti")
    alone, untold = (
        one.join(together.streams, on="group", how="anti", maintain_order="left") for one in (alone, untold)
    )
    in_step = pl.concat([in_step, _streams_in_period(flows, untold, of_few, settings)])
    known = pl.concat([known, of_few.select("group")])
    once = _single_burst_streams(flows, alone.join(known, on="group", how="anti"), settings, until_ns)
    found = pl.concat([alone, found.join(together.streams, on="group", how="semi", maintain_order="left")])
    shared = jointly_cut_streams(nic_pairs.as_coded(found, flows), together).select(in_step.columns)
    streams = Streams(found, pl.concat([in_step, shared]), once, together, of_few.select("group"), alike)
    in_step = streams.in_step
    shown = pl.concat([in_step.select(STREAM_COLUMNS), once.select(STREAM_COLUMNS)])
    return with_whole_steps(number_steps(flows, streams, shown, settings, before_ns), settings)


def several_steps(clear: pl.DataFrame, periods: pl.DataFrame, turning: pl.DataFrame) -> pl.DataFrame:
    """Return the groups whose clear template is as long as several of what single pairs take for steps: `group`.

    These are layers or micro-batches, unless links turn once in each: then the template is several steps. And so it is
    the other way around where silences show a forward and a backward pass in the template: what single pairs take for a
    step is several, up to a pause such as an evaluation.

    Parameters
    ----------
    clear : streams of `Found` that silences alone do not tell
    periods : as `group_periods` returns
    turning : `group`, those whose links turn once in each of these periods
    """
    period = clear.group_by("group").agg(pl.col("group_period_ns", "ended").first())
    once = pl.col("group").is_in(turning["group"].implode())
    longer = ~once & (pl.col("group_period_ns") >= SEVERAL_PERIODS * pl.col("period_ns"))
    shorter = pl.col("ended") & (SEVERAL_PERIODS * pl.col("group_period_ns") <= pl.col("period_ns"))
    return period.join(periods, on="group").filter(longer | shorter).select("group")


def _turn_periods(found: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return how long links take from one turn to the next, of groups of which most NICs turn: `group`, `period_ns`,
    and `alone` (whether all main pairs turn: no gradients are seen)."""
    turning, whole = (found.filter(size_class=kind) for kind in (AT_TURNS, WHOLE_PAIR))
    nics = [ends_of(some).unique().group_by("group").agg(nics=pl.len()) for some in (turning, whole)]
    most = nics[0].join(nics[1], on="group").filter(pl.col("nics") >= settings.least_support * pl.col("nics_right"))
    others = main_pairs(whole, "group").join(turning, on="pair", how="anti").select("group")
    alone = ~pl.col("group").is_in(others["group"].unique().implode())
    period = turning.group_by("group").agg(pl.col("period_ns").median()).with_columns(alone=alone)
    return period.join(most, on="group", how="semi")


def _of_same_period_as_turns(periods: pl.DataFrame, turns: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the groups whose links turn once in the period that their single pairs show: `group`.

    Parameters
    ----------
    periods : as `group_periods` returns
    turns : as `_turn_periods` returns
    """
    both = periods.join(turns.select("group", turn_ns="period_ns"), on="group")
    return both.filter(same_period("turn_ns", "period_ns", settings)).select("group")


def _without_same_period(clocked: pl.DataFrame, of_few: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the groups but those in which a few NICs have the period that all bytes have, or a whole part of it:
    `group`. These NICs exchange gradients beside tokens, and their silences say where a step ends; bytes tell only how
    many of them it is, and come again after several steps, too.

    Parameters
    ----------
    clocked : streams of `Found`
    of_few : as `group_periods` returns
    """
    groups = clocked.select("group", "group_period_ns").unique("group")
    times = pl.col("group_period_ns") / pl.col("period_ns")
    whole = (times / times.round() - 1).abs() <= settings.same_period
    return groups.join(groups.join(of_few, on="group").filter(whole), on="group", how="anti").select("group")


def _of_same_period(streams: pl.DataFrame, periods: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the groups whose pairs show together the period that single ones show as well: `group`.

    Parameters
    ----------
    streams : of `Found`
    periods : as `group_periods` returns
    """
    both = streams.select("group", "group_period_ns").unique("group").join(periods, on="group")
    return both.filter(same_period("period_ns", "group_period_ns", settings)).select("group")


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


def _pipeline_only_groups(streams: pl.DataFrame, settings: RhythmSettings, *, emptied: bool = False) -> pl.DataFrame:
    """Find the groups whose streams are all a pipeline's: `group`.

    They have one size, which comes back, and these link three NICs or more in a line, none with more than two
    neighbours, whatever else they have. Unless they also turn, they just repeat with its micro-batches. Two replicas
    that exchange gradients have one neighbour each.

    Parameters
    ----------
    emptied : whether as much must have come back as was sent: else the pipeline was not seen empty
    """
    whole = streams.filter(pl.col("size_class") == WHOLE_PAIR)
    alike = (answered if emptied else taking_turns)(whole, settings).select(*PAIR, answered=pl.lit(value=True))
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
