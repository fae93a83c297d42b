"""NIC arrays: flows and steps as arrays with numbered NICs, for the kernels that measure own work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import Flags
from llmprism_tasks.stages.diagnosis.own_work.kernels.step_spans import Steps, Transfers
from llmprism_tasks.stages.liveness.foreign import CHATTER_BYTES
from llmprism_tasks.stages.timeline.placement import NIC
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.nic_pairs import PAIR


@dataclass(frozen=True)
class NicArrays:
    """Flows, and the steps of both their ends, as arrays.

    Attributes
    ----------
    steps : steps of NICs, as given, sorted by NIC and time
    numbers : the same steps as arrays
    transfers : the flows between the NICs as arrays
    kinds : the kind of traffic for each number in `transfers.kinds`
    pairs : the pairs of `transfers`: `job_id`, `kind`, `src_addr`, `dst_addr`
    jobs : `job_id` of each NIC
    """

    steps: pl.DataFrame
    numbers: Steps
    transfers: Transfers
    kinds: list[str]
    pairs: pl.DataFrame
    jobs: pl.Series

    def number(self, kind: str) -> int:
        """Return the number of a kind; -1 if no pair is of that kind."""
        return self.kinds.index(kind) if kind in self.kinds else -1

    def of(self, jobs: pl.Series) -> Flags:
        """Return which NICs belong to some jobs; shape (NICs,)."""
        return self.jobs.is_in(jobs.implode()).to_numpy()


def without_logs(flows: pl.DataFrame) -> pl.DataFrame:
    """Leave out what shows nobody's work: what NICs send each other beside the messages of a pipeline, such as logs and
    heartbeats: who receives one has no micro-batch to work on yet, and who sends one has not finished any.

    Parameters
    ----------
    flows : with `kind` and `bytes`
    """
    return flows.filter((pl.col("kind") != "pp") | (pl.col("bytes") >= CHATTER_BYTES))


def to_nic_arrays(flows: pl.DataFrame, steps: pl.DataFrame) -> NicArrays:
    """Convert flows and steps to arrays.

    Parameters
    ----------
    flows : bulk flows with `job_id` and `kind`
    steps : steps of NICs: `job_id`, `addr`, `start_ns`, `end_ns`, and any other columns
    """
    flows = nic_pairs.in_order(flows)
    pairs = nic_pairs.pairs_of(flows, ["job_id", "kind", *PAIR])
    nics = pl.concat([steps.select(NIC), *(pairs.select("job_id", addr=end) for end in PAIR)]).unique().sort(NIC)
    numbered = nics.with_columns(nic=pl.int_range(pl.len()))
    steps = steps.join(numbered, on=NIC).sort("nic", "end_ns")
    for side in PAIR:
        pairs = pairs.join(numbered.rename({"addr": side, "nic": f"{side}_nic"}), on=["job_id", side])
    pairs = pairs.sort("pair")
    kinds = pairs["kind"].unique().sort().to_list()
    starts, ends, sizes = (flows[name].to_numpy() for name in nic_pairs.TIMES)
    senders, receivers = (pairs[f"{end}_nic"].to_numpy() for end in PAIR)
    number = pairs["kind"].cast(pl.Enum(kinds)).to_physical().cast(pl.Int8).to_numpy()
    transfers = Transfers(starts, ends, sizes, nic_pairs.starts_of_pairs(flows), senders, receivers, number)
    begin, end, nic = (steps[name].to_numpy() for name in ("start_ns", "end_ns", "nic"))
    numbers = Steps(begin, end, nic, np.searchsorted(nic, np.arange(nics.height + 1)))
    known = pairs.select("job_id", "kind", *PAIR)
    return NicArrays(steps.drop("nic"), numbers, transfers, kinds, known, nics["job_id"])
