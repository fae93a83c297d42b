"""Hangs: a job that fell silent in the middle of a step, with the NIC or host that stopped first; or a stopped job."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence, shares
from llmprism_tasks.stages.liveness.first_stopped import FirstStopped, confirm_by_return, find_first_stopped, late_pairs
from llmprism_tasks.stages.liveness.overdue import Silence

SURE, UNSURE = 0.9, 0.5
"""Confidence if it is known which NIC or host stopped first, and if it is not."""

EVEN_ODDS = 0.5
"""Chance of a hang where everything that was seen fell silent with the job, and nobody of it before the others: a
collector that stops looks the same."""

SUBJECT_NOUNS = {"addr": "NIC", "host": "Host"}
"""Types of subjects in the words of an explanation."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the jobs that are overdue in the middle of a step, as `hang` or as `stopped`.

    The subject of `hang` is the NIC or host that stopped first, if that is known, else the job. `severity` is the
    ratio by which the step is longer than typical. `score` is the silence over the longest silence before.

    A job whose members all stopped at the same moment, or that has restarted since, is `stopped` with severity 0: it
    crashed or was cancelled, and its GPUs are free. If it restarted with other NICs in place of those of one host,
    those NICs are the subject; else who stopped first, if others were overdue. Of a guess, the job is the subject, and
    the hosts are its candidates.

    No row is written if no member stopped before the others and all had come equally far, because the job may have
    ended there; nor if nothing else is seen any more, because the collector may be silent. If something shows who
    stopped first, but nobody was overdue, it is told then with `EVEN_ODDS` of its confidence.
    """
    rows = []
    for silence in evidence.silences:
        members = evidence.members.filter(pl.col("job_id") == silence.gap.job_id)
        at = dict(members.select("addr", "host").rows())
        late = late_pairs(silence.where, at, settings).height > 0
        first = find_first_stopped(silence.where, at, silence.stages, late=late)
        if not (silence.restarted or silence.alone or silence.where.level):
            first = confirm_by_return(first, silence.resumed, at)
        quiet = (_replaced(silence, at) or (first if late else None)) if silence.restarted else first
        hangs = not silence.restarted and (silence.over or late or first is not None)
        if late or first is not None or quiet is not None or not (silence.where.even or silence.alone):
            unseen = silence.alone and not (late or silence.over)
            rows.append(_row(silence, quiet, at | dict(silence.replaced), hangs=hangs, unseen=unseen))
    return pl.DataFrame(rows, schema=FINDING_SCHEMA)


def _replaced(silence: Silence, hosts: dict[str, str]) -> FirstStopped | None:
    """Return the NICs that were replaced, if all are of one host: an operator replaced them for a reason."""
    if len(set(silence.replaced.values())) != 1:
        return None
    spares = sorted({hosts[addr] for addr in silence.replacements})
    if set(spares) & set(silence.replaced.values()):  # another NIC of the same host
        spares = sorted(silence.replacements)
    return FirstStopped(tuple(silence.replaced), None, f"was replaced by {', '.join(spares)}")


def _row(
    silence: Silence, quiet: FirstStopped | None, hosts: dict[str, str], *, hangs: bool, unseen: bool
) -> dict[str, object]:
    gap, where = silence.gap, silence.where
    silent_s, period_s = ((ns / 1e9) for ns in (silence.until_ns - gap.since_ns, where.period_ns))
    subject_type, subject, peers = _subject(gap.job_id, quiet, hosts)
    odds = None if quiet is None else _tie(quiet, hosts)
    stood = f"{'in the middle of' if where.midway else 'after'} a step of {period_s:.1f} s, and "
    if silence.over:
        stood += f"was silent for {silent_s:.0f} s until it {'restarted' if silence.restarted else 'went on'}."
    else:
        stood += f"had been silent for {silent_s:.0f} s when the window ended."
    if quiet is not None and quiet.guess:
        who = f" It may be host {hosts[quiet.addrs[0]]}, which {quiet.reason}, or host {quiet.other}."
    elif quiet is not None:
        first = "" if silence.restarted else "stopped first: it "
        who = f" {SUBJECT_NOUNS[subject_type]} {subject} {first}{quiet.reason}." if quiet.addrs else ""
        who += f" It may also have been host {quiet.other}." if quiet.other else ""
    elif silence.restarted:
        who = ""
    else:
        who = " The flows do not show which NIC stopped first." if hangs else " All members stopped at the same moment."
    if unseen:
        who += " No other flow was seen since, so the collector may have stopped instead."
    sure = SURE if quiet is not None and quiet.other is None else UNSURE
    return {
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
        "candidates": odds and list(odds),
        "odds": odds and list(odds.values()),
    }


def _tie(quiet: FirstStopped, hosts: dict[str, str]) -> dict[str, float] | None:
    """Return the two hosts that may have stopped first, with their probabilities; None if there is no other."""
    if quiet.other is None:
        return None
    return shares({hosts[quiet.addrs[0]]: quiet.chance, quiet.other: 1 - quiet.chance})


def _subject(job_id: str, quiet: FirstStopped | None, hosts: dict[str, str]) -> tuple[str, str, list[str] | None]:
    """Return the subject's type, the subject and its peers: a host if at least half of its NICs stopped together, the
    job if nothing, or only a guess, says who."""
    if quiet is None or quiet.guess:
        return "job", job_id, None
    host = hosts[quiet.addrs[0]]
    inside = [addr for addr, place in hosts.items() if place == host]
    others = sorted(addr for addr, place in hosts.items() if place != host)
    if len(quiet.addrs) > 1 and 2 * len(quiet.addrs) >= len(inside):
        return "host", host, others
    return "addr", quiet.addrs[0], others
