"""Streams: pairs of NICs, and their records of one size, with the rhythm that each has of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from llmprism_tasks.numerics import ragged
from llmprism_tasks.numerics.robust import Flags, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.kernels import byte_lag, byte_phase, direction_reversal, gap_segmentation
from llmprism_tasks.stages.step_division.kernels.regularity import UNEVEN_PERIODS, Rhythms
from llmprism_tasks.stages.traffic import nic_pairs, transfers
from llmprism_tasks.stages.traffic.opposite import log_ratio, opposite, same_size
from llmprism_tasks.stages.traffic.transfers import Sizes, Transfers

PAIR = nic_pairs.PAIR
WHOLE_PAIR = -1
"""Stands for the size of a pair as a whole, beside its records of one size, numbered from 0."""

AT_TURNS = -2
"""Stands for the size of a pair whose bursts are cut where it and the one that answers it begin anew."""

AT_LAGS = -3
"""Stands for the size of a pair whose bursts are cut where all that it sends comes again after the same bytes."""

WITH_GROUP = -4
"""Stands for the size of a pair whose bursts are cut together with those of all pairs of its group (`templates`)."""

AT_PORTIONS = -5
"""Stands for the size of a pair whose bursts are cut where it is quiet after the same bytes, counted from its size 0.
From its size k: AT_PORTIONS - k."""

RHYTHM_COLUMNS = ["threshold_ns", "period_ns", "mean_period_ns", "duration_ns", "clarity", "bursts"]


def stream_rhythms(flows: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Find the period of each pair's bursts, and of those of its records that have one size.

    Gradients may share a pair with traffic that fills the step (context-parallel blocks, the all-gathers of sharded
    parameters, activations beside tied embeddings); their sizes tell them apart.

    Parameters
    ----------
    flows : bulk flows; several jobs and pairs mixed

    Returns
    -------
    a row per pair (`size_class` -1), one per size that recurs, one per pair that turns (-2) and one per pair that is
    quiet after the same bytes (-5 and below): `src_addr`, `dst_addr`, `size_class`, `flows`, `bytes`, `first_ns`,
    `last_ns` (first and last flow's start), `threshold_ns` (a longer gap ends a burst; for the last, one of the size
    that it is counted from), `period_ns`, `mean_period_ns`, `duration_ns` (of a burst; all NULL without a period),
    `clarity` (ratio of the quiet gap to the longest gap inside bursts), `bursts`, and of the pair `common_size` (bytes)
    and `common_share` (ratio of bytes): of the size that carries most; and `pair`, its number among these flows
    """
    flows = nic_pairs.in_order(flows)
    whole, sizes = transfers.of_pairs(flows), transfers.of_sizes(flows, settings.same_size)
    common = _common_sizes(sizes)
    mutual = _is_returned(flows, whole, settings)
    known = _describe_streams(flows, whole, np.full(whole.pair.size, WHOLE_PAIR), mutual, settings).with_columns(common)
    recurring = _recurring_sizes(sizes, settings)
    of_pair = mutual[np.searchsorted(whole.pair, sizes.pair[recurring])]
    parts = _describe_streams(flows, sizes.of(recurring), sizes.size_class[recurring], of_pair, settings)
    parts = parts.drop_nulls("period_ns")
    at = np.searchsorted(whole.pair, parts["pair"].to_numpy())
    turned = _turn_rhythms(flows, known, settings)
    # Of uneven micro-batches some happen to have one size, which recurs as chance will have it.
    parts = parts.with_columns(common[at]).join(turned, on="pair", how="anti")
    return pl.concat(
        [known, parts, turned, _portion_rhythms(flows, known.join(turned, on="pair", how="anti"), parts, settings)]
    )


@dataclass(frozen=True, eq=False)
class PairRhythms:
    """The rhythms of pairs, and the flows that show them.

    Attributes
    ----------
    flows : bulk flows of a traffic index, as `nic_pairs.in_order` returns
    """

    flows: pl.DataFrame
    settings: RhythmSettings

    @cached_property
    def rhythms(self) -> pl.DataFrame:
        """Return what `stream_rhythms` does."""
        return stream_rhythms(self.flows, self.settings)

    def of(self, flows: pl.DataFrame) -> pl.DataFrame:
        """Return the rhythms of other flows of the same index, of which each pair's follow each other in it.

        They are found anew unless all of these pairs, and the pairs that answer them, have the same flows here.
        """
        if not self._has_same_flows(flows):
            return stream_rhythms(flows, self.settings)
        return self.rhythms.filter(pl.col("pair").is_in(_pair_numbers(flows)))

    def _has_same_flows(self, flows: pl.DataFrame) -> bool:
        if flows.is_empty() or self.flows.is_empty():
            return False
        known, asked = _pair_spans(self.flows), _pair_spans(flows)
        at = np.minimum(np.searchsorted(known[0], asked[0]), known.shape[1] - 1)
        if not np.array_equal(known[:, at], asked):
            return False
        every = nic_pairs.pairs_of(self.flows, nic_pairs.PAIR)
        chosen = pl.col("pair").is_in(_pair_numbers(flows))
        back = every.filter(~chosen).select(src_addr="dst_addr", dst_addr="src_addr")
        return every.filter(chosen).join(back, on=nic_pairs.PAIR, how="semi").is_empty()


def answered(pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Keep the pairs of which one size is sent, and as many bytes of it come back: `src_addr`, `dst_addr`, `pair`."""
    return _keep_returned_pairs(taking_turns(pairs, settings), pairs, settings).select(*PAIR, "pair")


def taking_turns(pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Keep the pairs of which one size is sent, and comes back, however often.

    While a pipeline is filled, more goes over its first links than comes back.
    """
    one_size = pairs.filter(pl.col("common_share") >= settings.one_size_share)
    same = same_size("common_size", "back_common_size", settings.same_size)
    return one_size.join(opposite(pairs, "common_size"), on=PAIR).filter(same).select(pairs.columns)


def _uneven_pairs(pairs: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Keep the pairs of many sizes, without a rhythm of their own, of which as many bytes come back: `pair`.

    Micro-batches of uneven lengths make such a pipeline, of which only the turns are regular.
    """
    irregular = pairs.filter(pl.col("period_ns").is_null(), pl.col("common_share") < settings.one_size_share)
    return _keep_returned_pairs(irregular, pairs, settings).select("pair")


def _keep_returned_pairs(pairs: pl.DataFrame, every: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Keep the pairs of which as many bytes come back."""
    return pairs.join(opposite(every, "bytes"), on=PAIR).filter(
        log_ratio("bytes", "back_bytes") <= settings.answer_bytes
    )


def cut_at_turns(
    flows: pl.DataFrame, chosen: Integers, settings: RhythmSettings
) -> tuple[Transfers, Rhythms, Integers]:
    """Cut pairs and those that answer them at their turns: their transfers, their rhythms, the burst of each.

    Parameters
    ----------
    flows : as `nic_pairs.in_order` returns
    chosen : numbers of pairs
    """
    links, sides = transfers.of_links(flows, chosen)
    return links, *direction_reversal.reversal_bursts(
        *(links.starts, links.ends, links.sizes, sides, links.offsets),
        byte_tolerance=settings.byte_tolerance,
        pace_tolerance=settings.pace_tolerance,
        few_ratio=settings.few_quiet_ratio,
    )


def cut_at_portions(
    flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings
) -> tuple[Transfers, Rhythms, Integers]:
    """Cut pairs where they are quiet after the same bytes: their transfers, their rhythms, the burst of each.

    Parameters
    ----------
    flows : as `nic_pairs.in_order` returns
    streams : `pair`, `size_class` (AT_PORTIONS and below), `threshold_ns`
    """
    whole, sizes = transfers.of_pairs(flows), transfers.of_sizes(flows, settings.same_size)
    pair = streams["pair"].to_numpy()
    taken = whole.of(np.searchsorted(whole.pair, pair))
    counted = sizes.of(np.searchsorted(sizes.pair, pair) + AT_PORTIONS - streams["size_class"].to_numpy())
    numbers = gap_segmentation.burst_numbers(*counted[1:5], streams["threshold_ns"].to_numpy())
    begins = np.append(True, numbers[1:] != numbers[:-1])
    begins[counted.offsets[:-1]] = True
    first = taken.offsets[:-1]
    marked = np.zeros(taken.rows.size, np.int64)
    marked[(counted.rows + np.repeat(first - taken.rows[first], np.diff(counted.offsets)))[begins]] = 1
    return taken, *byte_phase.quiet_places(
        *(taken.starts, taken.ends, taken.sizes, marked, taken.offsets),
        same_size=settings.same_size,
        byte_tolerance=settings.byte_tolerance,
        pace_tolerance=settings.pace_tolerance,
        few_ratio=settings.few_quiet_ratio,
    )


def cut_at_lags(flows: pl.DataFrame, pairs: Integers, settings: RhythmSettings) -> tuple[Transfers, Rhythms, Integers]:
    """Cut pairs where they begin anew after the same bytes: their transfers, their rhythms, the burst of each.

    Parameters
    ----------
    flows : as `nic_pairs.in_order` returns
    pairs : their numbers
    """
    whole = transfers.of_pairs(flows)
    taken = whole.of(np.searchsorted(whole.pair, pairs))
    return taken, *byte_lag.repeating_bytes(
        *(taken.starts, taken.ends, taken.sizes, taken.offsets),
        byte_tolerance=settings.byte_tolerance,
        pace_tolerance=settings.pace_tolerance,
        few_ratio=settings.few_quiet_ratio,
    )


def lag_rhythms(flows: pl.DataFrame, silent: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the rows of pairs again that have no rhythm as a whole, but send the same after the same bytes.

    Parameters
    ----------
    flows : as `nic_pairs.in_order` returns
    silent : as `stream_rhythms` returns for them, the rows of whole pairs
    """
    if silent.is_empty():
        return silent
    silent = silent.sort("pair")
    _, found, _ = cut_at_lags(flows, silent["pair"].to_numpy(), settings)
    lagged = silent.with_columns(pl.lit(AT_LAGS, pl.Int64).alias("size_class"), **_rhythm_columns(found))
    return lagged.drop_nulls("period_ns").select(silent.columns)


def _portion_rhythms(
    flows: pl.DataFrame, known: pl.DataFrame, parts: pl.DataFrame, settings: RhythmSettings
) -> pl.DataFrame:
    """Return the rows of pairs again that have no rhythm as a whole, but are quiet after the same bytes.

    These are counted from the sizes with the longest period: from the one that most steps agree with.
    """
    longest = pl.col("period_ns").max().over("pair")
    counted = parts.filter(pl.col("period_ns") * (1 + settings.same_period) >= longest).select(
        "pair", "threshold_ns", size_class=AT_PORTIONS - pl.col("size_class")
    )
    silent = (
        known.filter(pl.col("period_ns").is_null())
        .drop("size_class", "threshold_ns")
        .join(counted, on="pair", maintain_order="left_right")
    )
    if silent.is_empty():
        return known.clear()
    _, found, _ = cut_at_portions(flows, silent, settings)
    rhythms = _rhythm_columns(found._replace(threshold=silent["threshold_ns"].to_numpy()))
    return (
        silent.with_columns(**rhythms)
        .drop_nulls("period_ns")
        .sort("pair", "clarity", "bursts", "size_class", descending=[False, True, True, True])
        .unique("pair", keep="first", maintain_order=True)
        .select(known.columns)
    )


def _is_returned(flows: pl.DataFrame, whole: Transfers, settings: RhythmSettings) -> Flags:
    """Tell of each pair whether as many bytes come back."""
    pairs = nic_pairs.pairs_of(flows, PAIR).with_columns(bytes=whole.sums())
    back = pairs.select(src_addr="dst_addr", dst_addr="src_addr", back_bytes="bytes")
    alike = log_ratio("bytes", "back_bytes") <= settings.answer_bytes
    return (
        pairs.join(back, on=PAIR, how="left", maintain_order="left")
        .select(alike.fill_null(value=False))
        .to_series()
        .to_numpy()
    )


def _describe_streams(
    flows: pl.DataFrame, streams: Transfers, size_class: Integers, mutual: Flags, settings: RhythmSettings
) -> pl.DataFrame:
    """Return streams with their rhythms."""
    found = gap_segmentation.quiet_gaps(
        *(streams.starts, streams.ends, streams.sizes, streams.offsets, mutual),
        shortest_gap=settings.shortest_quiet_ms * 1e6,
        clearest_ratio=settings.quiet_ratio,
        byte_tolerance=settings.byte_tolerance,
        pace_tolerance=settings.pace_tolerance,
        uneven_tolerance=UNEVEN_PERIODS if size_class[:1].tolist() == [WHOLE_PAIR] else settings.pace_tolerance,
        persistence=settings.period_persistence,
        few_ratio=settings.few_quiet_ratio,
    )
    first, last = streams.offsets[:-1], streams.offsets[1:] - 1
    return nic_pairs.named(flows.select(*PAIR, "pair")[streams.rows[first]]).select(
        *PAIR,
        size_class=size_class,
        flows=np.diff(streams.offsets),
        bytes=streams.sums(),
        first_ns=streams.starts[first],
        last_ns=streams.starts[last],
        **_rhythm_columns(found),
        pair="pair",
    )


def _rhythm_columns(found: Rhythms) -> dict[str, pl.Series]:
    return {name: pl.Series(name, values, nan_to_null=True) for name, values in zip(RHYTHM_COLUMNS, found, strict=True)}


def _pair_offsets(sizes: Sizes) -> Integers:
    """Return where the sizes of each pair begin, and their number."""
    return np.append(np.flatnonzero(sizes.size_class == 0), sizes.pair.size)


def _recurring_sizes(sizes: Sizes, settings: RhythmSettings) -> Integers:
    """Return the places of the sizes that recur, beside others, and carry a share of their pair's bytes.

    Sizes that run into each other are none: samples of all lengths make messages of all sizes, and of these some happen
    to be alike.
    """
    counts, carried, first = np.diff(sizes.offsets), sizes.sums, _pair_offsets(sizes)
    several = np.diff(first)
    of_all, all_carried = (np.repeat(np.add.reduceat(one, first[:-1]), several) for one in (counts, carried))
    alone = _is_isolated_size(sizes, settings)
    return np.flatnonzero((counts >= 2) & (counts < of_all) & (carried >= settings.least_share * all_carried) & alone)


def _is_isolated_size(sizes: Sizes, settings: RhythmSettings) -> Flags:
    """Return which sizes are further from the next smaller and the next larger one of their pair than they are wide."""
    of_each = sizes.sizes[sizes.rows]
    least, most = (one.reduceat(of_each, sizes.offsets[:-1]) for one in (np.minimum, np.maximum))
    near = (np.diff(sizes.pair) == 0) & (least[1:] <= most[:-1] * (1 + settings.same_size))
    apart: Flags = ~(np.append(near, False) | np.insert(near, 0, False))
    return apart


def _common_sizes(sizes: Sizes) -> pl.DataFrame:
    """Return of each pair the size that carries most, the larger one of equals."""
    carried, first = sizes.sums, _pair_offsets(sizes)
    most = np.repeat(np.maximum.reduceat(carried, first[:-1]), np.diff(first))
    common = np.maximum.reduceat(np.where(carried == most, np.arange(carried.size), -1), first[:-1])
    rows, offsets = sizes.rows_of(common)
    return pl.DataFrame(
        {
            "common_size": ragged.medians(sizes.sizes[rows], offsets),
            "common_share": carried[common] / np.add.reduceat(carried, first[:-1]),
        }
    )


def _turn_rhythms(flows: pl.DataFrame, known: pl.DataFrame, settings: RhythmSettings) -> pl.DataFrame:
    """Return the rows of pairs again that turn, with what repeats between their turns."""
    alike = pl.concat([answered(known, settings).select("pair"), _uneven_pairs(known, settings)])
    chosen = alike["pair"].sort().to_numpy()
    if not chosen.size:
        return known.clear()
    links, found, _ = cut_at_turns(flows, chosen, settings)
    number = known["pair"].to_numpy()
    link = np.full(number[-1:].max(initial=-1) + 1, -1)
    link[flows["pair"].to_numpy()[links.rows]] = np.repeat(np.arange(links.pair.size), np.diff(links.offsets))
    known, link = known.filter(pl.Series(link[number] >= 0)), link[number[link[number] >= 0]]
    rhythms = _rhythm_columns(Rhythms(*(one[link] for one in found)))
    return known.with_columns(pl.lit(AT_TURNS, pl.Int64).alias("size_class"), **rhythms).drop_nulls("period_ns")


def _pair_numbers(flows: pl.DataFrame) -> pl.Series:
    return flows["pair"].gather(nic_pairs.starts_of_pairs(flows)[:-1]).implode()


def _pair_spans(flows: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Return of each pair its number, the row of its first flow in the flows table, and the number of its flows."""
    offsets = nic_pairs.starts_of_pairs(flows)
    pair, row = (flows[name].to_numpy()[offsets[:-1]] for name in ("pair", "row"))
    return np.stack([pair, row, np.diff(offsets)]).astype(np.int64)
