"""Misleading periods: those of pauses between many steps, and those that streams have in slow steps alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, Flags
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.rhythm_rows import (
    CUT_OFF_BURSTS,
    SILENT_PERIODS,
    column_arrays,
    ends_of,
    largest_of_pair,
    log_slot,
    nic_counts,
    repeat_in_neighbour_slots,
)
from llmprism_tasks.stages.step_division.kernels.gap_segmentation import STEPS_APART
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS
from llmprism_tasks.stages.step_division.periodicity import AT_TURNS, WHOLE_PAIR, answered

HALVES_RATIO = 1.7
"""Bursts for each of another stream that lasts as long, from which on they may be the two halves of its period."""


def is_pause_period(rhythms: pl.DataFrame) -> Flags:
    """Tell which sizes of a pair seem to repeat with a long period only because the pair pauses now and then.

    A size that is there for several periods of the whole pair keeps these; what the whole pair did for longer than the
    size kept its long period is the step, and the pauses are something else: checkpoints. So it is where the pair's
    bursts are too far apart to be buckets.
    """
    pair, size_class, bursts, period, duration = column_arrays(
        rhythms, "pair", "size_class", "bursts", "period_ns", "duration_ns"
    )
    lasts, whole = bursts * period, size_class == WHOLE_PAIR
    of_pair, pair_lasts = (largest_of_pair(values, whole, pair) for values in (period, lasts))
    longer = (pair_lasts - lasts >= SILENT_PERIODS * period) | (of_pair >= STEPS_APART)
    interrupted: Flags = (size_class >= 0) & (duration > of_pair) & longer
    return interrupted


def drop_pause_periods(rhythms: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Forget the periods of whole pairs that are only quiet between many steps, as where checkpoints are saved.

    Such a pair is busy for most of the time from one pause to the next, its sizes, or the pairs or the turns of most
    NICs of the group, come several times in between, for as long as the pauses do, and nothing in the group comes once.
    """
    pair, size_class, bursts, period, mean, duration = column_arrays(
        rhythms, "pair", "size_class", "bursts", "period_ns", "mean_period_ns", "duration_ns"
    )
    lasts, part, whole = (bursts - 1) * mean, size_class >= 0, size_class == WHOLE_PAIR
    busy = duration > MAJORITY * period
    if not (whole & busy).any():
        return rhythms
    # A size that is as busy as its pair, for as long, is nearly all of it, and pauses with it.
    alone = part & busy & (SILENT_PERIODS * period > largest_of_pair(period, whole, pair))
    quick = (whole & ~busy) | (size_class == AT_TURNS)
    others = _streams_of_most_nics(rhythms, quick, settings)
    group = rhythms["group"].rank("dense").to_numpy().astype(np.int64)
    quicker, longest = (
        np.fmax(largest_of_pair(values, part & ~alone, pair), largest_of_pair(values, others, group))
        for values in (period, lasts)
    )
    paused = whole & busy & (SILENT_PERIODS * quicker <= period) & (longest + period >= lasts)
    pauses = pl.Series(paused | (alone & (np.bincount(pair, paused)[pair] > 0)))
    if not pauses.any():
        return rhythms
    slotted = rhythms.with_columns(slot=log_slot("period_ns", settings))
    once = repeat_in_neighbour_slots(slotted.filter(~pauses).select("group", "slot").drop_nulls().unique())
    paused = slotted.filter(pauses).join(once, on=["group", "slot"], how="anti")
    return _drop_periods(rhythms, paused, ["pair", "size_class"])


def _streams_of_most_nics(rhythms: pl.DataFrame, chosen: Flags, settings: RhythmSettings) -> Flags:
    """Tell which of some streams are no links of a pipeline as a whole, if those of their group are of most of its
    NICs. Links repeat with micro-batches, which are no steps; but they turn once in a step."""
    of_links = rhythms.filter(pl.col("size_class") == WHOLE_PAIR)
    links = answered(of_links, settings).select("pair", size_class=pl.lit(WHOLE_PAIR, pl.Int64))
    asked = rhythms.with_row_index("row").filter(pl.Series(chosen)).join(links, on=["pair", "size_class"], how="anti")
    shown = ends_of(asked).unique().group_by("group").agg(shown=pl.len())
    most = (
        nic_counts(rhythms)
        .join(shown, on="group")
        .filter(pl.col("shown") >= settings.least_support * pl.col("endpoints"))
    )
    kept = np.zeros(rhythms.height, np.bool_)
    kept[asked.join(most, on="group", how="semi")["row"].to_numpy()] = True
    return kept


def drop_periods_of_slow_steps(
    rhythms: pl.DataFrame, endpoints: pl.DataFrame, settings: RhythmSettings
) -> pl.DataFrame:
    """Forget the periods of streams that repeat with a longer one only in the slower steps of their group.

    Since somebody is slow, the others push early, and the collector has records of sizes that were none before; or the
    pauses within a step have become longer than a whole step was. Another stream goes on throughout: as often as these
    while they last, and with a shorter period of its own in all other time. Sizes that are there in some of the quicker
    steps, too, last as long, and show fewer bursts, but more than every second.
    """
    times = pl.col("bursts").cast(pl.Int64) - 1
    seen = rhythms.with_columns(times=times, lasts=times * pl.col("mean_period_ns"))
    seen = seen.with_columns(slot=log_slot("lasts", settings))
    key = ["group", "times", "slot"]
    # Streams of a group that come as often and last as long are one: there are few such, however many NICs there are.
    alike = seen.drop_nulls("period_ns").group_by(key).agg(pl.col("period_ns", "lasts").median())
    others, without = pl.col("times_right") - pl.col("times"), pl.col("lasts_right") - pl.col("lasts")
    longer = pl.col("period_ns") > pl.col("period_ns_right") * (1 + settings.same_period)
    each = (without / others / pl.col("period_ns_right")).log().abs() <= float(np.log1p(settings.same_period))
    absent = (others > FEW_BURSTS) & (without >= SILENT_PERIODS * pl.col("period_ns")) & each
    now_and_then = (without.abs() < SILENT_PERIODS * pl.col("period_ns")) & (
        pl.col("times_right") < HALVES_RATIO * pl.col("times")
    )
    of_some = alike.join(_lasting_rhythms(seen, endpoints, settings), on="group").filter(
        longer, absent | (now_and_then & (others > CUT_OFF_BURSTS))
    )
    return _drop_periods(seen, of_some, key).drop("times", "lasts", "slot")


def _lasting_rhythms(seen: pl.DataFrame, endpoints: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the rhythms that many NICs of a group have for as long as any: `group`, `times`, `period_ns`, `lasts`."""
    longest = pl.col("lasts") >= pl.col("lasts").max().over("group") - SILENT_PERIODS * pl.col("period_ns")
    alike = ends_of(seen.drop_nulls("period_ns").filter(longest), "times", "slot", "period_ns", "lasts")
    return (
        alike.group_by("group", "times", "slot")
        .agg(pl.col("period_ns", "lasts").median(), supporters=pl.col("addr").n_unique())
        .join(endpoints, on="group")
        .filter(pl.col("supporters") >= settings.least_support * pl.col("endpoints"))
        .select("group", "times", "period_ns", "lasts")
    )


def _drop_periods(rhythms: pl.DataFrame, some: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Forget the periods of some streams; they are there all the same."""
    if some.is_empty():
        return rhythms
    named = some.select(key).unique().with_columns(forgotten=pl.lit(value=True))
    period = pl.when(pl.col("forgotten").is_null()).then("period_ns")
    return rhythms.join(named, on=key, how="left", maintain_order="left").with_columns(period).drop("forgotten")
