"""Silence: a job that hangs in the middle of a step, or was stopped there, and who went quiet first.

Steps before tell when each NIC is due to send on. Who hangs is due first, and the others run on until they wait for it;
when all stop at once, nobody is overdue when the last flow ends. Who has come to a collective sends a little into it
and stalls: who has not, is waited for. And a ring falls silent hop by hop, from who stopped first.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.cut_off import CutOff
from llmprism_tasks.stages.diagnosis.evidence import ROW, Evidence
from llmprism_tasks.stages.overdue import Silence

SURE, UNSURE = 0.9, 0.5
"""Confidence in who went quiet first, and in a job of whose members nobody is known to have."""
PACE = 0.02
"""Ratio of a step by which a NIC must be overdue at least: so much do healthy steps vary."""
APART = 0.5
"""Ratio of the time since pairs went quiet that must lie between the last exchange and those before it."""
SHORTEST_RING = 4
"""Members whose order says something: three fall silent in the order of their ring by chance every other time."""


@dataclass(frozen=True)
class Quiet:
    """Who went quiet first: NICs of one host, who else it may be (its host), and what tells."""

    addrs: tuple[str, ...]
    other: str | None
    reason: str


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the jobs that are overdue in the middle of a step, as `hang` or as `stopped`.

    `hang` has as its subject who went quiet first, where that can be told, else the job; `severity` is the ratio by
    which the step is longer than typical, `score` the silence over the longest before. A job whose members all stopped
    at once, or that has begun anew since, is `stopped`, at no severity: it crashed or was cancelled, and its GPUs are
    free. Where nobody else is seen any more, and nobody went quiet first, it is the collector that is silent.
    """
    hosts = {(job_id, addr): host for job_id, addr, host in evidence.members.select("job_id", "addr", "host").rows()}
    rows = []
    for silence in evidence.silences:
        at = {addr: host for (job_id, addr), host in hosts.items() if job_id == silence.gap.job_id}
        late = _overdue(silence.where, settings)
        quiet = None if silence.restarted else _first_quiet(silence.where, at, late=late.height > 0)
        if quiet is not None or silence.over or late.height or not silence.alone:
            rows.append(_row(silence, quiet, at, hangs=_hangs(silence, quiet, late)))
    return pl.DataFrame(rows, schema=ROW)


def _hangs(silence: Silence, quiet: Quiet | None, late: pl.DataFrame) -> bool:
    return not silence.restarted and (silence.over or quiet is not None or late.height > 0)


def _overdue(where: CutOff, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the pairs that had been due for longer than noise explains when the last flow ended."""
    margin = pl.max_horizontal(settings.sigmas * pl.col("noise_ns"), pl.lit(PACE * where.period_ns))
    return where.due.filter(pl.col("late_ns") > margin)


def _first_quiet(where: CutOff, hosts: dict[str, str], *, late: bool) -> Quiet | None:
    """Say who went quiet first; None if several may have.

    Parameters
    ----------
    late : whether anybody was overdue when the last flow ended
    """
    first = _front(where)
    ends = sorted({addr for end in ("src_addr", "dst_addr") for addr in first[end]} & set(hosts))
    places = sorted({hosts[addr] for addr in ends})
    if len(places) < 2:
        return None
    if late and len(places) == 2:
        waiting = _sender(first, hosts)
        other = next(place for place in places if place != waiting)
        return Quiet(tuple(a for a in ends if hosts[a] == waiting), other, "was due to send first")
    return _absent(where, first, ends, hosts) or _ring_order(where, ends, hosts)


def _front(where: CutOff) -> pl.DataFrame:
    """Return the pairs that had been due for about the longest, as far as their noise lets us tell."""
    worst = where.due.sort("late_ns", "noise_ns", "src_addr", "dst_addr", descending=[True, False, False, False]).head(
        1
    )
    room = pl.max_horizontal(3 * pl.max_horizontal("noise_ns", worst["noise_ns"].max()), PACE * where.period_ns)
    return where.due.filter(pl.col("late_ns") >= worst["late_ns"].max() - room)


def _sender(first: pl.DataFrame, hosts: dict[str, str]) -> str:
    """Return the host that had been due to send for longest."""
    addr = first.sort("late_ns", "src_addr", "dst_addr", descending=[True, False, False])["src_addr"][0]
    return hosts[addr]


def _absent(where: CutOff, first: pl.DataFrame, ends: list[str], hosts: dict[str, str]) -> Quiet | None:
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


def _ring_order(where: CutOff, ends: list[str], hosts: dict[str, str]) -> Quiet | None:
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


def _row(silence: Silence, quiet: Quiet | None, hosts: dict[str, str], *, hangs: bool) -> dict[str, object]:
    gap, where = silence.gap, silence.where
    silent_s, period_s = ((ns / 1e9) for ns in (silence.until_ns - gap.since_ns, where.period_ns))
    subject_type, subject, peers = _subject(gap.job_id, quiet, hosts)
    stood = f"in the middle of a step of {period_s:.1f} s, and is silent for {silent_s:.0f} s"
    if silence.over:
        stood = f"in the middle of a step of {period_s:.1f} s, and was silent for {silent_s:.0f} s until it " + (
            "began anew" if silence.restarted else "went on"
        )
    if quiet is None:
        who = "; who went quiet first cannot be told" if hangs else "; all members stopped at once"
    else:
        who = f"; {subject_type} {subject} {quiet.reason}" if quiet.addrs else ""
        who += f", unless {quiet.other} did not take it" if quiet.other else ""
    return {
        "job_id": gap.job_id,
        "kind": "hang" if hangs else "stopped",
        "subject_type": subject_type,
        "subject": subject,
        "start_ns": gap.since_ns,
        "end_ns": silence.until_ns,
        "score": silent_s * 1e9 / max(gap.longest_ns, where.period_ns),
        "severity": silent_s / period_s if hangs else 0.0,
        "explanation": f"The job fell silent {stood}{'' if silence.restarted else who}.",
        "confidence": SURE if quiet is not None and quiet.other is None else UNSURE,
        "peers": peers,
    }


def _subject(job_id: str, quiet: Quiet | None, hosts: dict[str, str]) -> tuple[str, str, list[str] | None]:
    """Return the subject's type, the subject and its peers: a host if half of its NICs or more went quiet together."""
    if quiet is None:
        return "job", job_id, None
    host = hosts[quiet.addrs[0]]
    inside = [addr for addr, place in hosts.items() if place == host]
    others = sorted(addr for addr, place in hosts.items() if place != host)
    if len(quiet.addrs) > 1 and 2 * len(quiet.addrs) >= len(inside):
        return "host", host, others
    return "addr", quiet.addrs[0], others
