"""Diagnoses against faults: who was named first, how soon, and what was said of nobody's fault."""

from __future__ import annotations

from typing import Any

import known_runs as run
import polars as pl
import pytest

from llmprism_tasks.reports.evaluation import evaluate
from llmprism_tasks.reports.evaluation.headline import headline

SLOW = ("slow_gpu", "a", "addr", "1", 500, 1900, ["addr:1", "host:h1", "addr:2"])


def score(faults: list[tuple[Any, ...]], *diagnoses: tuple[Any, ...]) -> dict[str, Any]:
    scores = evaluate(run.found(**run.diagnoses(*diagnoses)), run.truth(**run.faults(*faults)))
    (row,) = scores.faults.to_dicts()
    return row | headline(scores)


@pytest.mark.parametrize(
    ("said", "named", "first", "first_right", "delay", "false"),
    [
        ([(0, "x", "addr", "1", 0.3)], True, "addr:1", True, 0, 0),
        ([(0, "x", "host", "h1", 0.3)], True, "host:h1", True, 0, 0),
        ([(1000, "x", "addr", "2", 0.3)], True, "addr:2", True, 1, 0),
        ([(0, "x", "addr", "3", 0.3)], False, "addr:3", False, None, 1),
        ([(0, "x", "addr", "3", 0.3), (1000, "x", "addr", "1", 0.3)], True, "addr:3", False, 1, 1),
        ([(0, "x", "addr", "3", 0.2), (0, "x", "addr", "1", 0.3)], True, "addr:1", True, 0, 1),
        ([(0, "x", "job", "x", 0.3), (0, "x", "dp_group", "g", 0.3)], False, None, False, None, 0),
        ([(0, "y", "job", "y", 0.3)], False, None, False, None, 1),
        ([], False, None, False, None, 0),
    ],
    ids=["named", "its host", "its peer, late", "another", "another first", "the worst first", "symptoms only",
         "another job's symptom", "nothing"],
)  # fmt: skip
def test_a_fault_is_named_by_a_subject_that_counts(
    said: list[tuple[Any, ...]], named: bool, first: str | None, first_right: bool, delay: int | None, false: int
) -> None:
    row = score([SLOW], *said)
    assert (row["named"], row["first"], row["first_right"]) == (named, first, first_right)
    assert (row["delay"], row["false_diagnoses"]) == (delay, false)


@pytest.mark.parametrize(("end_ns", "false"), [(1000, 0), (999, 1)])
def test_a_diagnosis_counts_for_a_fault_of_its_own_time(end_ns: int, false: int) -> None:
    over = ("slow_gpu", "a", "addr", "1", 500, end_ns, ["addr:1"])
    row = score([over], (1000, "x", "addr", "1", 0.3))
    assert (row["named"], row["false_diagnoses"]) == (not false, false)


def test_a_switch_may_be_met_by_any_job() -> None:
    switch = ("degraded_switch", None, "switch", "leaf-1", 0, 1900, ["switch:leaf-1"])
    said = [(0, "x", "switch", "leaf-1", 0.3), (0, "y", "switch", "leaf-1", 0.3), (1000, "y", "job", "y", 0.1)]
    row = score([switch], *said)
    assert (row["named"], row["delay"], row["false_diagnoses"]) == (True, 0, 0)


def test_a_fault_of_real_ranks_accepts_its_subject_alone() -> None:
    faults = run.faults(SLOW)["truth_faults"].drop("accept")
    said = run.diagnoses((0, "x", "addr", "1", 0.3), (0, "x", "host", "h1", 0.3))
    figures = headline(evaluate(run.found(**said), run.truth(truth_faults=faults)))
    assert (figures["faults_named"], figures["false_diagnoses"]) == (1, 1)


def test_a_fault_of_real_ranks_accepts_the_ranks_host_where_that_is_told() -> None:
    members = run.truth()["truth_jobs"].with_columns(host=pl.format("h{}", "addr"))
    faults = run.faults(SLOW)["truth_faults"].drop("accept")
    said = run.diagnoses((0, "x", "host", "h1", 0.3), (0, "x", "host", "h2", 0.3))
    figures = headline(evaluate(run.found(**said), run.truth(truth_faults=faults, truth_jobs=members)))
    assert (figures["faults_named"], figures["false_diagnoses"]) == (1, 1)


@pytest.mark.parametrize(
    ("fault", "said", "first"),
    [
        (("checkpoint_stall", "a", "job", "a", 500, 1900, ["job:a"]), (0, "x", "job", "x", 0.3), "job:a"),
        (("slow_stage", "a", "pp_stage", "1", 500, 1900, ["pp_stage:1"]), (0, "x", "pp_stage", "1", 0.3), "pp_stage:1"),
    ],
    ids=["job", "pp_stage"],
)
def test_a_job_or_a_stage_is_named_when_the_fault_is_its_own(
    fault: tuple[Any, ...], said: tuple[Any, ...], first: str
) -> None:
    row = score([fault], said)
    assert (row["named"], row["first"], row["first_right"]) == (True, first, True)
    assert not score([fault], (0, "y", *said[2:]))["named"]


@pytest.mark.parametrize(("kind", "right"), [("slow_compute", True), ("slow_nic", False)])
def test_the_kind_is_right_when_the_first_to_name_the_fault_calls_it_so(kind: str, right: bool) -> None:
    said = run.diagnoses((0, "x", "addr", "1", 0.3))
    said = {name: rows.with_columns(kind=pl.lit(kind)) for name, rows in said.items()}
    (row,) = evaluate(run.found(**said), run.truth(**run.faults(SLOW))).faults.to_dicts()
    assert row["kind_right"] is right


def test_the_effect_of_a_fault_is_what_it_adds_to_a_step() -> None:
    ends = [100, 200, 300, 400, 500, 650, 800, 950, 1050, 1150]
    spans = zip([0, *ends[:-1]], ends, strict=True)
    steps = run.frame([("a", i, *span) for i, span in enumerate(spans)], "job", "step", "start_ns", "end_ns")
    fault = ("slow_gpu", "a", "addr", "1", 500, 950, ["addr:1"])
    faults = evaluate(run.found(), run.truth(truth_steps=steps, **run.faults(fault))).faults
    assert faults["effect"].item() == pytest.approx(0.5)


def test_of_two_faults_at_once_neither_is_blamed_for_the_others_name() -> None:
    other = ("slow_gpu", "a", "addr", "4", 500, 1900, ["addr:4"])
    said = run.diagnoses((0, "x", "addr", "4", 0.9), (1000, "x", "addr", "1", 0.3))
    rows = evaluate(run.found(**said), run.truth(**run.faults(SLOW, other))).faults
    assert rows.select("first", "first_right", "delay").rows() == [("addr:1", True, 1), ("addr:4", True, 0)]


def test_a_fault_outside_the_windows_is_not_asked_for() -> None:
    late = ("slow_gpu", "a", "addr", "1", 2000, 2900, ["addr:1"])
    assert evaluate(run.found(), run.truth(**run.faults(late))).faults.is_empty()


@pytest.mark.parametrize(("end_ns", "asked"), [(1900, False), (1899, True)])
def test_a_checkpoint_that_the_job_writes_by_habit_is_not_asked_for(end_ns: int, asked: bool) -> None:
    stall = ("checkpoint_stall", "a", "job", "a", 500, 1900, ["job:a"])
    habits = pl.DataFrame({"job": ["a"], "start_ns": [500], "end_ns": [end_ns]})
    scores = evaluate(
        run.found(**run.diagnoses((0, "x", "job", "x", 0.3))), run.truth(**run.faults(stall), truth_pauses=habits)
    )
    assert scores.faults.is_empty() != asked
    assert headline(scores)["false_diagnoses"] == 0


@pytest.mark.parametrize(
    ("kind", "steps", "begins", "false"),
    [("cross_step", 1, 400, 0), ("cross_step", 1, 999, 1), ("cross_step", None, 400, 1), ("stalls", 3, 400, 1)],
    ids=["its single step", "another time", "all steps", "another kind"],
)
def test_a_single_slow_step_in_which_the_job_evaluates_is_true(
    kind: str, steps: int | None, begins: int, false: int
) -> None:
    said = run.diagnoses((0, "x", "job", "x", 0.3))["diagnoses"].with_columns(
        kind=pl.lit(kind), steps=pl.lit(steps, pl.Int32)
    )
    pauses = pl.DataFrame({"job": ["a"], "start_ns": [begins], "end_ns": [begins + 100]})
    figures = headline(evaluate(run.found(diagnoses=said), run.truth(truth_pauses=pauses)))
    assert figures["false_diagnoses"] == false


def test_false_diagnoses_are_counted_per_hour_of_jobs() -> None:
    figures = headline(evaluate(run.found(**run.diagnoses((0, "x", "addr", "1", 0.3))), run.truth()))
    assert figures["job_hours"] == pytest.approx(4 * 1000 / 3_600e9)
    assert figures["false_per_job_hour"] == pytest.approx(1 / figures["job_hours"])
