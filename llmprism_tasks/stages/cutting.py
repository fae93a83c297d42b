"""Cutting: the flows of streams divided into bursts, at the gaps or the turns that their rhythms go by."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from llmprism_tasks.methods import bursts, totals
from llmprism_tasks.methods.series import Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages import transfers
from llmprism_tasks.stages.streams import PORTIONS, TURNS, WHOLE, in_portions, turning
from llmprism_tasks.stages.transfers import Transfers

STEPPING = ["pair", "size_class", "group", "threshold_ns", "group_period_ns", "clarity"]
"""What is needed of a stream to cut it into steps."""


class Cut(NamedTuple):
    """The transfers of streams in bursts.

    Attributes
    ----------
    rows : of the flows that these are, shape (transfers,)
    sizes : bytes of each, with what was sent early
    burst : of each, a row of `table`; -1 for none
    table : a row per burst: `stream` (the row of the streams table), `start_ns`, `end_ns`, `bytes`, `window_start_ns`
        (of its first flow)
    """

    rows: Integers
    sizes: Integers
    burst: Integers
    table: pl.DataFrame


def cut(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> Cut:
    """Cut the flows of streams into bursts.

    Parameters
    ----------
    flows : bulk flows as `traffic.in_order` returns; those of other streams are left out
    streams : STEPPING, a row each; those of turning pairs are cut at their turns, those of pairs that are quiet after
        the same bytes there, all others at gaps above their `threshold_ns`
    """
    size_class = streams["size_class"].to_numpy()
    parts = [_cut(flows, streams, np.flatnonzero(size_class == WHOLE), _of_pairs, settings)]
    others = ((size_class >= 0, _of_sizes), (size_class == TURNS, _of_turns), (size_class <= PORTIONS, _of_portions))
    for chosen, numbered in others:
        if chosen.any():
            parts.append(_cut(flows, streams, np.flatnonzero(chosen), numbered, settings))
    before = np.cumsum([0, *(part.table.height for part in parts)])
    burst = [np.where(part.burst < 0, -1, part.burst + rows) for part, rows in zip(parts, before, strict=False)]
    rows, sizes = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return Cut(rows, sizes, np.concatenate(burst), pl.concat([part.table for part in parts]))


Numbered = Callable[[pl.DataFrame, pl.DataFrame, RhythmSettings], tuple[Transfers, Integers]]


def _cut(
    flows: pl.DataFrame, streams: pl.DataFrame, chosen: Integers, numbered: Numbered, settings: RhythmSettings
) -> Cut:
    """Cut some of the streams, which all are of one kind, into the bursts that their transfers are numbered by."""
    taken, numbers = numbered(flows, streams[chosen], settings)
    found, burst = totals.of_numbers(numbers, taken.offsets, taken.starts, taken.ends, taken.sizes)
    table = pl.DataFrame(
        {
            "stream": chosen[found.series],
            "start_ns": found.first,
            "end_ns": found.last,
            "bytes": found.total,
            "window_start_ns": flows["window_start_ns"].to_numpy()[taken.rows[found.position]],
        }
    )
    return Cut(taken.rows, taken.sizes, burst, table)


def _of_pairs(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> tuple[Transfers, Integers]:
    """Return the transfers of pairs as a whole, and the burst of each, counted in each pair."""
    del settings
    whole = transfers.of_pairs(flows, WHOLE)
    taken = whole.of(np.searchsorted(whole.pair, streams["pair"].to_numpy()))
    return taken, _at_gaps(taken, streams)


def _of_sizes(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> tuple[Transfers, Integers]:
    """Return the transfers of streams of one size, and the burst of each, counted in each stream."""
    sizes = transfers.of_sizes(flows, settings.same_size)
    first = np.searchsorted(sizes.pair, streams["pair"].to_numpy())
    taken = sizes.of(first + streams["size_class"].to_numpy())
    return taken, _at_gaps(taken, streams)


def _of_turns(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> tuple[Transfers, Integers]:
    """Return the transfers of pairs that turn, and the burst of each, counted in both directions together."""
    links, _, numbers = turning(flows, streams["pair"].to_numpy(), settings)
    of_flow = np.full(flows.height, -1)
    of_flow[links.rows] = numbers
    whole = transfers.of_pairs(flows, TURNS)
    taken = whole.of(np.searchsorted(whole.pair, streams["pair"].to_numpy()))
    return taken, of_flow[taken.rows]


def _of_portions(flows: pl.DataFrame, streams: pl.DataFrame, settings: RhythmSettings) -> tuple[Transfers, Integers]:
    """Return the transfers of pairs that are quiet after the same bytes, and the burst of each."""
    taken, _, numbers = in_portions(flows, streams, settings)
    return taken, numbers


def _at_gaps(taken: Transfers, streams: pl.DataFrame) -> Integers:
    threshold = streams["threshold_ns"].to_numpy()
    return bursts.burst_numbers(taken.starts, taken.ends, taken.sizes, taken.offsets, threshold)
