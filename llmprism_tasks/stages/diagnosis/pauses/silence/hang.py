"""Hangs: a job that fell silent in the middle of a step, with the NIC or host that stopped first; or a stopped job."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.numerics.robust import EVEN_ODDS, SURE
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence, candidate_columns, shares
from llmprism_tasks.stages.diagnosis.pauses.silence.readings import readings
from llmprism_tasks.stages.liveness.first_stopped import LEAST_CHANCE, FirstStopped, find_first_stopped
from llmprism_tasks.stages.liveness.overdue import Silence

READINGS = {"together": "all together, as when a job is killed"}
"""What else may have happened, in the words of an explanation."""

SUBJECT_NOUNS = {"addr": "NIC", "host": "Host"}
"""Types of subjects in the words of an explanation."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the jobs that are overdue in the middle of a step, as `hang` or as `stopped`.

    The subject of `hang` is the NIC or host that stopped first, if that is sure, else the job, with the hosts that may
    have as its candidates. `severity` is the ratio by which the step is longer than typical. `score` is the silence
    over the longest silence before.

    A job whose members all stopped at the same moment, or that has restarted since, is `stopped` with severity 0: it
    crashed or was cancelled, and its GPUs are free. If it restarted with other NICs in place of those of one host,
    those NICs are the subject.

    No row is written if no member stopped before the others and all had come equally far, because the job may have
    ended or paused there, unless the place in the step makes it sure that it did not; nor if nothing else is seen any
    more, because the collector may be silent. If something shows who stopped first, it is told then with `EVEN_ODDS` of
    its confidence.
    """
    del settings
    rows = []
    for silence in evidence.silences:
        members = evidence.members.filter(pl.col("job_id") == silence.gap.job_id)
        at = dict(members.select("addr", "host").rows())
        went_on = silence.over and not silence.restarted
        cut_off = not went_on and readings(silence).get("hung", 0.0) >= SURE
        may_have_ended = silence.unwitnessed or (silence.where.even and not cut_off)
        first = find_first_stopped(silence.where, at, together=not went_on or may_have_ended)
        quiet = (_replaced_nics(silence, at) if silence.restarted else None) or first
        if quiet is not None or not may_have_ended:
            hangs = not silence.restarted and (silence.over or first is not None)
            rows.append(_row(silence, quiet, at | dict(silence.replaced), hangs=hangs))
    return pl.DataFrame(rows, schema=FINDING_SCHEMA)


def _replaced_nics(silence: Silence, hosts: dict[str, str]) -> FirstStopped | None:
    """Return the NICs that were replaced, if all are of one host: an operator replaced them for a reason."""
    places = set(silence.replaced.values())
    if len(places) != 1:
        return None
    spares = sorted({hosts[addr] for addr in silence.replacements})
    if set(spares) & places:  # another NIC of the same host
        spares = sorted(silence.replacements)
    return FirstStopped({places.pop(): 1.0}, tuple(silence.replaced), f"was replaced by {', '.join(spares)}")


def _row(silence: Silence, first: FirstStopped | None, hosts: dict[str, str], *, hangs: bool) -> dict[str, object]:
    gap, where = silence.gap, silence.where
    silent_s, period_s = ((ns / 1e9) for ns in (silence.until_ns - gap.since_ns, where.period_ns))
    subject_type, subject, peers = _subject(gap.job_id, first, hosts)
    odds = {} if first is None or first.is_sure else _odds(first)
    unseen = silence.alone and not silence.over and not (first is not None and first.is_late)
    stood = f"{'in the middle of' if where.midway else 'after'} a step of {period_s:.1f} s, and "
    if silence.over:
        stood += f"was silent for {silent_s:.0f} s until it {'restarted' if silence.restarted else 'went on'}."
    else:
        stood += f"had been silent for {silent_s:.0f} s when the window ended."
    name = f"{SUBJECT_NOUNS.get(subject_type)} {subject}"
    who = _said(first, name, hangs=hangs, even=where.even, restarted=silence.restarted)
    if unseen:
        who += " No other flow was seen since, so the collector may have stopped instead."
    # Where everything that was seen fell silent with the job, a collector that stops looks the same.
    sure = EVEN_ODDS if first is None or odds else SURE
    return candidate_columns(odds) | {
        "job_id": gap.job_id,
        "kind": "hang" if hangs else "stopped",
        "subject_type": subject_type,
        "subject": subject,
        "start_ns": gap.since_ns,
        "end_ns": silence.until_ns,
        "score": silent_s * 1e9 / max(gap.longest_ns, where.period_ns),
        "severity": silent_s / period_s if hangs else 0.0,
        "explanation": f"The job fell silent {stood}{who}",
        "confidence": EVEN_ODDS * sure if unseen else sure,
        "peers": peers,
    }


def _odds(first: FirstStopped) -> dict[str, float]:
    """Return how likely each host stopped first, and that all stopped together, if that is worth a word."""
    together = {"together": first.together} if first.together >= LEAST_CHANCE else {}
    return shares({**first.chances, **together})


def _said(first: FirstStopped | None, name: str, *, hangs: bool, even: bool, restarted: bool) -> str:
    """Return the sentences that say who stopped first."""
    if first is not None and first.is_sure:
        return f" {name} {'' if restarted else 'stopped first: it '}{first.reason}."
    if first is not None:
        may_be = [f"{READINGS.get(one, one)} ({odd:.0%})" for one, odd in _odds(first).items()]
        return f" It is not sure which host stopped first: {', '.join(may_be)}. Host {first.host} {first.reason}."
    if restarted:
        return ""
    if hangs:
        return " The flows do not show which NIC stopped first."
    if even:
        return " All members had come equally far: the job was killed, or it hangs and the flows do not show why."
    return " All members stopped at the same moment."


def _subject(job_id: str, first: FirstStopped | None, hosts: dict[str, str]) -> tuple[str, str, list[str] | None]:
    """Return the subject's type, the subject and its peers: a host if at least half of its NICs stopped together, the
    job if it is not sure who did."""
    if first is None or not first.is_sure:
        return "job", job_id, None
    inside = [addr for addr, place in hosts.items() if place == first.host]
    others = sorted(addr for addr, place in hosts.items() if place != first.host)
    if len(first.addrs) > 1 and 2 * len(first.addrs) >= len(inside):
        return "host", first.host, others
    return "addr", first.addrs[0], others
