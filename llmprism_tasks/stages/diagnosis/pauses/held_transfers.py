"""Held transfers: the NICs whose transfers alone took as long as a slow step lost.

A link that is all but gone for a moment holds the messages that are under way over it. In a pipeline these are a few of
a step's many messages, so the pace of a pair in the step is the usual one, and the others wait for them. Where each
message that took longer than ever goes through one NIC, its link held them. Of a ring all hops are held at once, so it
counts as one transfer, and any of its members may have lost its link. Where a hop of it is not held, the ring waited
for the member that sends there.
"""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.intervals import end_of_earlier
from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.stages.diagnosis.network.devices import NAMED_ALONE
from llmprism_tasks.stages.traffic import nic_pairs


def held_nics(flows: pl.DataFrame, lost_ns: float) -> list[str]:
    """Return the NICs that hold what was held, sorted: one, both ends of the only pair, or the members of the only
    ring; none if there are others.

    Parameters
    ----------
    flows : of one job, with `job_id`, `src_addr`, `dst_addr`, `flow_start_ns`, `flow_end_ns`, `bytes`, `unit` (as
        `path_pace.with_units` adds it), `slow` (whether it began or ended in a slow step) and `quick`
        (whether it began in a usual one and is not `slow`)
    lost_ns : by how much slow steps are longer than usual; transfers must be held for most of it
    """
    hop = ["unit", *nic_pairs.PAIR]
    timed = flows.with_columns(lasted_ns=pl.col("flow_end_ns") - pl.col("flow_start_ns"))
    pace = (pl.col("lasted_ns") / pl.col("bytes")).median()
    quick = timed.filter("quick").group_by(hop).agg(pace=pace, longest_ns=pl.col("lasted_ns").max())
    held = (
        timed.filter("slow")
        .join(quick, on=hop)
        .filter(pl.col("lasted_ns") > pl.col("longest_ns"))
        .with_columns(held_ns=pl.col("lasted_ns") - pl.col("bytes") * pl.col("pace"))
    )
    units = (
        held.group_by(hop)
        .agg(pl.col("held_ns").sum())
        .group_by("unit")
        .agg(pl.col("held_ns").max(), held_hops=pl.len())
        .join(quick.group_by("unit").agg(hops=pl.len()), on="unit")
    )
    ends = pl.concat([nic_pairs.named(held).with_columns(addr=pl.col(end)) for end in nic_pairs.PAIR])
    before = end_of_earlier("flow_end_ns").over("addr")
    busy = (pl.col("flow_end_ns") - pl.max_horizontal("flow_start_ns", before)).clip(0)
    nics = (
        ends.sort("addr", "flow_start_ns", "flow_end_ns")
        .with_columns(busy_ns=busy)
        .group_by("addr")
        .agg(pl.col("busy_ns").sum())
    )
    through = (
        ends.select("addr", "unit")
        .unique()
        .join(units.filter(pl.col("held_hops") == pl.col("hops")), on="unit")
        .group_by("addr")
        .agg(pl.col("held_ns").sum())
    )
    most = pl.col("held_ns") >= NAMED_ALONE * pl.lit(units["held_ns"].sum())
    named = nics.join(through, on="addr").filter(most, pl.col("busy_ns") >= MAJORITY * lost_ns)
    return named["addr"].sort().to_list()
