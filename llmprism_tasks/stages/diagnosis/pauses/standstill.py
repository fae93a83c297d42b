"""Standstill: who stopped first in a single step that was long because the job stood still in the middle of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY, SURE
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.diagnosis.evidence import Evidence, as_likely, candidate_columns, shares
from llmprism_tasks.stages.diagnosis.pauses.odd_rail import odd_nics
from llmprism_tasks.stages.liveness.first_stopped import find_first_stopped
from llmprism_tasks.stages.liveness.foreign import CHATTER_BYTES
from llmprism_tasks.stages.liveness.last_exchange import absences
from llmprism_tasks.stages.liveness.progress.step_progress import step_progress_at
from llmprism_tasks.stages.traffic import nic_pairs

CHATTER = 0.01
"""Share of what its pair moves in a step below which a record that is no message, either, is no part of the step, but a
heartbeat or a log: who chats may have stopped to train."""

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
    found = before_silence(job_id, span, usual_ns, count, evidence)
    if found is None:
        return {}
    (before, since), start_ns, hosts = found, span[0], hosts_of(job_id, evidence)
    if odd := odd_of_rails(before, start_ns, hosts):
        return _odd_rail(odd)
    absent = absent_hosts(before, (start_ns, since), count, hosts)
    if awaited := likeliest_of(absent, len(set(hosts.values()))):
        host, sure = awaited
        who: dict[str, Any] = candidate_columns({host: 1.0})
        if _has_several_links(before, host, hosts):
            kind = "stalls" if is_over else "slow_compute"
            who = {"kind": kind, "subject_type": "host", "subject": host, "confidence": sure}
        return who | {"how": f". All others waited for host {host}"}
    where = step_progress_at(before, since, settings)
    if where is None or not where.midway:
        return {}
    first = find_first_stopped(where, hosts, together=False)
    if first is None:
        return {}
    odds = shares(first.chances)
    how = f". Host {first.host} {'stopped first: it' if first.is_sure else 'may have stopped first: it'} {first.reason}"
    return candidate_columns(odds) | {"how": how}


def odd_of_rails(before: pl.DataFrame, start_ns: int, hosts: dict[str, str]) -> list[str]:
    """Return the NIC that stopped alone in a step, or both ends of a link that did; none if none did.

    Parameters
    ----------
    before : flows of pairs that take part in the steps, up to the silence; addresses as text
    start_ns : of the step
    """
    size, begun = pl.col("bytes").cast(pl.Float64), pl.col("flow_start_ns") >= start_ns
    message = size.pow(2).sum() / size.sum()
    usual, sent = (pl.col("bytes").filter(which).sum() for which in (~begun, begun))
    return odd_nics(before.group_by(nic_pairs.PAIR).agg(usual=usual, sent=sent, message=message), hosts)


def _odd_rail(odd: list[str]) -> dict[str, Any]:
    """Return the NIC that stopped alone, as `stopped_in_step`, or both ends of a link that did."""
    how = (
        f". NIC {' or '.join(odd)} stopped first: what it sends and what it is sent lack what all other rails had sent"
    )
    if len(odd) == 1:
        return {"kind": "link_flap", "subject_type": "addr", "subject": odd[0], "confidence": LIKELIER, "how": how}
    return candidate_columns(as_likely(odd)) | {"how": how}


def before_silence(
    job_id: str, span: tuple[int, int], usual_ns: float, count: int, evidence: Evidence
) -> tuple[pl.DataFrame, int] | None:
    """Return the flows of a job's training up to the longest silence of a step, addresses as text, and when that began;
    None if it took less than half of what the step lost.

    Parameters
    ----------
    span, usual_ns, count : as for `stopped_in_step`
    """
    start_ns, end_ns = span
    flows = evidence.flows.filter(pl.col("job_id") == job_id, pl.col("kind") != "other")
    numbers = flows.select(
        "flow_start_ns", "flow_end_ns", "bytes", pair=pl.struct(nic_pairs.PAIR).rank("dense").cast(pl.Int64) - 1
    )
    starts, ends, sizes, pair = (column.to_numpy() for column in numbers.get_columns())
    least = np.minimum(CHATTER * np.bincount(pair, sizes) / count, CHATTER_BYTES)
    trains = (sizes >= least[pair]) & (ends - starts <= usual_ns)
    inside = trains & (starts < end_ns) & (ends > start_ns)
    order = np.argsort(starts[inside], kind="stable")
    until = np.maximum.accumulate(np.append(start_ns, ends[inside][order]))
    gaps = np.append(starts[inside][order], end_ns) - until
    if gaps.max() < MAJORITY * (end_ns - start_ns - usual_ns):
        return None
    since = int(until[gaps.argmax()])
    return nic_pairs.named(flows.filter(pl.Series(trains & (starts <= since)))), since


def hosts_of(job_id: str, evidence: Evidence) -> dict[str, str]:
    """Return the host of each member of a job."""
    return dict(evidence.members.filter(pl.col("job_id") == job_id).select("addr", "host").iter_rows())


def _has_several_links(flows: pl.DataFrame, host: str, hosts: dict[str, str]) -> bool:
    """Return whether several NICs of a host send in the steps of its job: no link that is down makes all of them late.

    Parameters
    ----------
    flows : of pairs that take part in the steps; addresses as text
    """
    senders = flows["src_addr"].unique()
    return sum(hosts.get(addr) == host for addr in senders) > 1


def absent_hosts(before: pl.DataFrame, span: tuple[int, int], count: int, hosts: dict[str, str]) -> dict[str, float]:
    """Return the hosts that had no part in the last exchange before their job stood still, and by which factor that
    makes each likelier to be the one that all others waited for.

    A member of a ring that comes early fills the buffers of the next one, and waits. After a pause of all members one
    of them is the last, too, but the others have begun nothing before it.

    Parameters
    ----------
    before : flows of pairs that take part in the steps, up to the silence; addresses as text
    span : from the start of the step to the silence, ns
    count : how many steps were seen
    """
    last = pl.col("flow_end_ns").filter(pl.col("flow_start_ns") >= span[0]).max()
    pairs = before.group_by(nic_pairs.PAIR).agg(last_ns=last, owes=pl.lit(value=True))
    found = absences(pairs, span[0], hosts, lost=1 / (count + 2))
    return {host: one.factor for host, one in found.items() if one.members == set(hosts.values())}


def likeliest_of(factors: dict[str, float], hosts: int) -> tuple[str, float] | None:
    """Return the host that most speaks for, and its probability; None if less than `SURE`."""
    host = max(sorted(factors), key=factors.__getitem__, default="")
    odds = factors[host] / (factors[host] + hosts - 1) if host else 0.0
    return (host, odds) if odds >= SURE else None
