"""Last exchange: how much speaks for the one host of a ring that took no part in what all others had begun.

Each member of a ring sends its own part first, whoever else is there. The one that has stopped does not. What is sent
to it may fill its buffers all the same, or its sender waits for it. So it sends nothing, or it is not seen at all,
while the others are seen once more. In lock step the hosts' last times follow each other in any order: that the first
is far from the others happens by chance with a probability that the spacings of uniform times give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl

from llmprism_tasks.stages.step_division.periodicity import PAIR
from llmprism_tasks.stages.traffic.opposite import opposite

CLOCK_ERROR_NS = 1_000_000
"""Largest difference between the clocks of two switches."""

LEAST_HOSTS = 3
"""Hosts of a ring whose order can tell: of two, one is always first."""


def absences(pairs: pl.DataFrame, ended_ns: int, hosts: Mapping[str, str], lost: float) -> dict[str, float]:
    """Return the factor by which absence from a last exchange makes it likelier that a host stopped; empty if hosts are
    no ring.

    Absence is no better evidence than that records are not lost. A ring some of whose hops stay in a host is one of
    NICs: how a host's last one was there says nothing of its others.

    Parameters
    ----------
    pairs : `src_addr`, `dst_addr`, `last_ns` (end of the pair's last flow; NULL without one in this step)
    ended_ns : end of the last whole step
    lost : share of records that are lost
    """
    ends = [pairs.select("last_ns", host=pl.col(end).replace_strict(hosts, default=None)) for end in PAIR]
    if (
        ends[0]["host"].drop_nulls().n_unique() < LEAST_HOSTS
        or (ends[0]["host"] == ends[1]["host"]).any()
        or set(pairs["src_addr"]) != set(pairs["dst_addr"])
        or pairs.join(opposite(pairs), on=PAIR, how="semi").height
    ):
        return {}
    factors: dict[str, float] = {}
    for seen in (ends[0], pl.concat(ends)):
        each = seen.drop_nulls("host").group_by("host").agg(pl.len(), pl.col("last_ns").max().fill_null(ended_ns))
        last = each.sort("last_ns", "host")
        first, at = last["host"][0], last["last_ns"]
        spread, whole = (max(int(at[-1] - since), CLOCK_ERROR_NS) for since in (at[1], at[0]))
        by_chance = (spread / whole) ** (last.height - 2)
        factor = min(factor_of_chance(by_chance), lost ** -float(last["len"][0]))
        factors[first] = factors.get(first, 0) + factor / 2
    return factors


def factor_of_chance(probability: float) -> float:
    """Return the evidence against chance in what chance would show that seldom.

    Its mean is 1 where chance is at work, so that it misleads no more often than it says (Shafer and others, 2011).
    """
    return 0.5 / math.sqrt(max(probability, 1e-300))
