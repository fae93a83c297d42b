"""Last exchange: the one host that sent nothing into what all others had begun to send when a ring fell silent.

Each member of a ring sends its own part first, whoever else is there. The one that has stopped does not, and what is
sent to it fills its buffers all the same. So the others are seen once more, and wait.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from llmprism_tasks.stages.step_division.periodicity import PAIR
from llmprism_tasks.stages.traffic.opposite import opposite

RAILS = 2
"""NICs of a host that must be missing together: of a single one the collector may have lost the record."""

LEAST_OTHERS = 2
"""Other hosts that must have begun: of two hosts, either may be the one that stopped."""


def missing_sender(pairs: pl.DataFrame, ended_ns: int, silent_ns: int, hosts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the NICs of the host that alone is missing from the last exchange; empty if there is none.

    It sent last before all others did, with a longer time between than these took, and a smaller share of its step.

    Parameters
    ----------
    pairs, ended_ns, silent_ns : as in `StepProgress`
    """
    if set(pairs["src_addr"]) != set(pairs["dst_addr"]) or pairs.join(opposite(pairs), on=PAIR, how="semi").height:
        return ()
    sent = (
        pairs.with_columns(host=pl.col("src_addr").replace_strict(hosts, default=None))
        .group_by("host")
        .agg(
            pl.col("src_addr").unique().sort(),
            last_ns=pl.col("last_ns").max().fill_null(ended_ns),
            part=pl.col("sent").sum() / pl.col("usual").sum(),
        )
        .sort("last_ns", "host")
    )
    if sent.height <= LEAST_OTHERS or sent["host"].has_nulls():
        return ()
    first, others = sent[:1], sent[1:]
    begun_ns = int(others["last_ns"].min())  # type: ignore[arg-type]
    apart = begun_ns - first["last_ns"].item() > silent_ns - begun_ns
    lacks = first["part"].item() < others["part"].min()
    addrs = tuple(first["src_addr"].item())
    return addrs if apart and lacks and len(addrs) >= RAILS else ()
