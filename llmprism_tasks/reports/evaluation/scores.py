"""Scores: all comparisons of a warehouse with the truth as one value, for one run or several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import polars as pl

from llmprism_tasks.reports.evaluation import confidence, diagnoses, jobs, layouts, pairs, steps
from llmprism_tasks.reports.evaluation.jobs import Tables
from llmprism_tasks.reports.evaluation.truth_tables import normal

TABLES = ("windows", "jobs", "job_members", "pairs", "steps", "diagnoses")
"""Tables of a warehouse that are compared with the truth."""


@dataclass(frozen=True)
class Scores:
    """Right and wrong results, as rows that can be counted by job or in total; `job` is the true job's name.

    Attributes
    ----------
    jobs : windows of true jobs, as `jobs.job_scores` returns
    invented : as `jobs.invented_jobs` returns
    identities : as `jobs.identities` returns
    pairs : counts by job and kind, as `pairs.kind_counts` returns
    confusions : as `pairs.confusions` returns
    degrees : as `layouts.degree_verdicts` and `layouts.stage_verdicts` return
    steps : true steps matched with found ones, as `steps.matched_steps` returns
    faults : as `diagnoses.fault_scores` returns
    diagnoses : diagnoses with a verdict, as `diagnoses.judged` returns
    bands : as `confidence.bands` returns
    """

    jobs: pl.DataFrame
    invented: pl.DataFrame
    identities: pl.DataFrame
    pairs: pl.DataFrame
    confusions: pl.DataFrame
    degrees: pl.DataFrame
    steps: pl.DataFrame
    faults: pl.DataFrame
    diagnoses: pl.DataFrame
    bands: pl.DataFrame

    def of_job(self, job: str) -> Scores:
        """Return the scores of one true job."""
        frames = ((one.name, getattr(self, one.name)) for one in fields(self))
        return Scores(**{name: rows.filter(pl.col("job") == job) for name, rows in frames})

    def names(self) -> list[str]:
        """Return the names of the judged true jobs, sorted."""
        return self.jobs["job"].unique().sort().to_list()


def evaluate(warehouse_tables: Tables, truth: Tables) -> Scores:
    """Compare a warehouse with the truth about the run.

    Parameters
    ----------
    warehouse_tables : the tables of `TABLES`, with all windows
    truth : the tables of a truth folder by file name, as written by `llmprism simulate` or logged by real ranks:
        `truth_jobs`, `truth_steps`, `truth_pairs` and, if they exist, `truth_faults`, `truth_ranks`, `layouts`
    """
    found, true = warehouse_tables, normal(truth)
    scored = jobs.job_scores(found, true)
    owned = jobs.owners(found, true)
    asked = pairs.asked_pairs(found, true, scored)
    degrees = layouts.degree_verdicts(found, true, scored)
    judged = diagnoses.judged(found, true, owned)
    return Scores(
        jobs=scored,
        invented=jobs.invented_jobs(found, true, owned),
        identities=jobs.identities(scored, true, found["windows"]),
        pairs=pairs.kind_counts(asked),
        confusions=pairs.confusions(asked),
        degrees=pl.concat([degrees, layouts.stage_verdicts(found, true, scored)]),
        steps=steps.matched_steps(found, true, scored, owned),
        faults=diagnoses.fault_scores(found, true, judged),
        diagnoses=judged,
        bands=confidence.bands(scored, degrees, asked),
    )


def together(runs: Mapping[str, Scores]) -> Scores:
    """Combine the scores of several runs; true and found jobs are renamed to `run/job`."""
    return Scores(
        **{
            one.name: pl.concat(
                [_called(getattr(scores, one.name), run) for run, scores in runs.items()], how="vertical_relaxed"
            )
            for one in fields(Scores)
        }
    )


def _called(rows: pl.DataFrame, run: str) -> pl.DataFrame:
    names = [name for name in ("job", "job_id", "before") if name in rows.columns]
    return rows.with_columns(pl.concat_str(pl.lit(f"{run}/"), name).alias(name) for name in names)
