"""Bulk traffic between GPUs since it last began anew, with the rhythms of its pairs: found once per partition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import RhythmSettings, Settings
from llmprism_tasks.stages.step_division.periodicity import stream_rhythms
from llmprism_tasks.stages.step_division.restarts import at_restarts
from llmprism_tasks.stages.traffic import nic_pairs


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
        if not self._has(flows):
            return stream_rhythms(flows, self.settings)
        return self.rhythms.filter(pl.col("pair").is_in(_pairs(flows)))

    def _has(self, flows: pl.DataFrame) -> bool:
        if flows.is_empty() or self.flows.is_empty():
            return False
        known, asked = _spans(self.flows), _spans(flows)
        at = np.minimum(np.searchsorted(known[0], asked[0]), known.shape[1] - 1)
        if not np.array_equal(known[:, at], asked):
            return False
        every = nic_pairs.pairs_of(self.flows, nic_pairs.PAIR)
        chosen = pl.col("pair").is_in(_pairs(flows))
        back = every.filter(~chosen).select(src_addr="dst_addr", dst_addr="src_addr")
        return every.filter(chosen).join(back, on=nic_pairs.PAIR, how="semi").is_empty()


@dataclass(frozen=True, eq=False)
class GpuTraffic:
    """Bulk flows between GPUs, and what `restarts.at_restarts` makes of them.

    Attributes
    ----------
    bulk : all, as `nic_pairs.in_order` returns
    former : of these, what pairs sent before they last began anew
    running : what they have sent since
    """

    bulk: pl.DataFrame
    former: pl.DataFrame
    running: PairRhythms

    @classmethod
    def of(cls, bulk: pl.DataFrame, window: Window, settings: Settings) -> GpuTraffic:
        """Part bulk flows between GPUs, look-back included, where pairs began anew."""
        bulk = nic_pairs.in_order(bulk)
        former, running = at_restarts(bulk, window, settings.traffic)
        return cls(bulk, former, PairRhythms(running, settings.rhythm))


def _pairs(flows: pl.DataFrame) -> pl.Series:
    return flows["pair"].gather(nic_pairs.starts_of_pairs(flows)[:-1]).implode()


def _spans(flows: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Return of each pair its number, the row of its first flow in the flows table, and the number of its flows."""
    offsets = nic_pairs.starts_of_pairs(flows)
    pair, row = (flows[name].to_numpy()[offsets[:-1]] for name in ("pair", "row"))
    return np.stack([pair, row, np.diff(offsets)]).astype(np.int64)
