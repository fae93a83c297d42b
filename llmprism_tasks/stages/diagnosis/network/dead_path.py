"""Dead paths: a NIC that could not be reached for a while, because its link went down and came back (`link_flap`).

Nothing of what is lost on a dead path tells of it, but the sender does, which tries again and again. What all tries in
vain of one time have in common is their receiver: they were seen at the switches of their senders.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, HEALTHY_STEP_QUANTILE, Evidence


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the NICs to which members tried to send in vain, in steps of the window that took longer for it.

    `score` is how many tries were counted. `severity` is the ratio by which the steps lengthen the window's.
    """
    del settings
    rows = []
    for (job_id, addr), tries in evidence.retried.group_by("job_id", "dst_addr", maintain_order=True):
        row = _row(str(job_id), str(addr), tries, evidence.history.filter(pl.col("job_id") == job_id))
        if row is not None:
            rows.append(row)
    return pl.DataFrame(rows, schema=FINDING_SCHEMA)


def _row(job_id: str, addr: str, tries: pl.DataFrame, history: pl.DataFrame) -> dict[str, object] | None:
    starts, ends, current = (history[name].to_numpy() for name in ("start_ns", "end_ns", "current"))
    since, until = (tries[name].to_numpy()[:, np.newaxis] for name in ("since_ns", "until_ns"))
    met = ((since < ends) & (until > starts)).any(axis=0) & current
    if not met.any():
        return None
    usual_ns = float(np.quantile(ends - starts, HEALTHY_STEP_QUANTILE))
    excess = (ends - starts)[met] - usual_ns
    dead_ns = int(until.max() - since.min())
    # The remainder may be hidden behind what others had to do anyway.
    if excess.sum() < MAJORITY * dead_ns:
        return None
    senders = tries["src_addr"].unique().sort()
    steps = "One step" if excess.size == 1 else f"{excess.size} steps"
    return {
        "job_id": job_id,
        "kind": "link_flap",
        "subject_type": "addr",
        "subject": addr,
        "start_ns": int(since.min()),
        "end_ns": int(ends[met].max()),
        "score": float(tries.height),
        "severity": float(excess.sum()) / (usual_ns * int(current.sum())),
        "explanation": f"{', '.join(senders)} sent one packet to {addr} again and again for {dead_ns / 1e9:.1f} s, "
        f"each time after twice as long, and nothing came back. {steps} took {excess.sum() / 1e9:.1f} s longer.",
        "confidence": 1.0,
        "peers": senders.to_list(),
        "steps": int(excess.size),
        "lost_s": float(excess.sum()) / 1e9,
    }
