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
from llmprism_tasks.stages.liveness.step_progress import CutOff
from llmprism_tasks.stages.step_division.periodicity import PAIR

PACE = 0.02
"""Ratio of a step by which a NIC must be overdue at least: so much do healthy steps vary."""
APART = 0.5
"""Ratio of the time since pairs went quiet that must lie between the last exchange and those before it."""
ALIKE = 0.1
"""Ratio by which what pairs carry in a step may differ where they do the same."""
CLOCKS_NS = 1_000_000
"""By how much the clocks of two switches differ at most."""
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


def first_quiet(where: CutOff, hosts: Mapping[str, str], stages: Mapping[str, int], *, late: bool) -> Quiet | None:
    """Say who went quiet first; None if several may have.

    Parameters
    ----------
    stages : the pipeline stage of each member, as far as known
    late : whether anybody was overdue when the last flow ended
    """
    first = _front(where, hosts)
    ends = sorted({addr for end in ("src_addr", "dst_addr") for addr in first[end]} & set(hosts))
    if len({hosts[addr] for addr in ends}) < 2:
        return None
    alone = _waiting_for_none(first, hosts)
    if late and len({hosts[addr] for end in PAIR for addr in alone[end]}) == 2:
        return _either(where, alone, hosts, stages)
    return _absent(where, first, ends, hosts, stages) or _ring_order(where, ends, hosts)


def _front(where: CutOff, hosts: Mapping[str, str]) -> pl.DataFrame:
    """Return the pairs that had been due for about the longest, as far as their noise lets us tell."""
    due = _confirmed(where, hosts)
    worst = due.sort("late_ns", "noise_ns", "src_addr", "dst_addr", descending=[True, False, False, False]).head(1)
    room = pl.max_horizontal(3 * pl.max_horizontal("noise_ns", worst["noise_ns"].max()), PACE * where.period_ns)
    return due.filter(pl.col("late_ns") >= worst["late_ns"].max() - room)


def _waiting_for_none(first: pl.DataFrame, hosts: Mapping[str, str]) -> pl.DataFrame:
    """Leave out pairs of which a host was due to exchange something else before, for which it waits."""
    pairs = first.with_row_index("pair")
    at = pl.concat(
        pairs.select("pair", "late_ns", "noise_ns", host=pl.col(end).replace_strict(hosts, default=None))
        for end in PAIR
    )
    margin = pl.max_horizontal(3 * pl.col("noise_ns").max().over("host"), CLOCKS_NS)
    waits = at.filter(pl.col("late_ns") < pl.col("late_ns").max().over("host") - margin)
    return pairs.join(waits, on="pair", how="anti").drop("pair").sort(PAIR)


def _either(where: CutOff, first: pl.DataFrame, hosts: Mapping[str, str], stages: Mapping[str, int]) -> Quiet:
    """Return which of two hosts went quiet first: who exchanged nothing with anybody for longer.

    Where that was with each other, a message between two stages waited for the one before: its input comes from where
    nobody sees it, and the later stage has but to wait for it. Else it is who was due to send for longest, or has not
    begun to while the other has; of two that are equally likely the first by name, lest another window names the other.
    """
    ends = sorted({*first["src_addr"], *first["dst_addr"]})
    one, two = sorted({hosts[addr] for addr in ends})
    seen = _last_seen(where, ends, hosts)
    order = {place: min(stages.get(addr, 0) for addr in ends if hosts[addr] == place) for place in (one, two)}
    late, sent = dict.fromkeys((one, two), float("-inf")), dict.fromkeys((one, two), 0)
    for src, late_ns, bytes_ in first.select("src_addr", "late_ns", "sent").iter_rows():
        late[hosts[src]] = max(late[hosts[src]], late_ns)
        sent[hosts[src]] += bytes_
    margin_ns = max(3 * float(first["noise_ns"].max()), CLOCKS_NS)  # type: ignore[arg-type]
    if abs(seen[one] - seen[two]) > margin_ns:
        waiting, why = min(one, two, key=seen.__getitem__), "was seen last before {}, with which it was due to exchange"
    elif order[one] != order[two]:
        waiting, why = min(one, two, key=order.__getitem__), "was due to send to {} first"
    elif abs(late[one] - late[two]) > margin_ns:
        waiting, why = max(one, two, key=late.__getitem__), "was due to send to {} first"
    elif (sent[one] == 0) != (sent[two] == 0):
        waiting, why = min(one, two, key=sent.__getitem__), "has sent nothing to {}, which has begun to send"
    else:
        waiting, why = one, "was due to exchange with {}, at the same time as that with it"
    other = two if waiting == one else one
    return Quiet(tuple(addr for addr in ends if hosts[addr] == waiting), other, why.format(other))


def _last_seen(where: CutOff, ends: list[str], hosts: Mapping[str, str]) -> dict[str, int]:
    """Return when hosts of some NICs last exchanged anything with anybody over these."""
    seen = {hosts[addr]: where.ended_ns for addr in ends}
    for src, dst, last_ns in where.pairs.select(*PAIR, "last_ns").drop_nulls("last_ns").iter_rows():
        for addr in {src, dst} & set(ends):
            seen[hosts[addr]] = max(seen[hosts[addr]], last_ns)
    return seen


def _absent(
    where: CutOff, first: pl.DataFrame, ends: list[str], hosts: Mapping[str, str], stages: Mapping[str, int]
) -> Quiet | None:
    """Return who took no part in what the others exchanged last.

    That came after the longest silence among what was exchanged before. Where some have sent nothing in this step, and
    that silence is theirs, it may be the one after the next longest.
    """
    seen = first.with_columns(pl.col("last_ns").fill_null(where.ended_ns)).sort("last_ns", "src_addr", "dst_addr")
    for _ in range(2 if first["last_ns"].has_nulls() else 1):
        gaps = np.diff(seen["last_ns"].to_numpy())
        if not gaps.size or gaps.max() <= APART * (where.silent_ns - seen["last_ns"][0]):
            return None
        seen = seen[int(gaps.argmax()) + 1 :]
        absent = sorted(set(ends) - {*seen["src_addr"], *seen["dst_addr"]})
        if quiet := _missed(where, first, absent, hosts, stages):
            return quiet
    return None


def _missed(
    where: CutOff, first: pl.DataFrame, absent: list[str], hosts: Mapping[str, str], stages: Mapping[str, int]
) -> Quiet | None:
    """Return those of the absent NICs that are of the host at which all idle hops meet, or of one of two such."""
    idle = first.filter(pl.col("src_addr").is_in(absent) | pl.col("dst_addr").is_in(absent))
    between = ({hosts[src], hosts[dst]} for src, dst in idle.select(PAIR).iter_rows())
    places = {hosts[addr] for addr in absent}.intersection(*between)
    if len(places) == 2:
        return _either(where, idle, hosts, stages)
    if len(places) != 1:
        return None
    addrs = tuple(addr for addr in absent if hosts[addr] in places)
    return Quiet(addrs, None, "took no part in what the others exchanged last")


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
