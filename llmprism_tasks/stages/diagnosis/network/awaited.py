"""Awaited: a NIC or host whose best pace fell when its job became slower, though no transfer of it shows that it waits.

Where each layer's parameters are gathered, all rings of a job wait for the slowest one, so that all others have longer
transfers, and the slow ring has not: nobody in it comes early. The pace at best of the slow NIC alone tells.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from llmprism_tasks.numerics.robust import MAJORITY
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.network.best_pace import became_slow, verdicts
from llmprism_tasks.stages.diagnosis.step_times.unexplained import effects_only
from llmprism_tasks.stages.traffic import nic_pairs

Row = dict[str, Any]


def find(found: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the only latent NIC or host of a job that became slower, if what it moves takes longer by most of the loss.

    `score` is the ratio of time per byte to that before, `severity` the ratio by which the job's steps are longer, and
    `confidence` the share of it that it explains.

    Parameters
    ----------
    found : rows of `evidence.FINDING_SCHEMA` from all other detectors. A job with any finding but effects and a latent
        NIC or host is left out.
    """
    hidden = pl.col("kind") == "latent"
    alone = found.filter(hidden, (pl.len() == 1).over("job_id", "kind"), pl.col("subject_type").is_in(("addr", "host")))
    slower = effects_only(found.filter(~hidden)).select("job_id", "start_ns", "end_ns", "severity")
    rows = []
    for row in alone.drop("start_ns", "end_ns", "severity").join(slower, on="job_id").iter_rows(named=True):
        named = _row(row, evidence, settings)
        rows += [] if named is None else [named]
    return pl.DataFrame(rows, schema=FINDING_SCHEMA)


def _row(row: Row, evidence: Evidence, settings: DiagnosisSettings) -> Row | None:
    subject, of_job = row["subject"], pl.col("job_id") == row["job_id"]
    nics = evidence.members.filter(of_job, pl.col(row["subject_type"]) == subject)["addr"].implode()
    judged = evidence.once(verdicts, settings).filter(of_job, pl.any_horizontal(pl.col(nic_pairs.PAIR).is_in(nics)))
    slow = judged.filter(became_slow(settings))
    steps = evidence.history.filter(of_job, pl.col("current"), pl.col("start_ns") >= row["start_ns"])
    if slow.is_empty() or steps.is_empty():
        return None
    flows = nic_pairs.named(evidence.flows.filter(of_job, pl.col("flow_start_ns") >= steps["start_ns"].min()))
    ends = [flows.select("bytes", addr=end, way=pl.lit(end)) for end in nic_pairs.PAIR]
    moved = pl.concat(ends).filter(pl.col("addr").is_in(nics)).group_by("addr", "way").agg(pl.col("bytes").sum())
    most = moved.select(pl.col("bytes").max() / steps.height).item() or 0.0
    now, times = slow.select(pl.col("now").median(), pl.col("by_past").median().exp()).row(0)
    longer_ns = most * now * (1 - 1 / times)
    length = (steps["end_ns"] - steps["start_ns"]).median()
    lost_ns = row["severity"] / (1 + row["severity"]) * length
    confidence = min(longer_ns / lost_ns, 1.0)
    if confidence < MAJORITY:
        return None
    return row | {
        "kind": "slow_nic",
        "score": times,
        "confidence": confidence,
        "peers": None,
        "explanation": f"{subject} lets data pass at {8 / now:.2f} Gbit/s at best, {times:.1f} times the time per byte "
        f"that it took before, and the job's steps take {1 + row['severity']:.2f} times as long since. "
        f"This explains {confidence:.0%} of the loss.",
    }
