"""Last exchange: how much speaks for the one host of a ring that took no part in what all others had begun.

A job may have several rings, such as one of each stage of a pipeline, and links that go both ways beside them. Where
each NIC sends to all others, as to the experts of all, that is an exchange of all of them, and counts as a ring.

Each member of a ring sends its own part first, whoever else is there. The one that has stopped does not. What is sent
to it may fill its buffers all the same, or its sender waits for it. So it sends nothing, or it is not seen at all,
while the others are seen once more. In lock step the hosts' last times follow each other in any order: that the first
is far from the others happens by chance with a probability that the spacings of uniform times give.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from llmprism_tasks.numerics.robust import LEAST_VOTERS
from llmprism_tasks.stages.step_division.periodicity import PAIR
from llmprism_tasks.stages.traffic.clusters import connected_nics
from llmprism_tasks.stages.traffic.opposite import opposite

CLOCK_ERROR_NS = 1_000_000
"""Largest difference between the clocks of two switches."""


@dataclass(frozen=True)
class Absence:
    """A host that took no part in the last exchange of a ring.

    Attributes
    ----------
    factor : by which that makes it likelier that the host stopped
    members : hosts of the ring
    seen_ns : when the last of these was seen in it
    """

    factor: float
    seen_ns: int
    members: frozenset[str]


def absences(pairs: pl.DataFrame, ended_ns: int, hosts: Mapping[str, str], lost: float) -> dict[str, Absence]:
    """Return the hosts that took no part in the last exchange of a ring that is not over, and how much that says.

    Rings of the same hosts, as rails have them, are one of hosts or one of NICs, and each is one by itself: where a
    single GPU of a host has stopped, the others of the host begin what it does not. The evidence is the mean of all
    three, and of several such sets of rings of a host, the one counts that says most.
    Absence is no better evidence than that records are not lost. A ring some of whose hops stay in a host is one of
    NICs: how a host's last one was there says nothing of its others.

    Parameters
    ----------
    pairs : `src_addr`, `dst_addr`, `last_ns` (end of the pair's last flow; NULL without one in this step), `owes`
        (whether it has more to send in this step)
    ended_ns : end of the last whole step
    lost : share of records that are lost
    """
    found: dict[str, Absence] = {}
    for rings in _rings(pairs, hosts):
        begun = [ring for _, ring in rings.group_by("cluster", maintain_order=True) if _is_under_way(ring)]
        readings = [(_factors(rings, "host", ended_ns, lost), 1), (_factors(rings, "addr", ended_ns, lost), 1)]
        readings += [(_factors(ring, "host", ended_ns, lost), len(begun)) for ring in begun]
        factors: dict[str, float] = {}
        for reading, alike in readings:
            for host, factor in reading.items():
                factors[host] = factors.get(host, 0) + factor / alike
        members, seen_ns = frozenset(rings["src_host"]), int(rings["last_ns"].max())  # type: ignore[arg-type]
        for host, factor in factors.items():
            mean = factor / 3
            if host not in found or mean > found[host].factor:
                found[host] = Absence(mean, seen_ns, members)
    return found


def _factors(ring: pl.DataFrame, member: str, ended_ns: int, lost: float) -> dict[str, float]:
    """Return the evidence against the hosts that were the first to be seen last, as senders and at all: the mean.

    Parameters
    ----------
    member : what takes part in an exchange: a `host` or an `addr`
    """
    factors: dict[str, float] = {}
    for ends in (["src"], ["src", "dst"]):
        seen = pl.concat([ring.select("last_ns", host=f"{end}_host", member=f"{end}_{member}") for end in ends])
        each = seen.group_by("host", "member").agg(pl.len(), pl.col("last_ns").max().fill_null(ended_ns))
        last = each.sort("last_ns", "host")
        first, at = last["host"][0], last["last_ns"]
        spread, whole = (max(int(at[-1] - since), CLOCK_ERROR_NS) for since in (at[1], at[0]))
        by_chance = (spread / whole) ** (last.height - 2)
        factor = min(factor_of_chance(by_chance), lost ** -float(last["len"][0]))
        factors[first] = factors.get(first, 0) + factor / 2
    return factors


def _is_under_way(ring: pl.DataFrame) -> bool:
    """Return whether some hops of a ring have begun an exchange, and some owe the rest of it."""
    return bool(ring["owes"].any() and ring["last_ns"].count())


def _rings(pairs: pl.DataFrame, hosts: Mapping[str, str]) -> Iterator[pl.DataFrame]:
    """Yield the pairs of the rings of each set of hosts that have begun an exchange, and owe the rest of it; with
    `src_host`, `dst_host`."""
    one_way = pairs.join(opposite(pairs), on=PAIR, how="anti")
    both_ways = pairs.join(one_way, on=PAIR, how="anti")
    sent, heard = (pl.col(end).unique().sort() for end in PAIR)
    nics = pl.col("src_addr").n_unique()
    # Three NICs that all send to each other may be a pipeline whose first and last stage share the embedding.
    with_all = (pl.len() == nics * (nics - 1)) & (nics > LEAST_VOTERS)
    for some, is_exchange in ((one_way, sent.implode() == heard.implode()), (both_ways, with_all)):
        if some.is_empty():
            continue
        placed = some.with_columns(
            pl.col(f"{end}_addr").replace_strict(hosts, default=None).alias(f"{end}_host") for end in ("src", "dst")
        ).join(connected_nics(some, some), left_on="src_addr", right_on="addr")
        clusters = placed.group_by("cluster").agg(
            exchange=is_exchange,
            inside=(pl.col("src_host") == pl.col("dst_host")).any() | pl.col("src_host").is_null().any(),
            places=pl.col("src_host").unique().sort().str.join(" "),
        )
        whole = placed.join(clusters.filter("exchange", ~pl.col("inside")), on="cluster", maintain_order="left")
        for _, ring in whole.group_by("places", maintain_order=True):
            if ring["src_host"].n_unique() >= LEAST_VOTERS and _is_under_way(ring):
                yield ring


def factor_of_chance(probability: float) -> float:
    """Return the evidence against chance in what chance would show that seldom.

    Its mean is 1 where chance is at work, so that it misleads no more often than it says (Shafer and others, 2011).
    """
    return 0.5 / math.sqrt(max(probability, 1e-300))
