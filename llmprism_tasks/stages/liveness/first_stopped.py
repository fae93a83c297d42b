"""First stopped: which host stopped first in a job that fell silent in the middle of a step, as probabilities.

A host that stops sends nothing more. Each other host goes on until something that it waits for does not come. So the
message to look for is the one that was due first and was not sent: its sender stopped, or else its receiver, if senders
wait until their receivers are there. When each NIC was due follows from its own last message and from how long it
waited at the same place in earlier steps, with the deviation that it had there. In a ring, all members take part in
each exchange, so the absence of one of them is evidence of its own.

All members may have stopped together, as when a job is killed or ends. If they did, no message was due before the last
flow ended. Or what was due was under way: a collector that writes records of whole messages has none of it. Where it
joins messages to one record, that of the first ones is seen, and the rest is under way. Then the job looks as it does
for as long as that takes, which is a share of its steps. One host that stops makes it so if it is this one, and for as
long as it waits between what it sent last and what it owes; or for the rest of a record that it has begun. An exchange,
too, has a member that is the last to begin, and is not seen while the exchange that it completes is under way. Or the
records of some of what was due were lost, and the rest was under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from llmprism_tasks.numerics import binomial
from llmprism_tasks.numerics.robust import EVEN_ODDS, MAJORITY, SURE, Flags, Floats
from llmprism_tasks.stages.liveness.last_exchange import CLOCK_ERROR_NS, Absence, absences
from llmprism_tasks.stages.liveness.progress.step_progress import StepProgress
from llmprism_tasks.stages.step_division.periodicity import PAIR

STRONG = 1 / (1 - SURE)
"""Factor of evidence that makes sure what was as likely as not before."""

LEAST_CHANCE = 0.05
"""Probability from which on a host is a candidate."""

WAITS = EVEN_ODDS
"""Probability that senders wait until their receivers are there: some transports do, others fill buffers. If they do,
either end of a message that was not sent may have stopped."""

LEAST_OVERDUE = 0.02
"""Ratio of a step within which members that stop together fall silent; healthy steps vary by this much."""

SLOPE = 1.702
"""Slope of the logistic function that is closest to a normal distribution; its longer tails suit few earlier steps."""

TOGETHER = 3.0
"""Deviations within which a host's NICs were due together."""


ABSENT = "took no part in the last exchange, which all others had begun"
DUE = "was the first that was due to send, and has not"
"""What speaks for a host."""


@dataclass(frozen=True)
class FirstStopped:
    """Who stopped first.

    Attributes
    ----------
    chances : probability of each host that may have, the likeliest first
    together : probability that all stopped together
    addrs : NICs of the likeliest that stopped with it
    reason : what speaks for it
    is_late : whether a message was surely due before the last flow ended
    """

    chances: Mapping[str, float]
    addrs: tuple[str, ...]
    reason: str
    is_late: bool = True
    together: float = 0.0

    @property
    def host(self) -> str:
        """Return the likeliest host."""
        return next(iter(self.chances))

    @property
    def is_sure(self) -> bool:
        """Return whether the host can be named."""
        return self.chances[self.host] >= SURE


def find_first_stopped(where: StepProgress, hosts: Mapping[str, str], *, together: bool) -> FirstStopped | None:
    """Return who stopped first; None if nothing was due, if all members stopped together (that is likelier by the time
    alone, or sure by all), or if no host may have with `LEAST_CHANCE`.

    Parameters
    ----------
    hosts : host of each member
    together : whether all may have stopped together; a job that went on by itself has not
    """
    nics = where.next_sends.with_columns(host=pl.col("addr").replace_strict(hosts, default=None)).drop_nulls("host")
    due = _next_of_hosts(nics)
    if due.is_empty():
        return None
    owing = nics.drop_nulls("due_ns").select(src_addr="addr", dst_addr="to", owes=True)
    pairs = where.pairs.join(owing, on=PAIR, how="left").with_columns(pl.col("owes").fill_null(value=False))
    absent = absences(pairs, where.ended_ns, hosts, where.lost)
    by_time, cut_by_time = _first_due(due, absent, where, together=True)
    chances, cut = (by_time, cut_by_time) if together else _first_due(due, absent, where, together=False)
    stopped = _with_receivers(due, chances, nics)
    stopped |= {host: stopped[host] * one.factor for host, one in absent.items() if host in stopped}
    if cut > max(stopped.values()):
        return None
    hidden = 0.0
    if together:
        killed = nics["host"].n_unique() * _chance_if_killed(due, absent, where)
        hidden = killed / _wait_of_stopped(due, stopped, where) * (sum(stopped.values()) + cut)
    whole = sum(stopped.values()) + cut + hidden
    if hidden >= SURE * whole:
        return None
    likely = {host: chance / whole for host, chance in stopped.items() if chance >= LEAST_CHANCE * whole}
    if not likely:
        return None
    ordered = dict(sorted(likely.items(), key=lambda one: (-one[1], one[0])))
    host = next(iter(ordered))
    reason = ABSENT if host in absent and absent[host].factor >= STRONG else DUE
    return FirstStopped(
        ordered,
        _nics_of(host, nics),
        reason,
        is_late=cut_by_time <= 1 - SURE,
        together=(cut + hidden) / whole,
    )


def _next_of_hosts(nics: pl.DataFrame) -> pl.DataFrame:
    """Return the NIC of each host that was due first; of several in lock step the middle one, for records get lost.

    `lost` becomes the chance that as many NICs of the host owe something only because records were lost.
    """
    due = nics.with_columns(nics=pl.len().over("host")).drop_nulls("due_ns").sort("due_ns", "addr")
    middle = pl.when(pl.len() > 2).then((pl.len() - 1) // 2).otherwise(0)
    first = due.group_by("host").agg(pl.len(), pl.all().gather(middle).first()).sort("host")
    chances = [binomial.tail(*row) for row in first.select("len", "nics", "lost").iter_rows()]
    return first.with_columns(lost=pl.Series(chances, dtype=pl.Float64)).drop("len", "nics")


def _noise_ns(due: pl.DataFrame) -> Floats:
    """Return the deviation of when each host was due, by a clock that may be wrong."""
    noise_ns: Floats = np.hypot(due["noise_ns"].fill_null(0).to_numpy(), CLOCK_ERROR_NS)
    return noise_ns


def _chances_to_be_before(one_ns: Floats, noise_ns: Floats, other_ns: Floats, other_noise_ns: Floats | float) -> Floats:
    """Return the probability that each of some uncertain times is before each other one."""
    apart = (other_ns - one_ns) / np.hypot(noise_ns, other_noise_ns)
    chances: Floats = 1 / (1 + np.exp(-np.clip(SLOPE * apart, -500, 500)))
    return chances


def _first_due(
    due: pl.DataFrame, absent: Mapping[str, Absence], where: StepProgress, *, together: bool
) -> tuple[Floats, float]:
    """Return the probability that each host was due first, and that all stopped before any was due.

    What is due after an exchange that lacks one of its members was due no earlier than what that member owes.
    """
    at_ns, noise_ns = due["due_ns"].to_numpy(), _noise_ns(due)
    if together:
        at_ns, noise_ns = np.append(at_ns, where.silent_ns), np.append(noise_ns, LEAST_OVERDUE * where.period_ns)
    before = _chances_to_be_before(at_ns[:, np.newaxis], noise_ns[:, np.newaxis], at_ns, noise_ns)
    # A host that only seems to owe something, for records were lost, counts as due after all others.
    before[:, : due.height] += due["lost"].to_numpy() * (1 - before[:, : due.height])
    awaited, hosts = _awaited(due, absent), slice(due.height)
    before[hosts, hosts] = np.where(awaited, np.maximum(before[hosts, hosts], EVEN_ODDS), before[hosts, hosts])
    before[hosts, hosts] = np.where(awaited.T, np.minimum(before[hosts, hosts], EVEN_ODDS), before[hosts, hosts])
    weights = np.log(where.lost / 2 + (1 - where.lost) * before)
    np.fill_diagonal(weights, 0)
    log_chances = weights.sum(axis=1)
    log_chances[: due.height] += np.log(np.maximum(1 - due["lost"].to_numpy(), np.finfo(np.float64).tiny))
    chances = np.exp(log_chances - log_chances.max())
    chances /= chances.sum()
    return chances[: due.height], float(chances[due.height :].sum())


def _awaited(due: pl.DataFrame, absent: Mapping[str, Absence]) -> Flags:
    """Return whether each host is absent from an exchange that each other one takes part in."""
    hosts = due["host"].to_list()
    lacks = {host: one.members for host, one in absent.items() if one.factor >= STRONG}
    return np.array([[other in lacks.get(host, ()) for other in hosts] for host in hosts], np.bool_)


def _chance_if_killed(due: pl.DataFrame, absent: Mapping[str, Absence], where: StepProgress) -> float:
    """Return the chance that a job that is killed at any moment of a step looks as this one does.

    All that was due was under way when the last flow ended, and it looks so until the first of it is over. Who is
    absent from an exchange must have come after all others that are seen in it. What they owe follows from it. Or the
    records of some of what was due were lost, and the rest was under way. Of a record a part of which is seen the rest
    is not lost, for records are lost whole.
    """
    due_ns, noise_ns, silent_ns = due["due_ns"].to_numpy(), _noise_ns(due), np.full(due.height, float(where.silent_ns))
    over_ns = due_ns + due["rest_ns"].to_numpy()
    lost = np.where(due["lasts_ns"].to_numpy() > 0, due["lost"].to_numpy(), 0.0)
    under_way = _chances_to_be_before(silent_ns, noise_ns, over_ns, CLOCK_ERROR_NS)
    awaited = _awaited(due, absent)
    lacks, waits = awaited.any(axis=1), awaited.any(axis=0)
    first = lacks | ~waits
    seen_ns = np.array([absent[host].seen_ns if host in absent else 0 for host in due["host"]])
    came = _chances_to_be_before(seen_ns, noise_ns, due_ns, CLOCK_ERROR_NS)[lacks].prod()
    some_lost = (under_way + (1 - under_way) * lost).prod() - under_way.prod()
    whole = under_way[first].prod() * came * _share_until(over_ns[first], where)
    return float(whole + some_lost * _share_until(over_ns[under_way >= MAJORITY], where))


def _share_until(over_ns: Floats, where: StepProgress) -> float:
    """Return the share of a step from the last flow until the first of some records is over; all, if there is none."""
    until_ns = over_ns.min(initial=where.silent_ns + where.period_ns)
    return float(np.clip((until_ns - where.silent_ns) / where.period_ns, 0, 1))


def _wait_of_stopped(due: pl.DataFrame, stopped: Mapping[str, float], where: StepProgress) -> float:
    """Return how long who may have stopped waits between what it sent last and what it owes, as a share of a step:
    the mean by their chances. Who owes nothing itself may have stopped in the longest of these waits. Who has sent a
    part of a record may have stopped anywhere in its rest."""
    begun_ns = (due["rest_ns"] - due["lasts_ns"]).to_numpy()
    waits_ns = due["due_ns"].to_numpy() - due["last_ns"].fill_null(where.ended_ns).to_numpy() + begun_ns
    shares = np.clip(np.hypot(waits_ns, _noise_ns(due)) / where.period_ns, 0, 1)
    of_hosts = dict(zip(due["host"], shares, strict=True))
    waits = [of_hosts.get(host, shares.max()) for host in stopped]
    return float(np.average(waits, weights=list(stopped.values())))


def _with_receivers(due: pl.DataFrame, chances: Floats, nics: pl.DataFrame) -> dict[str, float]:
    """Return how likely each host stopped, where the sender of a message or its receiver has.

    If buffers are filled, it is the sender. If senders wait, it is either; but who has sent or received something after
    the message was due was there.
    """
    receivers = due.select("to").join(
        nics.drop("to").rename({"addr": "to"}), on="to", how="left", maintain_order="left"
    )
    times = (due["heard_ns"], receivers["last_ns"], receivers["heard_ns"])
    at_ns, noise_ns, never = due["due_ns"].to_numpy(), _noise_ns(due), float("-inf")
    heard, receiver_sent, receiver_heard = (
        _chances_to_be_before(at_ns, noise_ns, seen.cast(pl.Float64).fill_null(never).to_numpy(), CLOCK_ERROR_NS)
        for seen in times
    )
    senders = chances * (1 - WAITS + WAITS * EVEN_ODDS * (1 - heard))
    passed_on = chances * WAITS * EVEN_ODDS * (1 - receiver_sent) * (1 - receiver_heard)
    stopped = {host: float(chance) for host, chance in zip(due["host"], senders, strict=True)}
    for host, receiver, chance in zip(due["host"], receivers["host"], passed_on, strict=True):
        if receiver is not None and receiver != host:
            stopped[receiver] = stopped.get(receiver, 0.0) + float(chance)
    return stopped


def _nics_of(host: str, nics: pl.DataFrame) -> tuple[str, ...]:
    """Return the NICs of a host that were due together with the first of them, and the one that it sends to; all, if
    none was due."""
    mine = nics.filter(pl.col("host") == host)
    due = mine.drop_nulls("due_ns")
    if due.is_empty():
        return tuple(mine["addr"])
    first = _next_of_hosts(due).row(0, named=True)
    noise_ns = np.hypot(_noise_ns(due), first["noise_ns"] or 0)
    late = due.filter(pl.col("due_ns") <= first["due_ns"] + TOGETHER * pl.Series(noise_ns))["addr"]
    return tuple(sorted({*late, *mine.filter(pl.col("addr") == first["to"])["addr"]}))
