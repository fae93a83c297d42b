"""Runs that are judged whole: what was read of jobs, what was said of faults, and whom it would have paged."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from accuracy.runs.duration_floor import floor
from accuracy.runs.measurement import Figures, plain
from accuracy.runs.results import keep_named, kept_named, version
from accuracy.runs.runner import apart
from accuracy.runs.scored_run import run_with_messages
from accuracy.second_source import fault_cases
from accuracy.second_source.cases import CASES
from accuracy.second_source.folder import write
from accuracy.second_source.verdicts import fault_verdicts, healthy_hours, names_one
from llmprism_tasks.reports.evaluation import evaluate
from llmprism_tasks.reports.evaluation.diagnoses import KINDS
from llmprism_tasks.reports.evaluation.pairs import SETTLED_STEPS
from llmprism_tasks.reports.evaluation.truth_tables import normal
from llmprism_tasks.sources.truth import read_truth

HALF = 0.5
"""Share of its rate, at most, at which a device is at half of its pace."""

HALVES_RATE = ("limited_nic", "limited_uplink")
HALVES_PACE = ("slow_rank",)
"""Kinds of faults of captures whose severity is a share of a rate, or a factor on computing."""


class Judged(NamedTuple):
    """A run: its name among the kept results, and what writes its folder or finds it."""

    name: str
    group: str
    place: Callable[[Path], tuple[Path, str]]
    """Given an empty folder, returns the folder with flows, topology and truth, and the name of the flows in it."""


def fault_runs(seeds: Sequence[int]) -> Iterator[Judged]:
    """Yield platforms on which something goes wrong, of the second source."""
    for seed in seeds:
        yield Judged(f"fault-{seed}", "faults", _FaultPlace(seed))


def healthy_runs(seeds: Sequence[int]) -> Iterator[Judged]:
    """Yield platforms on which nothing goes wrong, of the second source."""
    for seed in seeds:
        yield Judged(f"healthy-{seed}", "healthy", _HealthyPlace(seed))


def case_runs(names: Sequence[str], seeds: Sequence[int]) -> Iterator[Judged]:
    """Yield jobs of the second source that are to be read rightly."""
    for seed in seeds:  # all kinds of a seed, so that a run that is cut short has all kinds
        for name in names:
            yield Judged(f"case-{name}-{seed}", name, _CasePlace(name, seed))


def capture_runs(folders: Sequence[Path]) -> Iterator[Judged]:
    """Yield captures, each with fine and with coarse records."""
    for folder in folders:
        for flows in ("flows.parquet", "flows_coarse.parquet"):
            if (folder / flows).exists():
                words = folder.name + (", coarse" if "coarse" in flows else "")
                yield Judged(f"capture-{words}", "captures", _Folder(folder, flows))


@dataclass(frozen=True)
class _FaultPlace:
    seed: int

    def __call__(self, place: Path) -> tuple[Path, str]:
        drawn = fault_cases.draw(self.seed)
        write(drawn.ill, place, self.seed, drawn.well)
        return place, "flows.parquet"


@dataclass(frozen=True)
class _HealthyPlace:
    seed: int

    def __call__(self, place: Path) -> tuple[Path, str]:
        write(fault_cases.healthy(self.seed), place, self.seed)
        return place, "flows.parquet"


@dataclass(frozen=True)
class _CasePlace:
    name: str
    seed: int

    def __call__(self, place: Path) -> tuple[Path, str]:
        write(CASES[self.name](np.random.default_rng([self.seed, len(self.name)])), place, self.seed)
        return place, "flows.parquet"


@dataclass(frozen=True)
class _Folder:
    folder: Path
    flows: str

    def __call__(self, place: Path) -> tuple[Path, str]:
        del place
        return self.folder, self.flows


def run_judged(runs: Sequence[Judged], *, until_s: float, jobs: int, say: Callable[[str], None]) -> list[str]:
    """Judge every run for which nothing is kept, in their order; returns those that failed.

    Parameters
    ----------
    until_s : none is begun later, seconds of `time.monotonic`
    jobs : processes at a time
    """
    missing = [one for one in runs if kept_named(one.name) is None]
    failed: list[str] = []
    left: list[str] = []

    def one_run(number: int, one: Judged) -> None:
        if time.monotonic() > until_s:
            left.append(one.name)
            return
        try:
            result = apart(judge, one)
        except Exception as error:  # one run that breaks is news of its own; the others go on
            failed.append(f"{one.name}: {type(error).__name__}: {error}")
            return
        keep_named(one.name, result)
        say(f"{number} of {len(missing)}  {one.name}: {_words(result)}")

    with ThreadPoolExecutor(jobs) as threads:
        for task in [threads.submit(one_run, number, one) for number, one in enumerate(missing, start=1)]:
            task.result()
    if left:
        say(f"Not begun for want of time: {len(left)}.")
    return failed


def judge(run: Judged) -> Figures:
    """Analyse a run with every setting at its default, and compare with its truth.

    Returns
    -------
    as `measurement.measure`, and `group`, `verdicts` (as `fault_verdicts` returns), `false` (diagnoses of no fault),
    `false_pages` (messages about nothing but these), `healthy_job_hours` and, of captures, `floor` (the least error of
    durations, as `duration_floor.floor` returns)
    """
    began = time.process_time()
    with tempfile.TemporaryDirectory(prefix="judged-") as passing:
        folder, flows = run.place(Path(passing))
        written = read_truth(str(folder / "truth"))
        found, told = run_with_messages(folder, flows, Path(passing) / "judged.duckdb")
        least = floor(folder, flows) if run.group == "captures" else None
    scores, truth = evaluate(found, written), normal(written)
    faults = truth["truth_faults"].to_dicts()
    of_set = pl.Series([names_one(row, faults) for row in scores.diagnoses.to_dicts()], dtype=pl.Boolean)
    wrong = (scores.diagnoses["verdict"] == "false") & ~of_set
    false, right = scores.diagnoses.filter(wrong), scores.diagnoses.filter(~wrong)
    grounded = set(right.select("job_id", "subject_type", "subject").rows())
    pages = [one for one in told if (one["job_id"], one["subject_type"], one["subject"]) not in grounded]
    return {
        **plain(scores),
        "group": run.group,
        "floor": least,
        "version": version(),
        "cpu_s": time.process_time() - began,
        "verdicts": fault_verdicts(
            judgeable(truth["truth_faults"], truth["truth_steps"], truth["truth_pauses"]),
            scores.diagnoses,
            found["windows"],
        ),
        "false": false.select("window_start_ns", "job", "kind", "subject_type", "subject", "explanation").to_dicts(),
        "false_pages": [f"{one['kind']} {one['subject_type']}:{one['subject']}" for one in pages],
        "healthy_job_hours": healthy_hours(truth["truth_jobs"], truth["truth_faults"]),
    }


def judgeable(faults: pl.DataFrame, steps: pl.DataFrame, pauses: pl.DataFrame) -> pl.DataFrame:
    """Add what captures do not say of faults: which kinds are right, and whether a device is at half of its pace.

    Faults that begin before their job has shown as many steps as settle it are left out: nothing is usual yet. So are
    checkpoints that a job writes by habit.
    """
    faults = faults.join(pauses, on=["job", "start_ns", "end_ns"], how="anti", maintain_order="left")
    shown = [_shown(fault, steps) for fault in faults.select("job", "start_ns").rows()]
    faults = faults.filter(pl.Series(shown, dtype=pl.Boolean))
    if "right_kinds" in faults.columns or "effect" not in faults.columns:
        return faults if "right_kinds" in faults.columns else faults.clear().with_columns(longest=None)
    kinds = [KINDS.get(kind, []) for kind in faults["kind"]]
    rate = pl.col("kind").is_in(HALVES_RATE) & (pl.col("severity") <= HALF)
    pace = pl.col("kind").is_in(HALVES_PACE) & (pl.col("severity") >= 1 / HALF)
    return faults.with_columns(pl.Series("right_kinds", kinds, pl.List(pl.String)), halved=rate | pace)


def _shown(fault: tuple[str | None, int], steps: pl.DataFrame) -> bool:
    job, start_ns = fault
    before = steps.filter(pl.col("end_ns") <= start_ns)
    return job is None or before.filter(pl.col("job") == job).height >= SETTLED_STEPS


def _words(result: Mapping[str, Any]) -> str:
    every = result["figures"]["all"]
    said = f"jobs {every['exact']} of {every['windows']}, steps {every['steps_found']} of {every['steps']}"
    for one in result["verdicts"]:
        marks = [word for word in ("told", "first_right", "kind_right") if one[word]]
        said += (
            f"; {one['kind']}{'' if one['asked'] else ' (not asked)'}: {', '.join(marks) or 'nothing'}, {one['first']}"
        )
    return f"{said}; {len(result['false'])} false, {len(result['false_pages'])} pages, {result['cpu_s']:.0f} s"
