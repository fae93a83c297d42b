"""First stopped: which host or NIC stopped first in a job that fell silent in the middle of a step.

Earlier steps show when each NIC is due to send its next byte. The NIC that hangs is overdue first; the others go on
until they wait for it. If all stop at the same moment, no NIC is overdue when the last flow ends. A member that has
reached a collective sends a little into it and then stalls; the members that have not reached it are the ones waited
for. A ring falls silent hop by hop, beginning with the member that stopped first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.liveness.foreign import CHATTER_BYTES
from llmprism_tasks.stages.liveness.last_exchange import missing_sender
from llmprism_tasks.stages.liveness.step_progress import StepProgress
from llmprism_tasks.stages.step_division.periodicity import PAIR
from llmprism_tasks.stages.traffic.opposite import opposite

LEAST_OVERDUE = 0.02
"""Ratio of a step by which a NIC must at least be overdue; healthy steps vary by this much."""
LAST_EXCHANGE_APART = 0.5
"""Ratio of the time since pairs fell silent that must lie between the last exchange and the exchanges before it."""
SAME_WORK_RATIO = 0.1
"""Ratio by which two pairs' bytes in a step may differ if the pairs do the same work."""
CLOCK_ERROR_NS = 1_000_000
"""Largest difference between the clocks of two switches."""
TWO_BETWEEN = 3
"""Hops in a row that have two members between them: the one that stopped, and the next, which had sent all it had."""
SHORTEST_RING = 4
"""Smallest ring whose order is evidence: three members fall silent in the order of their ring by chance, every other
time."""

SMALLEST_RING = 3
"""Smallest ring whose hops differ by a block: of two members each sends as much as it receives."""

EVEN, LIKELIER = 0.5, 0.75
"""Chance of the first of two hosts that nothing tells apart, and of one for whom the data speak: what they show is
often, but not always, the cause of the silence and not its effect."""


@dataclass(frozen=True)
class FirstStopped:
    """The NICs of one host that stopped first, another host that may have (`other`), and the evidence (`reason`).

    `chance` is the probability that it was the host, and not the other one. A `guess` is worth a look, but no message
    that names a host: chance alone would show as much of a job whose members all stopped at once.
    """

    addrs: tuple[str, ...]
    other: str | None
    reason: str
    chance: float = 1.0
    guess: bool = False


def late_pairs(where: StepProgress, hosts: Mapping[str, str], settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the pairs that were overdue by more than noise explains when the last flow ended.

    Parameters
    ----------
    hosts : host of each member
    """
    margin = pl.max_horizontal(settings.sigmas * pl.col("noise_ns"), pl.lit(LEAST_OVERDUE * where.period_ns))
    return _confirmed(where, hosts).filter(pl.col("late_ns") > margin)


def _confirmed(where: StepProgress, hosts: Mapping[str, str]) -> pl.DataFrame:
    """Return the pairs that are due, each no later than most pairs with the same traffic between the same two hosts.

    Rails of two hosts work in lock step; a lost record makes one of them look late.
    """
    ends = pl.DataFrame({"addr": list(hosts), "host": list(hosts.values())})
    placed = where.pairs.join(where.due.select(*PAIR, "late_ns"), on=PAIR, how="left")
    for end in PAIR:
        placed = placed.join(ends.rename({"addr": end, "host": f"{end}_host"}), on=end)
    alike = placed.join(placed, on=[f"{end}_host" for end in PAIR], suffix="_other").filter(
        (pl.col("usual_other") / pl.col("usual") - 1).abs() <= SAME_WORK_RATIO
    )
    most = pl.col("late_ns_other").fill_null(float("-inf")).sort(descending=True).get((pl.len() - 1) // 2)
    agreed = alike.group_by(PAIR).agg(most=most)
    late = pl.min_horizontal(pl.col("late_ns").cast(pl.Float64), "most")
    return where.due.join(agreed, on=PAIR).with_columns(late_ns=late).drop("most").sort(PAIR)


def find_first_stopped(
    where: StepProgress, hosts: Mapping[str, str], stages: Mapping[str, int], *, late: bool
) -> FirstStopped | None:
    """Return the NICs that stopped first; None if several hosts may have.

    Parameters
    ----------
    stages : pipeline stage of each member, as far as known
    late : whether any pair was overdue when the last flow ended
    """
    first = _front(where, hosts)
    ends = sorted({addr for end in ("src_addr", "dst_addr") for addr in first[end]} & set(hosts))
    if len({hosts[addr] for addr in ends}) < 2:
        return None
    alone = _waiting_for_none(first, hosts)
    if late and len({hosts[addr] for end in PAIR for addr in alone[end]}) == 2:
        return _either(where, alone, hosts, stages)
    return (
        (_owing(where, first, hosts) if late else None)
        or _missing(where, hosts)
        or _amid(first, hosts)
        or _absent(where, first, ends, hosts, stages)
        or _sends_nothing(first, hosts)
        or _between_idle(where, first, hosts)
        or _behind(where, hosts)
        or _ring_order(where, ends, hosts)
        or (_quiet_before(where, hosts) if late else None)
    )


def confirm_by_return(
    first: FirstStopped | None, resumed: Sequence[tuple[str, str]], hosts: Mapping[str, str]
) -> FirstStopped | None:
    """Return who stopped first, by who went on first, where nothing else tells or two hosts are left.

    All others wait in the silence, and can only go on after that one: what it sends and what it is sent come first.

    Parameters
    ----------
    resumed : who sent the first two flows when the job went on, and to whom
    """
    if len(resumed) < 2 or len({hosts.get(addr) for pair in resumed for addr in pair} - {None}) < 2:
        return first
    (mover, other), (_, then) = resumed
    place = hosts[mover]
    if then == mover and first is None and hosts[other] != place:
        return FirstStopped((mover,), hosts[other], "was the first to go on", LIKELIER)
    if then == mover and first is not None and first.other == place:
        rival = hosts[first.addrs[0]]
        return FirstStopped((mover,), rival, f"was the first to go on, though host {rival} {first.reason}", LIKELIER)
    return first


def _front(where: StepProgress, hosts: Mapping[str, str]) -> pl.DataFrame:
    """Return the pairs that had been due for about the longest, within their noise."""
    due = _confirmed(where, hosts)
    worst = due.sort("late_ns", "noise_ns", "src_addr", "dst_addr", descending=[True, False, False, False]).head(1)
    room = pl.max_horizontal(
        3 * pl.max_horizontal("noise_ns", worst["noise_ns"].max()), LEAST_OVERDUE * where.period_ns
    )
    return due.filter(pl.col("late_ns") >= worst["late_ns"].max() - room)


def _waiting_for_none(first: pl.DataFrame, hosts: Mapping[str, str]) -> pl.DataFrame:
    """Drop the pairs one of whose hosts was due to exchange something else earlier, and waits for that."""
    pairs = first.with_row_index("pair")
    at = pl.concat(
        pairs.select("pair", "late_ns", "noise_ns", host=pl.col(end).replace_strict(hosts, default=None))
        for end in PAIR
    )
    margin = pl.max_horizontal(3 * pl.col("noise_ns").max().over("host"), CLOCK_ERROR_NS)
    waits = at.filter(pl.col("late_ns") < pl.col("late_ns").max().over("host") - margin)
    return pairs.join(waits, on="pair", how="anti").drop("pair").sort(PAIR)


def _either(
    where: StepProgress, first: pl.DataFrame, hosts: Mapping[str, str], stages: Mapping[str, int]
) -> FirstStopped:
    """Return which of two hosts stopped first: the one that has not exchanged data with any host for longer.

    If the last exchange of both was with each other, it is the host that had received all that it needed and has not
    sent. If each was due to send, a message between two pipeline stages waited for the earlier stage: that one's input
    comes from outside the flows, while the later stage only waits. Otherwise it is the host that was due to send for
    longest, or the host that has not begun to send while the other has. If both are equally likely, it is the first by
    name, so that another window names the same host.
    """
    ends = sorted({*first["src_addr"], *first["dst_addr"]})
    one, two = sorted({hosts[addr] for addr in ends})
    seen = _last_seen(where, ends, hosts)
    order = {place: min(stages.get(addr, 0) for addr in ends if hosts[addr] == place) for place in (one, two)}
    late, sent = dict.fromkeys((one, two), float("-inf")), dict.fromkeys((one, two), 0)
    for src, late_ns, bytes_ in first.select("src_addr", "late_ns", "sent").iter_rows():
        late[hosts[src]] = max(late[hosts[src]], late_ns)
        sent[hosts[src]] += bytes_
    margin_ns = max(3 * float(first["noise_ns"].max()), CLOCK_ERROR_NS)  # type: ignore[arg-type]
    ready = {hosts[src] for src in first["src_addr"]} - {hosts[dst] for dst in where.due["dst_addr"]}
    chance = LIKELIER
    if abs(seen[one] - seen[two]) > margin_ns:
        waiting, why = (
            min(one, two, key=seen.__getitem__),
            "fell silent before {}, its next peer",
        )
    elif len(ready) == 1:
        (waiting,), why = ready, "had received all that it needed and has not sent to {}"
    elif order[one] != order[two]:
        waiting, why = min(one, two, key=order.__getitem__), "was due to send to {} first"
    elif abs(late[one] - late[two]) > margin_ns:
        waiting, why = max(one, two, key=late.__getitem__), "was due to send to {} first"
    elif (sent[one] == 0) != (sent[two] == 0):
        waiting, why = min(one, two, key=sent.__getitem__), "has sent nothing to {}, which has begun to send"
    else:
        waiting, why = one, "was due to exchange data with {}, and both were due at the same time"
        chance = EVEN
    other = two if waiting == one else one
    return FirstStopped(tuple(addr for addr in ends if hosts[addr] == waiting), other, why.format(other), chance)


def _last_seen(where: StepProgress, ends: list[str], hosts: Mapping[str, str]) -> dict[str, int]:
    """Return when the hosts of some NICs last sent data over these NICs; what they receive may wait in a buffer."""
    seen = {hosts[addr]: where.ended_ns for addr in ends}
    for src, last_ns in where.pairs.select("src_addr", "last_ns").drop_nulls("last_ns").iter_rows():
        if src in ends:
            seen[hosts[src]] = max(seen[hosts[src]], last_ns)
    return seen


def _owing(where: StepProgress, first: pl.DataFrame, hosts: Mapping[str, str]) -> FirstStopped | None:
    """Return the NICs of the one host of a pipeline that owes something, and to which nothing was due by then.

    All others wait for what was due to them sooner. In a ring each member waits for the one before it, and nobody owes
    alone. The one that it owes may not have been ready to receive.
    """
    if first.join(opposite(where.pairs), on=PAIR, how="anti").height:
        return None
    sender, receiver = (pl.col(end).replace_strict(hosts, default=None) for end in PAIR)
    owed = first.with_columns(host=sender, whom=receiver)
    lacks = _confirmed(where, hosts).group_by(host=receiver).agg(lacks_ns=pl.col("late_ns").max())
    margin = pl.max_horizontal(3 * pl.col("noise_ns"), CLOCK_ERROR_NS)
    waits = (pl.col("lacks_ns") >= pl.col("late_ns") - margin).fill_null(value=False)
    owes = owed.join(lacks, on="host", how="left").filter(~waits.any().over("host"))
    if owes["host"].n_unique() != 1 or owes["whom"].n_unique() != 1:
        return None
    whom = owes["whom"][0]
    why = f"had received all that it needed and has not sent to {whom}"
    return FirstStopped(tuple(owes["src_addr"].unique().sort()), whom, why, LIKELIER)


def _missing(where: StepProgress, hosts: Mapping[str, str]) -> FirstStopped | None:
    """Return the NICs of the host that alone is missing from the last exchange."""
    why = "sent nothing into the last exchange, which all others had begun"
    addrs = missing_sender(where.pairs, where.ended_ns, where.silent_ns, hosts)
    return FirstStopped(addrs, None, why) if addrs else None


def _amid(first: pl.DataFrame, hosts: Mapping[str, str]) -> FirstStopped | None:
    """Return the NICs of the one host that is an end of all that is due, with several others at the other ends.

    In a pipeline the stages beside the one that stopped wait for it, and nothing is due between any others.
    """
    between = [{hosts[src], hosts[dst]} for src, dst in first.select(PAIR).iter_rows()]
    common, met = set.intersection(*between), set.union(*between)
    if len(common) != 1 or len(met) < 3:
        return None
    addrs = {addr for pair in first.select(PAIR).iter_rows() for addr in pair if hosts[addr] in common}
    return FirstStopped(tuple(sorted(addrs)), None, "is an end of all that was due, and several others wait for it")


def _absent(
    where: StepProgress, first: pl.DataFrame, ends: list[str], hosts: Mapping[str, str], stages: Mapping[str, int]
) -> FirstStopped | None:
    """Return the NICs that took no part in the last exchange of the others.

    The last exchange follows the longest silence among the earlier ones. If some NICs have sent nothing in this step
    and that silence is theirs, the exchange may be the one after the second longest silence.
    """
    seen = first.with_columns(pl.col("last_ns").fill_null(where.ended_ns)).sort("last_ns", "src_addr", "dst_addr")
    for _ in range(2 if first["last_ns"].has_nulls() else 1):
        gaps = np.diff(seen["last_ns"].to_numpy())
        if not gaps.size or gaps.max() <= LAST_EXCHANGE_APART * (where.silent_ns - seen["last_ns"][0]):
            return None
        seen = seen[int(gaps.argmax()) + 1 :]
        absent = sorted(set(ends) - {*seen["src_addr"], *seen["dst_addr"]})
        if quiet := _missed(where, first, absent, hosts, stages):
            return quiet
    return None


def _missed(
    where: StepProgress, first: pl.DataFrame, absent: list[str], hosts: Mapping[str, str], stages: Mapping[str, int]
) -> FirstStopped | None:
    """Return the absent NICs of the host that all idle hops have in common; if two hosts are common, of one of them."""
    idle = first.filter(pl.col("src_addr").is_in(absent) | pl.col("dst_addr").is_in(absent))
    between = ({hosts[src], hosts[dst]} for src, dst in idle.select(PAIR).iter_rows())
    places = {hosts[addr] for addr in absent}.intersection(*between)
    if len(places) == 2:
        return _either(where, idle, hosts, stages)
    if len(places) != 1:
        return None
    addrs = tuple(addr for addr in absent if hosts[addr] in places)
    return FirstStopped(addrs, None, "took no part in the last exchange of the others")


def _sends_nothing(first: pl.DataFrame, hosts: Mapping[str, str]) -> FirstStopped | None:
    """Return the NICs of the one host that has sent nothing into a ring that most others have sent into.

    What a member receives does not show that it is there, for its buffers fill without it. Where a sender waits until
    its receiver has come, the member before it in the ring sends nothing either, but has received something.
    """
    if set(first["src_addr"]) != set(first["dst_addr"]) or first.join(opposite(first), on=PAIR, how="semi").height:
        return None  # no ring: in a pipeline, a member that sends nothing may wait for its input
    silent, begun = (first.filter(which) for which in (pl.col("sent") == 0, pl.col("sent") > 0))
    if silent.is_empty() or silent.height >= begun.height:
        return None
    received = begun["dst_addr"].implode()
    for addrs in (silent["src_addr"], silent.filter(~pl.col("src_addr").is_in(received))["src_addr"]):
        if len({hosts[addr] for addr in addrs}) == 1:
            return FirstStopped(tuple(addrs.sort()), None, "has sent nothing to the others, which have begun to send")
    return None


def _between_idle(where: StepProgress, first: pl.DataFrame, hosts: Mapping[str, str]) -> FirstStopped | None:
    """Return the NICs of the one host that all hops of a ring have in common over which nothing has come in this step.

    A hop over which something came shows that both its ends were there. In a pipeline nothing comes of a stage that
    waits for its input, either.
    """
    idle = first.filter(pl.col("sent") == 0)
    if idle.height < 2 or idle.join(opposite(where.pairs), on=PAIR, how="semi").height:
        return None
    return _amid(idle, hosts)


def _behind(where: StepProgress, hosts: Mapping[str, str]) -> FirstStopped | None:
    """Return the NICs of the one host at an end of all hops over which less has come than over others of their ring.

    Blocks go round a ring of context, or a ring's parts, one after the other: each member sends on when it has received
    the one before. The hops that lead from and to the one that has stopped lack a block. Of several rings it is the one
    that has been due for longest: the others went on until they needed it. Where nothing is overdue, the hops differ
    by where the step was cut.
    """
    begun = where.due.filter(pl.col("sent") > 0)
    one_way = begun.filter(pl.len().over("src_addr") == 1, pl.len().over("dst_addr") == 1)
    towards = dict(one_way.select(PAIR).rows())
    rings = [ring for ring in _rings(towards) if len(ring) >= SMALLEST_RING]
    late = dict(one_way.select("src_addr", "late_ns").rows())
    if not rings:
        return None
    ring = max(rings, key=lambda ring: (sum(late[addr] for addr in ring) / len(ring), ring))
    hops = one_way.filter(pl.col("src_addr").is_in(ring))
    least, most = (int(value) for value in hops.select(least=pl.col("sent").min(), most=pl.col("sent").max()).row(0))
    lack = hops.filter(2 * pl.col("sent") < least + most)
    overdue = pl.col("late_ns") > pl.max_horizontal(3 * pl.col("noise_ns"), pl.lit(LEAST_OVERDUE * where.period_ns))
    if most - least < CHATTER_BYTES or not lack.select(overdue.any()).item():
        return None
    between = sorted(set(lack["src_addr"]) & set(lack["dst_addr"]))
    if lack.height == TWO_BETWEEN and len({hosts[addr] for addr in between}) == 2 == len(between):
        return _starving(lack, between, hosts)
    common = set.intersection(*({hosts[src], hosts[dst]} for src, dst in lack.select(PAIR).iter_rows()))
    if len(common) != 1:
        return None
    ends = {addr for pair in lack.select(PAIR).iter_rows() for addr in pair if hosts[addr] in common}
    return FirstStopped(tuple(sorted(ends)), None, "is an end of all hops of its ring over which less has come")


def _starving(lack: pl.DataFrame, between: Sequence[str], hosts: Mapping[str, str]) -> FirstStopped | None:
    """Return which of two NICs, one after the other in a ring, stopped first: what is sent to it fills its buffers when
    it sends nothing any more, and the one after it waits for input. None if both did so for equally long."""
    sent, received = (dict(lack.select(end, pl.col("last_ns").fill_null(0)).rows()) for end in PAIR)
    filled = {addr: received[addr] - sent[addr] for addr in between}
    two, one = sorted(between, key=filled.__getitem__)
    if filled[one] - filled[two] <= CLOCK_ERROR_NS:
        return None
    why = f"has received for longer without sending on than {hosts[two]}, and less has come from and to both"
    return FirstStopped((one,), hosts[two], why, LIKELIER)


def _rings(towards: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the circles in which each sends to the next, each beginning with its first address."""
    rings, left = [], set(towards)
    while left:
        order = [min(left)]
        while (following := towards[order[-1]]) in left and following != order[0]:
            order.append(following)
            left.discard(following)
        left.discard(order[0])
        if towards[order[-1]] == order[0]:
            rings.append(tuple(order))
    return rings


def _quiet_before(where: StepProgress, hosts: Mapping[str, str]) -> FirstStopped | None:
    """Return the NICs that sent their last before the widest silence, where they are of one or two hosts.

    Where each exchanges data with all others, what is due says little, for the order of messages changes. The one that
    stops sends nothing more, and the others go on until they need it.
    """
    sent = where.pairs.drop_nulls("last_ns").group_by(addr="src_addr").agg(pl.col("last_ns").max())
    sent = sent.sort("last_ns", "addr")
    gaps = np.diff(sent["last_ns"].to_numpy())
    if not gaps.size or not gaps.max():
        return None
    addrs = sent["addr"].to_list()
    first, rest = addrs[: int(gaps.argmax()) + 1], addrs[int(gaps.argmax()) + 1 :]
    places = list(dict.fromkeys(hosts[addr] for addr in first))
    others = [hosts[addr] for addr in (first + rest) if hosts[addr] != places[0]]
    if len(places) > 2 or not others:
        return None
    mine = tuple(sorted(addr for addr in first if hosts[addr] == places[0]))
    chance = LIKELIER if len(places) == 1 else EVEN
    return FirstStopped(mine, others[0], "sent its last before the others did", chance, guess=True)


def _ring_order(where: StepProgress, ends: list[str], hosts: Mapping[str, str]) -> FirstStopped | None:
    """Return the NIC that stopped first in a ring whose members fell silent one after the other along the ring."""
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
    return FirstStopped((least,), None, "sent the least, and the others fell silent one after the other along the ring")
