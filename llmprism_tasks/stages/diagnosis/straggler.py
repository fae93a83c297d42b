"""Straggler: a host or GPU that works longer than its peers while the whole job waits for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from llmprism_tasks.methods import runs
from llmprism_tasks.methods.series import SIGMA_PER_MAD
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import ROW, Evidence, slowdown
from llmprism_tasks.stages.own_work import own_work

SAME_TRANSFER = 0.98
"""Ratio of two neighbours' own times above which both ended with one transfer between them, give or take its start."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name those whose own work takes longer than their peers', step after step, by enough to slow the job.

    `score` is the excess in robust deviations of the job's NICs (0 is normal); `severity` the ratio by which the
    job's steps are longer than its quick ones, or, where that is more, the excess itself over the step.
    """
    work = own_work(evidence.flows, evidence.steps.filter("current"), evidence.groups)
    length = pl.col("end_ns") - pl.col("start_ns")
    work = work.filter(pl.col("usual_ns") >= settings.least_work * length).with_columns(
        excess=pl.col("own_ns") / pl.col("usual_ns") - 1,
        loss=(pl.col("own_ns") - pl.col("usual_ns")) * pl.col("times") / length,
    )
    if work.is_empty():
        return pl.DataFrame(schema=ROW)
    noise = SIGMA_PER_MAD * pl.col("excess").abs().median().over("job_id")
    work = work.with_columns(noise=pl.max_horizontal(noise, settings.least_noise))
    suspects = _persistent(work, settings)
    return _rows(_worst(_not_waiting(suspects, evidence), evidence), evidence)


def _persistent(work: pl.DataFrame, settings: DiagnosisSettings) -> pl.DataFrame:
    """Find for each NIC the run of steps in which it is slow, and keep those that are long and slow enough."""
    work = work.sort("job_id", "addr", "step_index").with_columns(
        above=pl.col("excess") - pl.max_horizontal(settings.least_effect, settings.noise_margin * pl.col("noise"))
    )
    series = work.group_by("job_id", "addr", maintain_order=True).agg(pl.len(), pl.col("component").first())
    offsets = np.concatenate([[0], np.cumsum(series["len"].to_numpy())]).astype(np.int64)
    first, last, _ = runs.best_runs(work["above"].to_numpy(), offsets)
    bounds = series.select("job_id", "addr").with_columns(first=pl.Series(first), last=pl.Series(last))
    in_run = (
        work.with_row_index("row")
        .join(bounds, on=["job_id", "addr"])
        .filter(pl.col("row").cast(pl.Int64).is_between(pl.col("first"), pl.col("last")))
    )
    return (
        in_run.group_by("job_id", "component", "addr")
        .agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("excess", "loss", "own_ns", "usual_ns").median(),
            score=pl.col("excess").median() / pl.col("noise").first(),
            slow=(pl.col("above") > 0).sum(),
            steps=pl.len(),
        )
        .filter(
            pl.col("slow") >= settings.least_steps,
            pl.col("slow") >= settings.persistence * pl.col("steps"),
            pl.col("loss") >= settings.least_effect,
            pl.col("score") >= settings.sigmas,
        )
    )


def _not_waiting(suspects: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Excuse who may only have waited for its successor in the ring: a transfer can begin late because of either
    end."""
    hops = (
        evidence.flows.filter(pl.col("kind") == "dp").select("job_id", addr="src_addr", successor="dst_addr").unique()
    )
    piped = pl.concat(
        [evidence.flows.filter(pl.col("kind") == "pp").select(addr=end) for end in ("src_addr", "dst_addr")]
    )
    later = suspects.select("job_id", successor="addr", their_own_ns="own_ns")
    excused = (
        suspects.join(piped.unique(), on="addr", how="anti")
        .join(hops, on=["job_id", "addr"])
        .join(later, on=["job_id", "successor"])
        .filter(pl.col("their_own_ns") >= pl.col("own_ns") * SAME_TRANSFER)
    )
    return suspects.join(excused, on=["job_id", "addr"], how="anti")


def _worst(suspects: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    """Join the NICs of one host, which slow down together, and keep those that cost about as much as the worst of the
    job."""
    joined = suspects.join(evidence.members, on=["job_id", "addr"])
    in_host = evidence.members.group_by("job_id", "host").agg(nics=pl.len())
    hosts = (
        joined.group_by("job_id", "host")
        .agg(
            pl.col("addr").sort().first(),
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.col("excess", "loss", "own_ns", "usual_ns", "score", "slow", "steps").median(),
            found=pl.len(),
        )
        .join(in_host, on=["job_id", "host"])
        .with_columns(whole=(pl.col("found") > 1) & (2 * pl.col("found") >= pl.col("nics")))
    )
    single = joined.join(hosts.filter("whole"), on=["job_id", "host"], how="anti").with_columns(whole=False, found=1)
    columns = [
        "job_id",
        "host",
        "addr",
        "start_ns",
        "end_ns",
        "excess",
        "loss",
        "own_ns",
        "usual_ns",
        "score",
        "slow",
        "steps",
        "found",
        "whole",
    ]
    both = [
        part.select(columns).cast({"slow": pl.Float64, "steps": pl.Float64, "found": pl.Int64})
        for part in (hosts.filter("whole"), single)
    ]
    return pl.concat(both).filter(2 * pl.col("loss") >= pl.col("loss").max().over("job_id"))


def _peers(evidence: Evidence) -> Callable[[str, str], list[str]]:
    """Return a function from a job and one of its NICs or hosts to the other NICs of its data-parallel groups."""
    placed = evidence.groups.join(evidence.members, on=["job_id", "addr"])

    def of(job_id: str, subject: str) -> list[str]:
        own = pl.any_horizontal(pl.col("addr", "host") == subject)
        members = placed.filter(pl.col("job_id") == job_id)
        groups = members.filter(own)["component"].unique()
        return members.filter(pl.col("component").is_in(groups.implode()), ~own)["addr"].sort().to_list()

    return of


def _rows(culprits: pl.DataFrame, evidence: Evidence) -> pl.DataFrame:
    rows = []
    peers = _peers(evidence)
    for found in culprits.sort("job_id", "loss", "host", "addr", descending=[False, True, False, False]).iter_rows(
        named=True
    ):
        history = evidence.history.filter(pl.col("job_id") == found["job_id"])
        severity = max(slowdown(history, found["start_ns"], found["end_ns"]), found["loss"])
        who = (
            f"Host {found['host']} ({found['found']} NICs)" if found["whole"] else f"{found['addr']} on {found['host']}"
        )
        rows.append(
            {
                "job_id": found["job_id"],
                "kind": "straggler",
                "subject_type": "host" if found["whole"] else "addr",
                "subject": found["host"] if found["whole"] else found["addr"],
                "start_ns": found["start_ns"],
                "end_ns": found["end_ns"],
                "score": found["score"],
                "severity": severity,
                "explanation": f"{who} takes {1 + found['excess']:.2f} times as long as its peers to begin sending "
                f"({found['own_ns'] / 1e6:.0f} ms against {found['usual_ns'] / 1e6:.0f} ms) "
                f"in {found['slow']:.0f} of {found['steps']:.0f} steps, with nobody to wait for; "
                f"the job's steps take {1 + severity:.2f} times as long as they need to.",
                "confidence": min(found["loss"] / severity, 1.0),
                "peers": peers(found["job_id"], found["host"] if found["whole"] else found["addr"]),
            }
        )
    return pl.DataFrame(rows, schema=ROW)
