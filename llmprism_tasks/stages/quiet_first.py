"""Who went quiet first of a job that fell silent in the middle of a step.

Steps before tell when each NIC is due to send on. Who hangs is due first, and the others run on until they wait for it;
when all stop at once, nobody is overdue when the last flow ends. Who has come to a collective sends a little into it
and stalls: who has not, is waited for. And a ring falls silent hop by hop, from who stopped first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.cut_off import CutOff
from llmprism_tasks.stages.streams import PAIR

PACE = 0.02
"""Ratio of a step by which a NIC must be overdue at least: so much do healthy steps vary."""
APART = 0.5
"""Ratio of the time since pairs went quiet that must lie between the last exchange and those before it."""
ALIKE = 0.1
"""Ratio by which what pairs carry in a step may differ where they do the same."""
SHORTEST_RING = 4
"""Members whose order says something: three fall silent in the order of their ring by chance every other time."""


@dataclass(frozen=True)
class Quiet:
    """Who went quiet first: NICs of one host, who else it may be (its host), and what tells."""

    addrs: tuple[str, ...]
    other: str | None
    reason: str


def late_pairs(where: CutOff, hosts: Mapping[str, str], settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the pairs that had been due for longer than noise explains when the last flow ended.

    Parameters
    ----------
    hosts : each member's
    """
    margin = pl.max_horizontal(settings.sigmas * pl.col("noise_ns"), pl.lit(PACE * where.period_ns))
    return _confirmed(where, hosts).filter(pl.col("late_ns") > margin)


def _confirmed(where: CutOff, hosts: Mapping[str, str]) -> pl.DataFrame:
    """Return what is due, each pair no later than most that carry as much from the same host to the same host: rails
    go in lock-step, and a lost record makes one of them look late."""
    ends = pl.DataFrame({"addr": list(hosts), "host": list(hosts.values())})
    placed = where.pairs.join(where.due.select(*PAIR, "late_ns"), on=PAIR, how="left")
    for end in PAIR:
        placed = placed.join(ends.rename({"addr": end, "host": f"{end}_host"}), on=end)
    alike = placed.join(placed, on=[f"{end}_host" for end in PAIR], suffix="_other").filter(
        (pl.col("usual_other") / pl.col("usual") - 1).abs() <= ALIKE
    )
    most = pl.col("late_ns_other").fill_null(float("-inf")).sort(descending=True).get((pl.len() - 1) // 2)
    agreed = alike.group_by(PAIR).agg(most=most)
    late = pl.min_horizontal(pl.col("late_ns").cast(pl.Float64), "most")
    return where.due.join(agreed, on=PAIR).with_columns(late_ns=late).drop("most").sort(PAIR)


def first_quiet(where: CutOff, hosts: Mapping[str, str], *, late: bool) -> Quiet | None:
    """Say who went quiet first; None if several may have.

    Parameters
    ----------
    late : whether anybody was overdue when the last flow ended
    """
    first = _front(where, hosts)
    ends = sorted({addr for end in ("src_addr", "dst_addr") for addr in first[end]} & set(hosts))
    places = sorted({hosts[addr] for addr in ends})
    if len(places) < 2:
        return None
    if late and len(places) == 2:
        waiting = _sender(first, hosts)
        other = next(place for place in places if place != waiting)
        return Quiet(tuple(a for a in ends if hosts[a] == waiting), other, "was due to send first")
    return _absent(where, first, ends, hosts) or _ring_order(where, ends, hosts)


def _front(where: CutOff, hosts: Mapping[str, str]) -> pl.DataFrame:
    """Return the pairs that had been due for about the longest, as far as their noise lets us tell."""
    due = _confirmed(where, hosts)
    worst = due.sort("late_ns", "noise_ns", "src_addr", "dst_addr", descending=[True, False, False, False]).head(1)
    room = pl.max_horizontal(3 * pl.max_horizontal("noise_ns", worst["noise_ns"].max()), PACE * where.period_ns)
    return due.filter(pl.col("late_ns") >= worst["late_ns"].max() - room)


def _sender(first: pl.DataFrame, hosts: Mapping[str, str]) -> str:
    """Return the host that had been due to send for longest."""
    addr = first.sort("late_ns", "src_addr", "dst_addr", descending=[True, False, False])["src_addr"][0]
    return hosts[addr]


def _absent(where: CutOff, first: pl.DataFrame, ends: list[str], hosts: Mapping[str, str]) -> Quiet | None:
    """Return the NICs of one host that took no part in what the others exchanged last."""
    seen = first.with_columns(pl.col("last_ns").fill_null(where.ended_ns)).sort("last_ns", "src_addr", "dst_addr")
    gaps = np.diff(seen["last_ns"].to_numpy())
    if not gaps.size or gaps.max() < APART * (where.silent_ns - seen["last_ns"][0]):
        return None
    last = seen[int(gaps.argmax()) + 1 :]
    absent = sorted(set(ends) - {*last["src_addr"], *last["dst_addr"]})
    if len({hosts[addr] for addr in absent}) != 1:
        return None
    return Quiet(tuple(absent), None, "took no part in what the others exchanged last")


def _ring_order(where: CutOff, ends: list[str], hosts: Mapping[str, str]) -> Quiet | None:
    """Return who stopped first in a ring that fell silent hop by hop, each after the one it receives from."""
    rings = where.due.filter(pl.col("src_addr").is_in(ends), pl.col("last_ns").is_not_null())
    if rings.height < SHORTEST_RING or rings.height != len(ends) or rings["src_addr"].n_unique() != len(ends):
        return None
    towards, last = dict(rings.select("src_addr", "dst_addr").rows()), dict(rings.select("src_addr", "last_ns").rows())
    least = rings.sort("sent", "src_addr")["src_addr"][0]
    order = [least]
    while (following := towards[order[-1]]) not in order and following in towards:
        order.append(following)
    if len(order) < len(ends) or any(last[b] <= last[a] for a, b in pairwise(order)):
        return None
    return Quiet((least,), None, "sent the least and stopped first, and the others one after the other along the ring")
