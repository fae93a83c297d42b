"""Switch-level: a switch whose transfers are slow while those that avoid it are not."""

from __future__ import annotations

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import ROW, Evidence
from llmprism_tasks.stages.diagnosis.transfers import PART, parts, slow_parts


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the switches that all slow transfers share and few quick ones cross.

    `score` is the ratio of the slow transfers' time per byte to the usual; `severity` the same less one, a loss of rate, not of step time. A
    switch crossed by one ring alone is named only when a pair or ring of another kind or job confirms it: a slow NIC
    would look the same.
    """
    measured = slow_parts(
        parts(evidence, least_bytes=settings.least_bytes),
        slow_rate=settings.slow_rate,
        least_peers=settings.least_peers,
    )
    crossings = measured.explode("switches").rename({"switches": "switch"}).filter(pl.col("switch").is_not_null())
    rows = []
    while True:
        suspect = _most_suspect(crossings, settings)
        if suspect is None:
            return pl.DataFrame(rows, schema=ROW)
        slow = crossings.filter(pl.col("switch") == suspect, pl.col("slow"))
        rows.extend(_rows(suspect, slow, crossings, evidence))
        # What one switch explains needs no other.
        crossings = crossings.join(slow.select(PART).unique(), on=PART, how="anti")


def _most_suspect(crossings: pl.DataFrame, settings: DiagnosisSettings) -> str | None:
    by_switch = (
        crossings.group_by("switch")
        .agg(crossing=pl.len(), slow=pl.col("slow").sum(), records=pl.col("records").filter("slow").sum())
        .filter(
            pl.col("slow") >= settings.persistence * pl.col("crossing"),
            pl.col("slow") >= settings.least_transfers,
            pl.col("records") >= settings.least_records,
        )
        .sort("slow", "crossing", "switch", descending=[True, False, False])
    )
    return None if by_switch.is_empty() else str(by_switch["switch"][0])


def _rows(switch: str, slow: pl.DataFrame, crossings: pl.DataFrame, evidence: Evidence) -> list[dict[str, object]]:
    crossing = crossings.filter(pl.col("switch") == switch).height
    rows = []
    for (job_id,), mine in slow.group_by("job_id", maintain_order=True):
        ratio = float((mine["now"] / mine["usual"]).median())  # type: ignore[arg-type]
        rate = 8 / float(mine["now"].median())  # type: ignore[arg-type]
        rows.append(
            {
                "job_id": job_id,
                "kind": "switch_level",
                "subject_type": "switch",
                "subject": switch,
                "start_ns": evidence.window.start_ns,
                "end_ns": evidence.window.end_ns,
                "score": ratio,
                "severity": ratio - 1,
                "explanation": f"{slow.height} of {crossing} rings and pipeline pairs across {switch} are slow; "
                f"those of this job take {ratio:.2f} times the usual time per byte ({rate:.1f} Gbit/s)",
            }
        )
    return rows
