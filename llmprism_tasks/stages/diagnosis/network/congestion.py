"""Congestion: transfers that are slow only while another job sends over the same link."""

from __future__ import annotations

from typing import Any

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.network.path_pace import HOP_ON_PATH

Row = dict[str, Any]

BURST = ["flow_start_ns", "flow_end_ns"]


def colliding_job(
    culprit: Row, slow: pl.DataFrame, records: pl.DataFrame, evidence: Evidence, settings: DiagnosisSettings
) -> str | None:
    """Return the job whose bursts overlap with our slow records and not with our quick ones; None if there is none.

    Parameters
    ----------
    culprit : the link: `device_type`, `device`
    slow : our job's slow hops across the link: `HOP_ON_PATH`, `usual` (ns per byte)
    records : as `path_pace.placed` returns
    """
    pace = (pl.col("flow_end_ns") - pl.col("flow_start_ns")) / pl.col("bytes")
    ours = (
        records.join(slow.select(*HOP_ON_PATH, "usual"), on=HOP_ON_PATH, nulls_equal=True)
        .select(*BURST, slow=pace >= settings.slow_rate * pl.col("usual"))
        .sort("flow_end_ns", "flow_start_ns")
    )
    others = flows_across_link(evidence, culprit, slow["job_id"][0])
    met = []
    for (job_id,), bursts in others.group_by("job_id", maintain_order=True):
        meets = _is_overlapping(ours, bursts)
        when_slow, when_quick = (_overlap_share(meets.filter(which)) for which in (ours["slow"], ~ours["slow"]))
        if when_slow >= settings.persistence and when_quick <= 1 - settings.persistence:
            met.append((when_slow - when_quick, str(job_id)))
    return max(met)[1] if met else None


def flows_across_link(evidence: Evidence, culprit: Row, job_id: str) -> pl.DataFrame:
    """Return the flows of other jobs that cross a link, or one direction of it, sorted by job."""
    one_way = culprit["device_type"] == "one_way"
    first, second = culprit["device"].split(" to " if one_way else " - ")
    others = evidence.with_paths(evidence.flows.filter(pl.col("job_id") != job_id))
    path = pl.concat_str(pl.lit(" "), pl.col("switch_path").list.join(" "), pl.lit(" "))
    ways = [(first, second)] if one_way else [(first, second), (second, first)]
    crossing = pl.any_horizontal(path.str.contains(f" {a} {b} ", literal=True) for a, b in ways)
    return others.filter(crossing).sort("job_id")


def _overlap_share(met: pl.Series) -> float:
    return 0.0 if met.is_empty() else float(met.mean())  # type: ignore[arg-type]


def _is_overlapping(ours: pl.DataFrame, bursts: pl.DataFrame) -> pl.Series:
    """Return for each of our records, sorted by end, whether it overlaps with a burst of the other job."""
    theirs = (
        bursts.select(begin_ns="flow_start_ns", until_ns="flow_end_ns")
        .sort("begin_ns")
        .with_columns(pl.col("until_ns").cum_max())  # the burst that begins last may end before an earlier one
    )
    joined = ours.join_asof(theirs, left_on="flow_end_ns", right_on="begin_ns", strategy="backward")
    return joined.select((pl.col("until_ns") >= pl.col("flow_start_ns")).fill_null(value=False)).to_series()
