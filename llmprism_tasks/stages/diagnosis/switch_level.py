"""Switch-level: a switch whose transfers are slow while those that avoid it are not."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import ROW, Evidence, slowdown
from llmprism_tasks.stages.diagnosis.transfers import PART, parts, slow_parts


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the switches that all slow transfers share and few quick ones cross.

    `score` is the ratio of the slow transfers' time per byte to the usual; `severity` the ratio by which the job's
    steps are longer than its quick ones, often little: synchronisation hides behind computing.
    A switch that one ring alone crosses is not named: a slow NIC would look the same.
    """
    crossings = _crossings(evidence, settings)
    rows: list[dict[str, object]] = []
    for switch, slow in _culprits(crossings, settings):
        rows.extend(_rows(switch, slow, crossings, evidence))
    return pl.DataFrame(rows, schema=ROW)


def explained(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return the rings and pairs whose slowness a switch explains: `job_id`, `kind`, `part`."""
    crossings = _crossings(evidence, settings)
    found = [slow.select(PART) for _, slow in _culprits(crossings, settings)]
    return pl.concat([crossings.select(PART).head(0), *found]).unique()


def _crossings(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Return each ring and pair once for every switch that it crosses, `slow` when most of its paths across it are.

    A path that few records took is left out: its quickest may all have waited.
    """
    paths = parts(evidence, least_bytes=settings.least_bytes, by_path=True)
    judged = slow_parts(
        paths.filter(pl.col("records") >= settings.least_records),
        slow_rate=settings.slow_rate,
        least_peers=settings.least_peers,
    )
    return (
        judged.explode("switches")
        .rename({"switches": "switch"})
        .filter(pl.col("switch").is_not_null())
        .group_by("switch", *PART)
        .agg(pl.col("now", "usual").median(), slow=pl.col("slow").mean() >= settings.persistence)
        .sort("switch", *PART)
    )


def _culprits(crossings: pl.DataFrame, settings: DiagnosisSettings) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the most suspect switch with the slow transfers across it, then the next among what it leaves
    unexplained."""
    while (switch := _most_suspect(crossings, settings)) is not None:
        slow = crossings.filter(pl.col("switch") == switch, pl.col("slow"))
        yield switch, slow
        crossings = crossings.join(slow.select(PART).unique(), on=PART, how="anti")


def _most_suspect(crossings: pl.DataFrame, settings: DiagnosisSettings) -> str | None:
    by_switch = (
        crossings.group_by("switch")
        .agg(crossing=pl.len(), slow=pl.col("slow").sum())
        .filter(
            pl.col("slow") >= settings.persistence * pl.col("crossing"),
            pl.col("slow") >= settings.least_transfers,
        )
        .sort("slow", "crossing", "switch", descending=[True, False, False])
    )
    return None if by_switch.is_empty() else str(by_switch["switch"][0])


def _rows(switch: str, slow: pl.DataFrame, crossings: pl.DataFrame, evidence: Evidence) -> list[dict[str, object]]:
    crossing = crossings.filter(pl.col("switch") == switch).height
    rows = []
    for (job_id,), mine in slow.group_by("job_id", maintain_order=True):
        history = evidence.history.filter(pl.col("job_id") == job_id)
        ratio = float((mine["now"] / mine["usual"]).median())  # type: ignore[arg-type]
        quick = crossings.filter(pl.col("job_id") == job_id, pl.col("switch") != switch, ~pl.col("slow"))
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
                "severity": slowdown(history, evidence.window.start_ns, evidence.window.end_ns),
                "explanation": f"{slow.height} of {crossing} rings and pipeline pairs across {switch} are slow; "
                f"those of this job take {ratio:.2f} times the usual time per byte ({rate:.1f} Gbit/s).",
                "confidence": None,
                "peers": quick["switch"].unique().sort().to_list(),
            }
        )
    return rows
