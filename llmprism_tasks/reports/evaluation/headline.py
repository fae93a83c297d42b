"""Headline: the figures by which a run is judged, computed from the counted rows."""

from __future__ import annotations

from typing import Any

import polars as pl

from llmprism_tasks.reports.evaluation import layouts, pairs, steps
from llmprism_tasks.reports.evaluation.confidence import UNSURE
from llmprism_tasks.reports.evaluation.scores import Scores

KINDS = ("dp", "pp", "ep", "cp")
"""Kinds of pairs in a run's precision and recall; other kinds are no part of a layout."""


def headline(scores: Scores) -> dict[str, Any]:
    """Return the figures of a run, of one of its jobs, or of several runs together.

    Returns
    -------
    `windows`, `exact`, `exact_ratio`, `not_done`, `called_other` : windows of true jobs; those with exactly the right
        members; those that were not run to their end; those in which the job is not called training
    `invented` : windows of found jobs that are called training and have no training member
    `precision`, `recall` : share of pairs called dp, pp, ep or cp that are right, and of true ones that are found; None
        without any
    `degrees` : settled windows `right`, `wrong`, `unknown` by degree; `layouts`, `layouts_right` : settled windows of
        jobs, and those with `tp`, `pp` and `dp` all right
    `steps`, `steps_found`, `steps_extra`, `step_recall`, `step_precision`
    `duration_error` : `median`, `p95`, `max` of the error, as ratio of the true duration; `end_error_ns` : the same of
        ends, ns
    `changed_ids` : how often a job's id changed though at least half of its members stayed; `reused_ids` : ids that
        stand for several true jobs
    `faults`, `faults_named`, `faults_first_right`, `faults_kind_right`, `delay` (longest, in windows),
        `false_diagnoses`, `job_hours`, `false_per_job_hour`
    `unsure`, `unsure_ratio` : windows of found jobs with a confidence below 0.75
    """
    return {
        **_jobs(scores),
        **_kinds(scores.pairs),
        **_layouts(scores.degrees),
        **_steps(scores.steps),
        **_diagnoses(scores),
    }


def all_figures(scores: Scores) -> dict[str, Any]:
    """Return all figures as a value that can be written as JSON.

    Returns
    -------
    `all` : see `headline`
    `jobs` : the same for each job, by its name
    `pairs` : by kind: `found`, `right`, `true`, `met`, `absent`, `precision`, `recall`
    `confusions`, `degrees` (windows right, wrong and unknown), `confidence`, `invented`, `faults` : lists of rows
    `changed_ids`, `false_diagnoses` : the rows that count as wrong
    """
    wrong = scores.diagnoses.filter(pl.col("verdict") == "false").drop("fault", "verdict")
    return {
        "all": headline(scores),
        "jobs": {job: headline(scores.of_job(job)) for job in scores.names()},
        "pairs": {row.pop("kind"): row for row in pairs.precision_recall(scores.pairs).to_dicts()},
        "confusions": scores.confusions.to_dicts(),
        "degrees": layouts.verdict_counts(scores.degrees, "job").to_dicts(),
        "confidence": scores.bands.to_dicts(),
        "invented": scores.invented.to_dicts(),
        "changed_ids": scores.identities.filter("changed").to_dicts(),
        "faults": scores.faults.to_dicts(),
        "false_diagnoses": wrong.to_dicts(),
    }


def ratio(part: int, whole: int) -> float | None:
    """Return a part over the whole; None where there is no whole."""
    return part / whole if whole else None


def _jobs(scores: Scores) -> dict[str, Any]:
    rows = scores.jobs
    exact, unsure = int(rows["exact"].sum()), int((rows["confidence"] < UNSURE).sum())
    named = scores.jobs.drop_nulls("job_id").select("job", "job_id").unique()
    return {
        "windows": rows.height,
        "exact": exact,
        "exact_ratio": ratio(exact, rows.height),
        "not_done": int((~rows["done"]).sum()),
        "called_other": int((rows["kind"] == "other").sum()),
        "invented": scores.invented.height,
        "changed_ids": int(scores.identities["changed"].sum()),
        "reused_ids": named.height - named["job_id"].n_unique(),
        "unsure": unsure,
        "unsure_ratio": ratio(unsure, int(rows["confidence"].count())),
    }


def _kinds(counts: pl.DataFrame) -> dict[str, Any]:
    rows = counts.filter(pl.col("kind").is_in(KINDS))
    found, right, true, met = (int(rows[name].sum()) for name in ("found", "right", "true", "met"))
    return {"precision": ratio(right, found), "recall": ratio(met, true)}


def _layouts(degrees: pl.DataFrame) -> dict[str, Any]:
    counted = layouts.verdict_counts(degrees)
    main = degrees.filter("settled", pl.col("degree").is_in(["tp", "pp", "dp"]))
    right = main.group_by("window_start_ns", "job").agg(right=(pl.col("verdict") == "right").all())
    return {
        "degrees": {row.pop("degree"): row for row in counted.to_dicts()},
        "layouts": right.height,
        "layouts_right": int(right["right"].sum()),
    }


def _steps(matched: pl.DataFrame) -> dict[str, Any]:
    counts = steps.step_counts(matched)
    true, found, extra = (int(counts[name].sum()) for name in ("true", "found", "extra"))
    return {
        "steps": true,
        "steps_found": found,
        "steps_extra": extra,
        "step_recall": ratio(found, true),
        "step_precision": ratio(found, found + extra),
        "duration_error": steps.spread(steps.duration_errors(matched)["error"]),
        "end_error_ns": steps.spread(steps.end_errors(matched)["error_ns"]),
    }


def _diagnoses(scores: Scores) -> dict[str, Any]:
    faults, hours = scores.faults, float(scores.jobs["hours"].sum())
    false = int((scores.diagnoses["verdict"] == "false").sum())
    delay = faults["delay"].max()
    return {
        "faults": faults.height,
        "faults_named": int(faults["named"].sum()),
        "faults_first_right": int(faults["first_right"].sum()),
        "faults_kind_right": int(faults["kind_right"].sum()),
        "delay": None if delay is None else int(str(delay)),
        "false_diagnoses": false,
        "job_hours": hours,
        "false_per_job_hour": false / hours if hours else None,
    }
