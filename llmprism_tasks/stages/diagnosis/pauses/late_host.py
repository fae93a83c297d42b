"""Late host: the host that begins its steps late in a job that became slower, where all others begin and wait for it.

Each member of a ring sends its own part first, whoever else is there. So in the burst before a step stands still, all
but the host that is waited for send, and perhaps the one that sends to it. A host that computes slowly in each
layer makes its job stand still nowhere for long; one that waits for its samples does so at one place of each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from llmprism_tasks.numerics import binomial
from llmprism_tasks.numerics.robust import LEAST_VOTERS, MAJORITY, Floats
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.compute.last_arrival import LAST_BY_CHANCE
from llmprism_tasks.stages.diagnosis.evidence import ENOUGH_STEPS, FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.step_times.unexplained import effects_only
from llmprism_tasks.stages.liveness.last_exchange import CLOCK_ERROR_NS
from llmprism_tasks.stages.traffic import nic_pairs

Row = dict[str, Any]

ENDS = {"sender": "src_addr", "receiver": "dst_addr"}

MOST_MISSING = 2
"""Hosts that may not have begun: the one that is late, and the one that cannot send to it."""


class Awaited(NamedTuple):
    """A host that others wait for: in how many steps, for how long at the median, and whether that may be chance."""

    host: str
    times: int
    waited_ns: float
    by_chance: bool


def find(found: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the host that most slow steps of a job wait for, in jobs that became slower and have no other finding.

    Parameters
    ----------
    found : rows of `evidence.FINDING_SCHEMA` from all other detectors
    """
    slower = effects_only(found).iter_rows(named=True)
    rows = [row for job in slower if (row := _row(job, evidence, settings)) is not None]
    return pl.DataFrame(rows, schema=FINDING_SCHEMA)


def _row(job: Row, evidence: Evidence, settings: DiagnosisSettings) -> Row | None:
    of_job = pl.col("job_id") == job["job_id"]
    history = evidence.history.filter(of_job)
    run = pl.col("current") & (pl.col("start_ns") >= job["start_ns"]) & (pl.col("end_ns") <= job["end_ns"])
    steps = history.filter(run).tail(ENOUGH_STEPS)
    flows, hosts = _between_its_hosts(str(job["job_id"]), evidence)
    lasted = (steps["end_ns"] - steps["start_ns"]).to_numpy()
    least_ns = MAJORITY * (1 - 1 / (1 + job["severity"])) * lasted
    waits = _waits(flows, steps, least_ns)
    if len(waits) < max(settings.least_steps, settings.persistence * steps.height):
        return None
    host, times, waited_ns = _most_awaited(waits)
    # A quick step is nearer to the usual length than to that of the slow run.
    between_ns = float(np.median(lasted)) * (1 + job["severity"] / 2) / (1 + job["severity"])
    before = history.filter(pl.col("end_ns") - pl.col("start_ns") < between_ns).tail(ENOUGH_STEPS)
    usually = [who for who, _ in _waits(flows, before, np.zeros(before.height))].count(host) / max(before.height, 1)
    chance = max(usually, 1 / hosts)
    if times < settings.persistence * steps.height or chance >= settings.persistence:
        return None
    if binomial.tail(times, steps.height, chance) > LAST_BY_CHANCE:
        return None
    return job | {
        "kind": "stalls",
        "subject_type": "host",
        "subject": host,
        "confidence": times / steps.height,
        "explanation": f"In {times} of {steps.height} slow steps host {host} begins late: all others had begun and "
        f"waited for it, for {waited_ns / 1e6:.0f} ms on average. Check data loading, storage and garbage "
        f"collection. The job's steps take {1 + job['severity']:.2f} times as long as before.",
    }


def awaited_in(job_id: str, steps: pl.DataFrame, least_ns: Floats, evidence: Evidence) -> Awaited | None:
    """Return the host that a job waits for in most of some steps; None if there is none.

    Parameters
    ----------
    steps : `start_ns`, `end_ns`
    least_ns : shape (steps,), for how long it must have waited
    """
    flows, hosts = _between_its_hosts(job_id, evidence)
    waits = _waits(flows, steps, least_ns)
    if len(waits) <= MAJORITY * steps.height:
        return None
    host, times, waited_ns = _most_awaited(waits)
    by_chance = binomial.tail(times, steps.height, 1 / hosts) > LAST_BY_CHANCE
    return Awaited(host, times, waited_ns, by_chance) if times > MAJORITY * steps.height else None


def _between_its_hosts(job_id: str, evidence: Evidence) -> tuple[pl.DataFrame, int]:
    """Return the flows of a job's training, as `between_hosts` does, and the number of its hosts."""
    of_job = pl.col("job_id") == job_id
    hosts = dict(evidence.members.filter(of_job).select("addr", "host").iter_rows())
    flows = between_hosts(evidence.flows.filter(of_job, pl.col("kind") != "other"), hosts)
    return flows, len(set(hosts.values()))


def _most_awaited(waits: Sequence[tuple[str, int]]) -> tuple[str, int, float]:
    """Return the host that is waited for most often, how often, and for how long, ns, at the median."""
    named = [host for host, _ in waits]
    host = max(sorted(set(named)), key=named.count)
    return host, named.count(host), float(np.median([lost_ns for who, lost_ns in waits if who == host]))


def _waits(flows: pl.DataFrame, steps: pl.DataFrame, least_ns: Floats) -> list[tuple[str, int]]:
    spans = zip(steps.select("start_ns", "end_ns").iter_rows(), least_ns, strict=True)
    return [waited for span, least in spans if (waited := waited_for(flows, span, least)) is not None]


def between_hosts(flows: pl.DataFrame, hosts: Mapping[str, str]) -> pl.DataFrame:
    """Return flows of training as `waited_for` takes them, in order.

    Parameters
    ----------
    hosts : host by NIC
    """
    ends = {name: pl.col(end).replace_strict(hosts, default=None) for name, end in ENDS.items()}
    return nic_pairs.named(flows).sort("flow_start_ns").select("flow_start_ns", "flow_end_ns", **ends)


def waited_for(flows: pl.DataFrame, span: tuple[int, int], least_ns: float) -> tuple[str, int] | None:
    """Return the one host that is waited for in the longest silence of a step, and how long that lasted.

    None if it was shorter than `least_ns`, if most hosts had not begun, or of two hosts. Who sends to the late host may
    have to wait before it sends anything; of two that have not begun, the late one sends to somebody who has.

    Parameters
    ----------
    flows : `sender` and `receiver` (hosts), `flow_start_ns`, `flow_end_ns`; sorted
    """
    start_ns, end_ns = span
    around = flows.filter(pl.col("flow_start_ns").is_between(start_ns - (end_ns - start_ns), end_ns))
    begins, until = around["flow_start_ns"].to_numpy(), np.maximum.accumulate(around["flow_end_ns"].to_numpy())
    gaps = np.where(begins[1:] > start_ns, begins[1:] - until[:-1], 0)
    if not gaps.size or gaps.max() < least_ns:
        return None
    at = int(gaps.argmax())
    sent = around[: at + 1].group_by("sender").agg(pl.col("flow_start_ns").max()).sort("flow_start_ns", "sender")
    last = sent["flow_start_ns"].to_numpy()
    apart = np.diff(last)
    missing = int(apart.argmax()) + 1 if apart.size else 0
    if (
        not 0 < missing <= MOST_MISSING
        or not LEAST_VOTERS <= last.size >= 2 * missing
        or apart.max() <= max(last[-1] - last[missing], CLOCK_ERROR_NS)
    ):
        return None
    absent = sent["sender"][:missing]
    hops = around.filter(pl.col("sender").is_in(absent.implode()), pl.col("sender") != pl.col("receiver"))
    onward = hops.group_by("sender").agg(blocked=pl.col("receiver").is_in(absent.implode()).any())
    late = onward.filter(~pl.col("blocked"))["sender"].to_list()
    return (str(late[0]), int(gaps[at])) if len(late) == 1 else None
