"""Standstill: who stopped first in a single step that was long because the job stood still in the middle of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, SURE
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.diagnosis.evidence import Evidence, candidate_columns, shares
from llmprism_tasks.stages.diagnosis.pauses.odd_rail import odd_nic
from llmprism_tasks.stages.liveness.first_stopped import find_first_stopped
from llmprism_tasks.stages.liveness.last_exchange import absences
from llmprism_tasks.stages.liveness.progress.step_progress import step_progress_at
from llmprism_tasks.stages.liveness.quiet_times import beyond_chatter
from llmprism_tasks.stages.traffic import nic_pairs

LIKELIER = 0.75
"""Confidence of a NIC that lacks what its sister rails have sent: what the data show is often, but not always, the
cause of the silence and not its effect."""


def stopped_in_step(
    job_id: str,
    span: tuple[int, int],
    usual_ns: float,
    count: int,
    evidence: Evidence,
    settings: Settings,
    *,
    is_over: bool,
) -> dict[str, Any]:
    """Return who stopped first in a step, as `candidates` with `odds` and `how`; empty if the job stopped between two
    steps, or nobody can be told. A NIC that stopped alone has flapped, and a host all of whose NICs were late was late
    itself (`kind`, `subject`): it has stalled if a quicker step followed, and may compute slowly until then.

    Parameters
    ----------
    span : start and end of the step, ns
    usual_ns, count : usual length of the job's steps, and how many were seen
    is_over : whether a quicker step has followed
    """
    start_ns, end_ns = span
    training = evidence.flows.filter(pl.col("job_id") == job_id, pl.col("kind") != "other")
    flows = beyond_chatter(training, settings)
    starts, ends = (flows[name].to_numpy() for name in ("flow_start_ns", "flow_end_ns"))
    trains = ends - starts <= usual_ns
    inside = trains & (starts < end_ns) & (ends > start_ns)
    order = np.argsort(starts[inside], kind="stable")
    until = np.maximum.accumulate(np.append(start_ns, ends[inside][order]))
    gaps = np.append(starts[inside][order], end_ns) - until
    least_ns = MAJORITY * (end_ns - start_ns - usual_ns)
    if gaps.max() < least_ns:
        return {}
    since = int(until[gaps.argmax()])
    members = evidence.members.filter(pl.col("job_id") == job_id)
    hosts = dict(members.select("addr", "host").rows())
    if awaited := _awaited_host(flows, (since, since + int(gaps.max())), least_ns, count, hosts):
        host, sure = awaited
        who: dict[str, Any] = candidate_columns({host: 1.0})
        if _has_several_links(flows, host, hosts):
            kind = "stalls" if is_over else "slow_compute"
            who = {"kind": kind, "subject_type": "host", "subject": host, "confidence": sure}
        return who | {"how": f". All others waited for host {host}"}
    before = nic_pairs.named(flows.filter(pl.Series(trains & (starts <= since))))
    begun = pl.when(pl.col("flow_start_ns") >= start_ns).then("bytes")
    sent = before.group_by(nic_pairs.PAIR).agg(usual=(pl.col("bytes") - begun.fill_null(0)).sum(), sent=begun.sum())
    if (addr := odd_nic(sent, hosts)) is not None:
        how = f". NIC {addr} stopped first: what it sends and what it is sent lack what all other rails had sent"
        return {"kind": "link_flap", "subject_type": "addr", "subject": addr, "confidence": LIKELIER, "how": how}
    where = step_progress_at(before, since, settings)
    if where is None or not where.midway:
        return {}
    first = find_first_stopped(where, hosts, together=False)
    if first is None:
        return {}
    odds = shares(first.chances)
    how = f". Host {first.host} {'stopped first: it' if first.is_sure else 'may have stopped first: it'} {first.reason}"
    return candidate_columns(odds) | {"how": how}


def _has_several_links(flows: pl.DataFrame, host: str, hosts: dict[str, str]) -> bool:
    """Return whether several NICs of a host send in the steps of its job: no link that is down makes all of them late.

    Parameters
    ----------
    flows : of pairs that take part in the steps
    """
    senders = nic_pairs.named(flows.select(nic_pairs.PAIR).unique())["src_addr"].unique()
    return sum(hosts.get(addr) == host for addr in senders) > 1


def _awaited_host(
    flows: pl.DataFrame, silence: tuple[int, int], least_ns: float, count: int, hosts: dict[str, str]
) -> tuple[str, float] | None:
    """Return the one host that sent nothing while its job stood still, where all others had begun, and the probability
    that it was the last; None if none did so.

    A member of a ring that comes early fills the buffers of the next one, and waits. After a pause of all members one
    of them is the last, too, but the others have not waited for it for long.

    Parameters
    ----------
    flows : of pairs that take part in the steps
    silence : its start and end, but for what is too little for a part of a step
    least_ns : time for which the others must have waited
    count : how many steps were seen
    """
    since_ns, back_ns = silence
    early = pl.col("flow_start_ns").is_between(since_ns, back_ns, closed="left")
    pairs = nic_pairs.named(
        flows.group_by(nic_pairs.PAIR).agg(last_ns=pl.col("flow_start_ns").filter(early).max(), owes=pl.lit(value=True))
    )
    silent_ns = pairs["last_ns"].max()
    if not isinstance(silent_ns, int) or back_ns - silent_ns < least_ns:
        return None
    every = set(hosts.values())
    for host, one in absences(pairs, since_ns, hosts, lost=1 / (count + 2)).items():
        odds = one.factor / (one.factor + len(every) - 1)
        if one.members == every and odds >= SURE:
            return host, odds
    return None
