"""Slow run: a job whose steps became slower than before, for several steps in a row (kind `cross_step`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from llmprism_tasks.numerics import binomial
from llmprism_tasks.numerics.max_subarray import best_runs
from llmprism_tasks.numerics.robust import MAJORITY, Flags, Floats, sigma_of, student_factor
from llmprism_tasks.settings import DiagnosisSettings
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, HEALTHY_STEP_QUANTILE, Evidence
from llmprism_tasks.stages.diagnosis.step_times.workload import without_heavier

NOW_AND_THEN_QUANTILE = 0.9
"""Quantile of the other steps up to which a job is as slow, or a rank as late, now and then, without a fault: because
of its samples. What is a fault must be beyond it nearly always, in as great a share of its steps."""


def find(evidence: Evidence, settings: DiagnosisSettings) -> pl.DataFrame:
    """Name the jobs that had a run of slow steps in the window, compared with the typical step of look-back and window.

    A run counts if it exceeds the least effect and the job's own noise, lasts, and is not explained by slow steps that
    come now and then. `score` is the excess of the least slow quarter in robust deviations of the job's step times,
    which are less certain for few steps. `severity` is the ratio by which the run's steps are longer than typical.
    Steps that hold more work, as of a batch that has grown, are longer on purpose, and no news. A job that was as slow
    from its first steps on, and has become quicker since, has not become slower.
    """
    rows = []
    for (job_id,), steps in evidence.history.group_by("job_id", maintain_order=True):
        row = _slow_run_row(str(job_id), steps, settings, settings.chance_within(evidence.window.length_ns))
        if row is not None:
            rows.append(row)
    return without_heavier(pl.DataFrame(rows, schema=FINDING_SCHEMA), evidence)


def _slow_run_row(
    job_id: str, steps: pl.DataFrame, settings: DiagnosisSettings, most_chance: float
) -> dict[str, Any] | None:
    """Return the row of a job; `most_chance` is the chance at which slow steps that come by themselves may be told."""
    length = (steps["end_ns"] - steps["start_ns"]).to_numpy().astype(np.float64)
    if length.size < 2 * settings.least_steps:
        return None
    usual = float(np.quantile(length, HEALTHY_STEP_QUANTILE))
    excess = length / usual - 1
    first, last = _longest_run(np.where(steps["current"], excess, np.nan), settings.least_effect)
    if first < 0:
        return None
    run, since = excess[first : last + 1], _run_begin(excess > settings.least_effect, first, settings)
    others = np.delete(excess, np.arange(since, last + 1))
    if since < settings.least_steps or np.median(run) <= np.quantile(others, NOW_AND_THEN_QUANTILE):
        return None
    # A job that drifts by itself is not news when it does, so what steps vary outside the run counts. Within it they
    # may vary, as for a rank with a share of a core, as long as most slow ones are slower than any by chance.
    noise = max(sigma_of(others) * student_factor(others.size, settings.sigmas), settings.least_noise)
    least = max(settings.least_effect, settings.noise_margin * noise)
    severity = float(np.median(run))
    score = float(np.quantile(run[run > settings.least_effect], HEALTHY_STEP_QUANTILE)) / noise
    if score < settings.sigmas:
        return None
    windows_steps = int(steps["current"].sum())
    # A first step a quarter longer does not make three of four times the length likely.
    bar = max(least, MAJORITY * severity)
    # A run that began before the window is as long as it is, wherever windows are cut. The short end of one that is
    # over is no news where it had lasted before: the windows before have told it.
    before = np.flatnonzero(excess[:first] <= MAJORITY * severity)
    for begins in (first, int(before[-1]) + 1 if before.size else 0):
        whole = excess[begins : last + 1]
        lasts = _is_lasting(whole > least, length[begins : last + 1], settings)
        # It may have begun anywhere in the window.
        told = last + 1 < excess.size and _is_lasting(excess[begins:first] > least, length[begins:first], settings)
        if lasts and not told and windows_steps * _chance(whole, others, bar) <= most_chance:
            break
    else:
        return None
    return {
        "job_id": job_id,
        "kind": "cross_step",
        "subject_type": "job",
        "subject": job_id,
        "start_ns": int(steps["start_ns"][first]),
        "end_ns": int(steps["end_ns"][last]),
        "score": score,
        "severity": severity,
        "explanation": f"Steps take {usual * (1 + severity) / 1e9:.2f} s instead of {usual / 1e9:.2f} s, "
        f"{int((whole > least).sum())} of {whole.size} steps in a row.",
    }


def _is_lasting(slow: Flags, length: Floats, settings: DiagnosisSettings) -> bool:
    """Return whether a run has enough slow steps, takes long enough (lengths in ns), and is slow most of the time."""
    lasts = slow.sum() >= settings.least_steps and length.sum() / 1e9 >= settings.least_lasting_s
    return bool(lasts and slow.sum() >= settings.persistence * slow.size)


def _chance(run: Floats, others: Floats, least: float) -> float:
    """Return the chance that so many steps of a run are slow if they are as often as the others: slow steps that come
    now and then follow each other at times."""
    return binomial.tail(int((run > least).sum()), run.size, float((others > least).mean()))


def _longest_run(excess: Floats, least: float) -> tuple[int, int]:
    """Return the first and the last step of the run of slow steps that loses most time; -1 without any.

    A step belongs to the run if it is nearer to the run's slow steps than to usual ones. Otherwise quick steps, which
    lose next to nothing, would join the run to whatever is slow later.

    Parameters
    ----------
    excess : ratio by which each step is longer than usual; NaN is in no run
    least : excess below which a step is not slow
    """
    series = np.array([0, excess.size]), np.zeros(1, np.int64)
    (first,), (last,), _ = best_runs(excess - least, *series)
    if first < 0:
        return -1, -1
    run = excess[first : last + 1]
    between = max(least, MAJORITY * float(np.median(run[run > least])))
    (first,), (last,), _ = best_runs(excess - between, *series)
    return int(first), int(last)


def _run_begin(slow: Flags, first: int, settings: DiagnosisSettings) -> int:
    """Return where the run at position `first` began, perhaps before the window: after enough quick steps."""
    at = np.append(np.flatnonzero(slow[:first]), first)
    breaks = np.flatnonzero(np.diff(at) > settings.least_steps)
    return int(at[breaks[-1] + 1]) if breaks.size else int(at[0])
