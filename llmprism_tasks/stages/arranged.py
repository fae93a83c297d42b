"""Arranged: flows as the NICs that have steps see them, in numbers, for the methods that go through them in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.methods import endpoints
from llmprism_tasks.methods.series import Integers
from llmprism_tasks.methods.working import Flags, Steps, Transfers
from llmprism_tasks.stages import traffic
from llmprism_tasks.stages.placement import NIC
from llmprism_tasks.stages.traffic import PAIR

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Arranged:
    """Flows in the steps in which both of their ends have them.

    Attributes
    ----------
    steps : of NICs, as given, in the order of NICs and of time
    numbers : the same in numbers
    transfers : of one NIC after another, in order of time; what is in none of its steps is absent
    kinds : the kind of each number
    pairs : those that have flows: `job_id`, `kind`, `src_addr`, `dst_addr`
    """

    steps: pl.DataFrame
    numbers: Steps
    transfers: Transfers
    kinds: list[str]
    pairs: pl.DataFrame

    def number(self, kind: str) -> int:
        """Return the number of a kind; -1 if there is none of it."""
        return self.kinds.index(kind) if kind in self.kinds else -1

    def of(self, jobs: pl.Series) -> Flags:
        """Say which of the steps are those of some jobs."""
        return self.steps["job_id"].is_in(jobs.implode()).to_numpy()


def arranged(flows: pl.DataFrame, steps: pl.DataFrame) -> Arranged:
    """Arrange flows.

    Parameters
    ----------
    flows : bulk flows with `job_id` and `kind`
    steps : of NICs: `job_id`, `addr`, `start_ns`, `end_ns` and whatever else
    """
    flows = traffic.in_order(flows)
    pairs, offsets = traffic.pairs_of(flows, ["job_id", "kind", *PAIR]), traffic.starts_of_pairs(flows)
    nics = pl.concat([steps.select(NIC), *(pairs.select("job_id", addr=end) for end in PAIR)]).unique().sort(NIC)
    numbered = nics.with_columns(nic=pl.int_range(pl.len()))
    steps = steps.join(numbered, on=NIC).sort("nic", "end_ns")
    begins = steps.group_by("job_id").agg(since=pl.col("start_ns").min())
    for end in PAIR:
        pairs = pairs.join(numbered.rename({"addr": end, "nic": f"{end}_nic"}), on=["job_id", end])
    pairs = pairs.join(begins, on="job_id", how="left").sort("pair")
    kinds = pairs["kind"].unique().sort().to_list()
    numbers = Steps(*(steps[name].to_numpy() for name in ("start_ns", "end_ns", "nic")))
    transfers = _transfers(flows, pairs, offsets, kinds, numbers, nics.height)
    return Arranged(steps.drop("nic"), numbers, transfers, kinds, pairs.select("job_id", "kind", *PAIR))


def _transfers(
    flows: pl.DataFrame, pairs: pl.DataFrame, offsets: Integers, kinds: list[str], steps: Steps, nics: int
) -> Transfers:
    starts, ends, sizes = (flows[name].to_numpy() for name in traffic.TIMES)
    nic = [pairs[f"{end}_nic"].to_numpy() for end in PAIR]
    bounds = np.searchsorted(steps.endpoints, np.arange(nics + 1))
    since = pairs["since"].fill_null(NEVER).to_numpy()
    seen, seen_bounds = endpoints.in_order(starts, ends, offsets, *nic, since=since, wanted=np.diff(bounds) > 0)
    step = endpoints.in_steps(starts[seen >> 1], seen_bounds, bounds, steps.starts, steps.ends)
    seen, step = seen[step >= 0], step[step >= 0]
    transfer, received = seen >> 1, seen & 1
    pair = np.repeat(np.arange(pairs.height, dtype=np.int32), np.diff(offsets))[transfer]
    kind = pairs["kind"].cast(pl.Enum(kinds)).to_physical().cast(pl.Int8).to_numpy()
    peer = np.concatenate(nic[::-1]).astype(np.int32)[received * pairs.height + pair]
    return Transfers(starts[transfer], ends[transfer], sizes[transfer], kind[pair], received == 0, peer, step)
