"""Rhythm rows: what several modules ask of the table of rhythms, which has a row for each stream of a group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from llmprism_tasks.numerics.robust import Flags, Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.periodicity import PAIR, WHOLE_PAIR

CUT_OFF_BURSTS = 1
"""Bursts that a stream may show less than another because the data begin, or end, between the two."""

SILENT_PERIODS = 2.0
"""Periods of silence after which a stream is not waiting for its next burst any more."""


def column_arrays(rhythms: pl.DataFrame, *names: str) -> Iterator[npt.NDArray[Any]]:
    """Return columns as arrays, what is NULL as NaN."""
    return (rhythms[name].to_numpy() for name in names)


def largest_of_pair(values: Floats, chosen: Flags, pair: Integers) -> Floats:
    """Return for each stream the largest value of the chosen ones of its pair; NaN where there is none."""
    largest = np.full(int(pair.max(initial=0)) + 1, np.nan)
    np.fmax.at(largest, pair[chosen], values[chosen])
    return largest[pair]


def same_period(left: str, right: str, settings: RhythmSettings) -> pl.Expr:
    """Select rows whose two columns of periods agree, within the share that `rhythm.same_period` allows."""
    same: pl.Expr = (pl.col(left) / pl.col(right)).log().abs() <= float(np.log1p(settings.same_period))
    return same


def log_slot(column: str, settings: RhythmSettings) -> pl.Expr:
    """Number spans of time such that those that are the same have one number, or the next."""
    slot: pl.Expr = (pl.col(column).log() / float(np.log1p(settings.same_period))).floor().cast(pl.Int64)
    return slot


def repeat_in_neighbour_slots(slotted: pl.DataFrame) -> pl.DataFrame:
    """Return each row for its `slot` and for those beside it."""
    return pl.concat([slotted.with_columns(pl.col("slot") + shift) for shift in (-1, 0, 1)])


def nic_counts(rhythms: pl.DataFrame) -> pl.DataFrame:
    """Return how many NICs each group has: `group`, `endpoints`."""
    pairs = rhythms.filter(pl.col("size_class") == WHOLE_PAIR)
    return ends_of(pairs).unique().group_by("group").agg(endpoints=pl.len())


def ends_of(pairs: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Return a row for each of a pair's two NICs, with the NIC in `addr`."""
    return pl.concat([pairs.select("group", *columns, addr=pl.col(end)) for end in PAIR])
