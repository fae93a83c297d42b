"""Cross-step: a job whose steps have become slower than they were."""

from __future__ import annotations

import numpy as np
import polars as pl

from llmprism_tasks.methods import runs
from llmprism_tasks.methods.series import SIGMA_PER_MAD
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import ROW, Evidence


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the jobs that had a run of slow steps in the window, against the typical step of look-back and window.

    A change counts when it exceeds the least effect and the job's own noise, and lasts. `score` is the excess in
    robust deviations of the job's step times; `severity` the ratio by which the run's steps are longer than typical.
    """
    rows = []
    for (job_id,), steps in evidence.history.group_by("job_id", maintain_order=True):
        row = _slow_run(str(job_id), steps, settings)
        if row is not None:
            rows.append(row)
    return pl.DataFrame(rows, schema=ROW)


def _slow_run(job_id: str, steps: pl.DataFrame, settings: DiagnosisSettings) -> dict[str, object] | None:
    length = (steps["end_ns"] - steps["start_ns"]).to_numpy().astype(np.float64)
    if length.size < 2 * settings.least_steps:
        return None
    # The lower quartile is a healthy step as long as a trouble spares a quarter of the look-back.
    usual = float(np.quantile(length, 0.25))
    excess = length / usual - 1
    # All steps count for the noise: a job that drifts by itself, on a busy machine, is not news each time it does.
    noise = max(SIGMA_PER_MAD * float(np.median(np.abs(excess - np.median(excess)))), settings.least_noise)
    margin = max(settings.least_effect, settings.noise_margin * noise)
    current = steps["current"].to_numpy()
    above = np.where(current, excess - margin, np.nan)
    (first,), (last,), _ = runs.best_runs(above, np.array([0, length.size]))
    if first < 0:
        return None
    run = excess[first : last + 1]
    slow = int((run > margin).sum())
    score = float(np.median(run)) / noise
    if slow < settings.least_steps or slow < settings.persistence * run.size or score < settings.sigmas:
        return None
    severity = float(np.median(run))
    return {
        "job_id": job_id,
        "kind": "cross_step",
        "subject_type": "job",
        "subject": job_id,
        "start_ns": int(steps["start_ns"][int(first)]),
        "end_ns": int(steps["end_ns"][int(last)]),
        "score": score,
        "severity": severity,
        "explanation": f"Steps take {usual * (1 + severity) / 1e9:.2f} s instead of {usual / 1e9:.2f} s, "
        f"{slow} of {run.size} in a row.",
        "confidence": None,
        "peers": None,
    }
