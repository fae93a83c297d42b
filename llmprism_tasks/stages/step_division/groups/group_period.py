"""Periods: what the streams of a group of NICs agree on, and which of them keep it."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.contract.windows import NANOSECONDS_PER_MS, NANOSECONDS_PER_SECOND
from llmprism_tasks.numerics.intervals import end_of_earlier
from llmprism_tasks.numerics.robust import MAJORITY, Flags
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.balance import STRAY_PART
from llmprism_tasks.stages.step_division.groups.misleading_periods import (
    drop_pause_periods,
    drop_periods_of_slow_steps,
    is_pause_period,
)
from llmprism_tasks.stages.step_division.groups.rhythm_rows import (
    CUT_OFF_BURSTS,
    SILENT_PERIODS,
    column_arrays,
    ends_of,
    largest_of_pair,
    log_slot,
    nic_counts,
    repeat_in_neighbour_slots,
    same_period,
)
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS
from llmprism_tasks.stages.step_division.periodicity import AT_LAGS, AT_TURNS, PAIR, WHOLE_PAIR
from llmprism_tasks.stages.traffic import nic_pairs


def group_periods(
    flows: pl.DataFrame, rhythms: pl.DataFrame, settings: RhythmSettings, *, until_ns: int = 0, of_few: bool = False
) -> pl.DataFrame:
    """Find each group's period: the longest of those that about the most of its NICs agree on.

    The longest, because pipeline pairs also repeat once per micro-batch; agreed on by most, because a NIC that does not
    take part in it cannot be in the step. A period in which next to nothing moves, that does not go on for most of the
    time or is over after seconds (buckets of one burst), or beside which most bytes follow none, is not the step's:
    better no steps than invented ones.

    Where half of the steps seen are slower than the others, chance decides to which half a pair's median belongs; their
    mean is the same for all. A period seen two or three times counts where no other is.

    Parameters
    ----------
    flows : the flows that `rhythms` was found in
    rhythms : as `stream_rhythms` returns, with a column `group`
    until_ns : what is seen ends here: the buckets of a first burst are no steps if silence follows them, nor if those
        of the second have followed it
    of_few : whether a few of its NICs may tell it by what moves the same bytes, as where gradients cross hosts at some
        of them, and tokens, whose bytes never repeat, at all

    Returns
    -------
    `group`, `period_ns`; groups without a common period are absent
    """
    rhythms = drop_pause_periods(rhythms.filter(pl.Series(~is_pause_period(rhythms))), settings)
    endpoints = nic_counts(rhythms)
    rhythms = drop_periods_of_slow_steps(rhythms, endpoints, settings)
    rhythms = rhythms.join(_beginnings(flows, rhythms), on="group", how="left", maintain_order="left")
    first, last = pl.col("begun_ns"), pl.col("last_ns").max().over("group")
    lasts, seen = pl.col("bursts") * pl.col("period_ns"), pl.lit(until_ns) - first
    paused = (pl.col("mean_period_ns") - pl.col("period_ns")) * pl.col("bursts")
    without_pause = paused < settings.few_quiet_ratio * pl.col("period_ns")
    runs = _longest_runs(flows, rhythms, settings)
    at_work = without_pause & (pl.lit(until_ns) - pl.col("last_ns") <= SILENT_PERIODS * pl.col("period_ns"))
    long = lasts >= settings.least_run_s * NANOSECONDS_PER_SECOND
    goes_on = (lasts >= settings.period_persistence * (last - first)) & (lasts >= settings.least_run * seen)
    periodic = rhythms.filter((goes_on & (at_work | long)).fill_null(value=False))
    if of_few:
        periodic = periodic.filter(_moves_same_bytes(settings))
    several, few = (periodic.filter((pl.col("bursts") > FEW_BURSTS) == many) for many in (True, False))
    found = rhythms.select("group", "period_ns").clear()
    for others in (several, several.with_columns(period_ns="mean_period_ns"), few):
        left = others.join(found, on="group", how="anti")
        if not left.is_empty():
            found = pl.concat([found, _agreed_periods(flows, rhythms, left, endpoints, runs, settings, of_few=of_few)])
    return found.sort("group")


def _beginnings(flows: pl.DataFrame, rhythms: pl.DataFrame) -> pl.DataFrame:
    """Return when each group began to send more than stray messages: `group`, `begun_ns`. These go between hosts at any
    time, and a job may begin long after the first of them."""
    flows = nic_pairs.in_order(flows)
    offsets, sent = nic_pairs.starts_of_pairs(flows), np.append(0, np.cumsum(flows["bytes"].to_numpy()))
    before, until = sent[offsets[:-1]], sent[offsets[1:]]
    first = np.searchsorted(sent, before + (until - before) // STRAY_PART, "right") - 1
    begun = flows[first].select("pair", begun_ns="flow_start_ns", bytes=pl.Series(until - before))
    # Of some pairs only sizes have a rhythm, and not the whole.
    pairs = rhythms.select("group", "pair").unique().join(begun, on="pair").sort("group", "begun_ns", "pair")
    moved, total = pl.col("bytes").cum_sum().over("group"), pl.col("bytes").sum().over("group")
    return pairs.filter(moved * STRAY_PART > total).group_by("group").agg(pl.col("begun_ns").first())


def _moves_same_bytes(settings: RhythmSettings) -> pl.Expr:
    """Say which streams may move the same in each burst: of one size about as many messages, of a whole pair several,
    or one size. Tokens come again layer by layer, but each message alone, and in another size."""
    messages = pl.col("flows") / pl.col("bursts")
    even = (messages / messages.round() - 1).abs() <= settings.byte_tolerance
    repeated = (messages >= 1 / MAJORITY) | (pl.col("common_share") >= settings.one_size_share)
    of_whole = pl.when(pl.col("size_class") == WHOLE_PAIR).then(repeated)
    return of_whole.when(pl.col("size_class") >= 0).then(even).otherwise(True)


def _longest_runs(flows: pl.DataFrame, rhythms: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return how long pairs that show no period send without a pause at most: `group`, `pair`, `bytes`, `run_ns`."""
    silent = rhythms.filter(pl.col("size_class") == WHOLE_PAIR, pl.col("period_ns").is_null())
    sent = nic_pairs.flows_of_pairs(
        nic_pairs.in_order(flows).select("pair", "flow_start_ns", "flow_end_ns"), silent.select("pair")
    )
    pause = pl.col("flow_start_ns") - end_of_earlier("flow_end_ns").over("pair")
    begins = (pause > settings.shortest_quiet_ms * NANOSECONDS_PER_MS).fill_null(value=False)
    runs = sent.with_columns(run=begins.cum_sum().over("pair")).group_by("pair", "run")
    lasts = runs.agg(run_ns=pl.col("flow_end_ns").max() - pl.col("flow_start_ns").min())
    longest = lasts.group_by("pair").agg(pl.col("run_ns").max())
    return silent.select("group", "pair", "bytes").join(longest, on="pair", maintain_order="left")


def in_period(rhythms: pl.DataFrame, periods: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Keep the streams whose own period is their group's, which becomes `group_period_ns`.

    Where half of the steps are slower than the others, a stream's median may be of the other half; then its mean is
    that of most streams of the period.

    Of a pair that has it as a whole its parts are left out, unless they alone are quiet for most of the period: they
    are its gradients, and other traffic fills the step. Where the pair is quiet after the same bytes every time, that
    is where steps meet, however short it is.
    """
    known = rhythms.join(periods.rename({"period_ns": "group_period_ns"}), on="group")
    by_median = same_period("period_ns", "group_period_ns", settings)
    usual_mean = pl.col("mean_period_ns").filter(by_median).median().over("group")
    by_mean = [same_period("mean_period_ns", other, settings) for other in ("group_period_ns", "usual_mean_ns")]
    fits = pl.any_horizontal(by_median, *by_mean).fill_null(value=False)
    kept = known.with_columns(usual_mean_ns=usual_mean).filter(fits)
    pair, size_class, bursts, mean, usual, duration, period = column_arrays(
        *(kept, "pair", "size_class", "bursts", "mean_period_ns", "usual_mean_ns", "duration_ns", "group_period_ns")
    )
    left, part = np.ones(kept.height, np.bool_), size_class >= 0

    def of_pair(flags: Flags) -> Flags:
        any_left: Flags = np.bincount(pair, flags & left)[pair] > 0
        return any_left

    # A size that comes twice in some steps, since they became longer, is no measure for what comes once in all of them.
    often = part & (mean * (1 + settings.same_period) < usual)
    left &= ~often | ~of_pair(~often)
    # Records of one size that the collector merged or split in some steps are not there in all of them; nor is a pair
    # quiet as a whole between steps that became far longer, or were, where its gaps are those of the other steps.
    complete = bursts + CUT_OFF_BURSTS >= settings.least_whole * largest_of_pair(bursts, left, pair)
    compact = complete & ((size_class <= AT_LAGS) | (duration <= settings.compact * period))
    left &= compact | ~of_pair(compact)
    left &= ~part | ~of_pair(~part)
    left &= (size_class != AT_TURNS) | ~of_pair(size_class == WHOLE_PAIR)
    return kept.filter(pl.Series(left)).drop("usual_mean_ns")


def _agreed_periods(
    flows: pl.DataFrame,
    rhythms: pl.DataFrame,
    periodic: pl.DataFrame,
    endpoints: pl.DataFrame,
    runs: pl.DataFrame,
    settings: RhythmSettings,
    *,
    of_few: bool,
) -> pl.DataFrame:
    """Return the period of each group on which enough of its NICs agree: `group`, `period_ns`.

    What goes on for longer than a step takes is no part of steps: a copy of files.

    Parameters
    ----------
    runs : as `_longest_runs` returns
    """
    slotted = periodic.select("group", *PAIR, "bytes", "period_ns", slot=log_slot("period_ns", settings))
    least_share, least_support = (0.0, 0.0) if of_few else (settings.least_share, settings.least_support)
    total = rhythms.filter(pl.col("size_class") == WHOLE_PAIR).group_by("group").agg(total=pl.col("bytes").sum())
    supporters = repeat_in_neighbour_slots(ends_of(slotted, "slot").unique()).group_by("group", "slot")
    periods = repeat_in_neighbour_slots(slotted).group_by("group", "slot")
    carried = periods.agg(carried=pl.col("bytes").sum(), period_ns=pl.col("period_ns").median())
    beside = carried.join(runs, on="group").filter(pl.col("run_ns") > pl.col("period_ns"))
    of_slots = beside.group_by("group", "slot").agg(beside=pl.col("bytes").sum())
    support = (
        carried.join(of_slots, on=["group", "slot"], how="left")
        .join(total, on="group")
        .with_columns(pl.col("total") - pl.col("beside").fill_null(0))
        .filter(pl.col("carried") >= least_share * pl.col("total"))
        .join(supporters.agg(supporters=pl.col("addr").n_unique()), on=["group", "slot"])
        .join(endpoints, on="group")
        .filter(pl.col("supporters") >= least_support * pl.col("endpoints"))
        .filter(pl.col("supporters") >= settings.period_support * pl.col("supporters").max().over("group"))
    )
    longest = support.sort("group", "period_ns").group_by("group", maintain_order=True).last()
    around = longest.select("group", around="period_ns")
    beside = around.join(runs, on="group").filter(pl.col("run_ns") > pl.col("around"))
    asked = rhythms.join(beside, on="pair", how="anti", maintain_order="left")
    explained = _explained_shares(flows, asked, periodic, around, settings)
    enough = around.join(explained.filter(pl.col("explained") >= MAJORITY), on="group")
    agreed = periodic.select("group", "period_ns").join(enough, on="group")
    agreed = agreed.filter(same_period("period_ns", "around", settings))
    return agreed.group_by("group").agg(pl.col("period_ns").median()).sort("group")


def _explained_shares(
    flows: pl.DataFrame, rhythms: pl.DataFrame, periodic: pl.DataFrame, around: pl.DataFrame, settings: RhythmSettings
) -> pl.DataFrame:
    """Return for each group the share of bytes that its period explains: `group`, `explained`.

    It explains streams that repeat with it, or faster, and pairs that send about as often in each period (experts,
    whose bytes never repeat; blocks of context beside gradients, of which one bucket repeats): if it was seen often,
    for among many pairs that send at random some always seem to have one, and so often as those two or three times all
    send.
    """
    size_class, needed = pl.col("size_class"), ["group", "pair", "bytes", "first_ns", "last_ns"]
    pairs = rhythms.filter(size_class == WHOLE_PAIR).select(needed).join(around, on="group")
    repeats = (
        periodic.select("group", "pair", "size_class", "bytes", "period_ns")
        .join(around, on="group")
        .filter(pl.col("period_ns") <= pl.col("around") * (1 + settings.same_period))
        .group_by("pair")
        .agg(
            repeating=pl.max_horizontal(
                pl.col("bytes").filter(size_class < 0).max(), pl.col("bytes").filter(size_class >= 0).sum()
            )
        )
    )
    often = periodic.filter(pl.col("bursts") > FEW_BURSTS).select("group").unique()
    known = pairs.join(repeats, on="pair", how="left").with_columns(pl.col("repeating").fill_null(0))
    rest = known.filter(pl.col("repeating") < pl.col("bytes")).join(often, on="group", how="semi")
    steady = _steady_pairs(flows, rest, settings)
    return (
        known.join(steady, on="pair", how="left")
        .group_by("group")
        .agg(explained=pl.coalesce("steady", "repeating").sum() / pl.col("bytes").sum())
    )


def _steady_pairs(flows: pl.DataFrame, pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the pairs that send about as often in each period: `pair`, `steady` (bytes).

    Parameters
    ----------
    pairs : `pair`, `bytes`, `first_ns`, `last_ns`, `around` (the period)
    """
    if pairs.is_empty():
        return pairs.select("pair", steady="bytes")
    sent = nic_pairs.flows_of_pairs(
        nic_pairs.in_order(flows).select("pair", "flow_start_ns"), pairs.select("pair", "first_ns", "around")
    )
    slots = sent.group_by("pair", slot=((pl.col("flow_start_ns") - pl.col("first_ns")) / pl.col("around")).floor())
    counts = (
        slots.len().group_by("pair").agg(total=pl.col("len").sum(), squares=(pl.col("len").cast(pl.Float64) ** 2).sum())
    )
    periods_of = (pl.col("last_ns") - pl.col("first_ns")) / pl.col("around")
    mean = pl.col("total") / periods_of
    return (
        pairs.join(counts, on="pair")
        .filter(periods_of >= 2, pl.col("squares") / periods_of <= mean**2 * (1 + settings.steady_variation**2))
        .select("pair", steady="bytes")
    )
