"""Cutting: the flows of streams divided into bursts, at the gaps or the turns that their rhythms go by."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.group_steps import Found
from llmprism_tasks.stages.step_division.kernels import burst_totals, gap_segmentation
from llmprism_tasks.stages.step_division.kernels.burst_totals import Totals
from llmprism_tasks.stages.step_division.periodicity import (
    AT_LAGS,
    AT_PORTIONS,
    AT_TURNS,
    WHOLE_PAIR,
    WITH_GROUP,
    cut_at_lags,
    cut_at_portions,
    cut_at_turns,
)
from llmprism_tasks.stages.traffic import transfers
from llmprism_tasks.stages.traffic.transfers import Transfers

STREAM_COLUMNS = ["pair", "size_class", "group", "threshold_ns", "group_period_ns", "clarity"]
"""What is needed of a stream to cut it into steps."""


class Cut(NamedTuple):
    """The transfers of streams in bursts.

    Attributes
    ----------
    sizes : shape (flows,), bytes, with what was sent early
    burst : of each flow, shape (flows,), a row of `table`; -1 for none
    table : a row per burst: `stream` (the row of the streams table), `start_ns`, `end_ns`, `bytes`, `window_start_ns`
        (of its first flow), `end_before_ns`, `bytes_before`: of its flows that began before a time, 0 if none did; and
        `number`, the step of its group that it is where all pairs are cut together
    """

    sizes: Integers
    burst: Integers
    table: pl.DataFrame


class Numbered(NamedTuple):
    """Transfers of streams, with the burst of each.

    Attributes
    ----------
    taken : the transfers
    numbers : shape (transfers,), counted in each stream; -1 for those that are not asked for
    streams : shape (streams of `taken`,): which of those asked for that is
    """

    taken: Transfers
    numbers: Integers
    streams: Integers


def cut(
    flows: pl.DataFrame, streams: pl.DataFrame, together: Found, settings: RhythmSettings, *, before_ns: int = 0
) -> Cut:
    """Cut the flows of streams into bursts.

    Parameters
    ----------
    flows : bulk flows as `nic_pairs.in_order` returns; those of other streams are left out
    streams : `pair`, `size_class`, `threshold_ns`, a row each; those of turning pairs are cut at their turns, those of
        pairs that are quiet after the same bytes there, all others at gaps above their threshold
    together : the steps of groups whose pairs are cut together
    before_ns : the time before which flows are summed up apart
    """
    size_class = streams["size_class"].to_numpy()
    sizes, burst = flows["bytes"].to_numpy(), np.full(0, -1)
    tables: list[pl.DataFrame] = []
    others = (
        (size_class >= 0, _cut_single_sizes),
        (size_class == AT_TURNS, _cut_at_turns),
        (size_class == AT_LAGS, _cut_at_lags),
        (size_class == WITH_GROUP, partial(_cut_with_group, together)),
        (size_class <= AT_PORTIONS, _cut_at_portions),
    )
    for of_kind, numbered in ((size_class == WHOLE_PAIR, _cut_whole_pairs), *others):
        chosen = np.flatnonzero(of_kind)
        if tables and not chosen.size:
            continue
        taken, numbers, places = numbered(flows, streams[chosen], settings)
        times = taken.starts, taken.ends, taken.sizes
        found, row = burst_totals.totals_by_number(numbers, taken.offsets, *times, edge=before_ns)
        if not tables:  # those of pairs are all flows
            burst = row
        else:
            sizes = sizes.copy()
            burst[taken.rows] = np.where(row < 0, -1, row + sum(table.height for table in tables))
            sizes[taken.rows] = taken.sizes
        windows = flows["window_start_ns"].to_numpy()[taken.rows[found.position]]
        tables.append(_burst_table(chosen[places[found.series]], found, windows))
    return Cut(sizes, burst, pl.concat(tables))


def _burst_table(streams: Integers, found: Totals, windows: Integers) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "stream": streams,
            "start_ns": found.first,
            "end_ns": found.last,
            "bytes": found.total,
            "window_start_ns": windows,
            "end_before_ns": found.last_before,
            "bytes_before": found.total_before,
            "number": found.number,
        }
    )


def _cut_whole_pairs(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> Numbered:
    """Return the transfers of all pairs as a whole, and the burst of each of those asked for."""
    del settings
    whole = transfers.of_pairs(flows)
    at = np.searchsorted(whole.pair, streams["pair"].to_numpy())
    threshold, places = np.full(whole.pair.size, np.nan), np.full(whole.pair.size, -1)
    threshold[at], places[at] = streams["threshold_ns"].to_numpy(), np.arange(at.size)
    return Numbered(whole, _gap_burst_numbers(whole, threshold), places)


def _cut_single_sizes(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> Numbered:
    """Return the transfers of streams of one size, and the burst of each."""
    sizes = transfers.of_sizes(flows, settings.same_size)
    first = np.searchsorted(sizes.pair, streams["pair"].to_numpy())
    taken = sizes.of(first + streams["size_class"].to_numpy())
    return Numbered(taken, _gap_burst_numbers(taken, streams["threshold_ns"].to_numpy()), np.arange(streams.height))


def _cut_at_turns(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> Numbered:
    """Return the transfers of pairs that turn, and the burst of each, counted in both directions together."""
    links, _, numbers = cut_at_turns(flows, streams["pair"].to_numpy(), settings)
    of_flow = np.empty(flows.height, np.int64)
    of_flow[links.rows] = numbers
    whole = transfers.of_pairs(flows)
    taken = whole.of(np.searchsorted(whole.pair, streams["pair"].to_numpy()))
    return Numbered(taken, of_flow[taken.rows], np.arange(streams.height))


def _cut_at_lags(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> Numbered:
    """Return the transfers of pairs that begin anew after the same bytes, and the burst of each."""
    taken, _, numbers = cut_at_lags(flows, streams["pair"].to_numpy(), settings)
    return Numbered(taken, numbers, np.arange(streams.height))


def _cut_with_group(together: Found, flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> Numbered:
    """Return the transfers of pairs that are cut together, and the step of each."""
    del settings
    whole, pairs = transfers.of_pairs(flows), streams["pair"].to_numpy()
    taken = whole.of(np.searchsorted(whole.pair, pairs))
    numbers = together.numbers(pairs, taken.starts, taken.ends, taken.offsets)
    return Numbered(taken, numbers, np.arange(streams.height))


def _cut_at_portions(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> Numbered:
    """Return the transfers of pairs that are quiet after the same bytes, and the burst of each."""
    taken, _, numbers = cut_at_portions(flows, streams, settings)
    return Numbered(taken, numbers, np.arange(streams.height))


def _gap_burst_numbers(taken: Transfers, threshold: Floats) -> Integers:
    return gap_segmentation.burst_numbers(taken.starts, taken.ends, taken.sizes, taken.offsets, threshold)
