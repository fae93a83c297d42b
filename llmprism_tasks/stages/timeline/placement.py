"""Placement: each flow in the steps of both its ends.

Steps of NICs are numbered as `part`, and flows are placed in them as runs: there are millions of them, and those of a
pair follow each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from llmprism_tasks.numerics.intervals import Rows
from llmprism_tasks.stages.timeline.kernels import step_lookup
from llmprism_tasks.stages.timeline.kernels.step_lookup import Spans
from llmprism_tasks.stages.traffic import nic_pairs

NIC = ["job_id", "addr"]
STEP = [*NIC, "step_index"]
ENDS = nic_pairs.PAIR

PHASE_OF_KIND = {"pp": ("pp_send", "pp_recv"), "dp": ("dp_sync", "dp_sync")}
"""What a pair's kind is called in the timeline of its sender and of its receiver; `other` for all other kinds."""


@dataclass(frozen=True)
class Placed:
    """Flows in the steps of both their ends.

    Attributes
    ----------
    flows : what was placed, pair by pair
    parts : the steps of NICs, sorted by `STEP`: `part` (their number), `nic` (likewise), `job_id`, `addr`,
        `step_index`, `step_start_ns`, `step_end_ns`
    nics : of parts: `nic`, `job_id`, `addr`
    sides : the pairs, once for each end that has parts: `nic`, `job_id`, `addr`, `kind`, `sends`, `phase`, `peer`,
        `peer_nic` (NULL where it has no parts); sorted by `nic`, `phase`, `peer`
    rows : flows of these sides, as series, in these parts, as segments: those that start in the part, or before it but
        in no other
    """

    flows: pl.DataFrame
    parts: pl.DataFrame
    nics: pl.DataFrame
    sides: pl.DataFrame
    rows: Rows

    @cached_property
    def messages(self) -> pl.DataFrame:
        """Return each flow once for each of its ends, sorted by part and side: `part`, `flow` and `side` (row numbers),
        `start_ns` and `end_ns`, as far as they lie in the part."""
        rows = self.rows
        counts = rows.untils - rows.begins
        run = np.repeat(np.arange(counts.size), counts)
        flow = np.arange(run.size) + (rows.begins - (np.cumsum(counts) - counts))[run]
        part = np.repeat(np.arange(self.parts.height), np.diff(rows.offsets))[run]
        times = {
            "start_ns": np.maximum(rows.starts[flow], rows.opens[part]),
            "end_ns": np.minimum(rows.ends[flow], rows.closes[part]),
        }
        return pl.DataFrame({"part": part, "flow": flow, "side": rows.series[run]} | times)


def placed(flows: pl.DataFrame, steps: pl.DataFrame, kinds: pl.DataFrame | None = None) -> Placed:
    """Place flows in the steps of their ends; those outside all steps are left out.

    Parameters
    ----------
    flows : `src_addr`, `dst_addr`, `flow_start_ns`, `flow_end_ns`, `bytes`, `job_id`, and `kind` unless `kinds` tells.
    steps : of NICs: `job_id`, `addr`, `step_index`, `start_ns`, `end_ns`
    kinds : `src_addr`, `dst_addr`, `kind` of pairs; flows of others are left out
    """
    flows = nic_pairs.in_order(flows)
    parts, nics = _number_steps_and_nics(steps)
    sides = _sides(flows, nics, kinds)
    starts, ends = (flows[time].to_numpy() for time in ("flow_start_ns", "flow_end_ns"))
    opens, closes = (parts[f"step_{time}_ns"].to_numpy() for time in ("start", "end"))
    by_end = parts.select(pl.arg_sort_by("nic", "step_end_ns", "step_index").cast(pl.Int64)).to_series()
    offsets = np.searchsorted(parts["nic"].to_numpy(), np.arange(nics.height + 1))
    series = step_lookup.Series(*(sides[name].to_numpy() for name in ("begin", "until", "nic")))
    found = step_lookup.placed(starts, ends, series, Spans(opens, closes, by_end.to_numpy(), offsets))
    return Placed(flows, parts, nics, sides, Rows(*found, opens, closes, starts, ends))


def _number_steps_and_nics(steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Number the steps of NICs, and the NICs."""
    times = {"step_start_ns": pl.col("start_ns"), "step_end_ns": pl.col("end_ns")}
    parts = steps.select(*STEP, **times).sort(STEP)
    parts = parts.with_columns(part=pl.int_range(pl.len()), nic=pl.struct(NIC).rle_id().cast(pl.Int64))
    return parts, parts.select("nic", *NIC).unique("nic", maintain_order=True)


def _sides(flows: pl.DataFrame, nics: pl.DataFrame, kinds: pl.DataFrame | None) -> pl.DataFrame:
    """Return the two ends of each pair, with the rows of its flows (`begin`, `until`)."""
    offsets = nic_pairs.starts_of_pairs(flows)
    pairs = nic_pairs.pairs_of(flows, ["job_id", *ENDS, *(["kind"] if kinds is None else [])])
    pairs = pairs.with_columns(begin=pl.Series(offsets[:-1]), until=pl.Series(offsets[1:]))
    if kinds is not None:
        pairs = pairs.join(kinds.select(*ENDS, "kind"), on=ENDS)
    ends = [
        pairs.rename({own: "addr", peer: "peer"}).with_columns(
            sends=pl.lit(i == 0),
            phase=pl.col("kind").replace_strict(
                {kind: names[i] for kind, names in PHASE_OF_KIND.items()}, default="other"
            ),
        )
        for i, (own, peer) in enumerate((ENDS, ENDS[::-1]))
    ]
    return (
        pl.concat(ends, how="diagonal")
        .join(nics, on=NIC)
        .join(nics.select("job_id", peer="addr", peer_nic="nic"), on=["job_id", "peer"], how="left")
        .sort("nic", "phase", "peer", "sends")
    )
