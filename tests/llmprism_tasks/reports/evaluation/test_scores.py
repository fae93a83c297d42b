"""All scores together: a perfect answer is perfect, order means nothing, and confidence is shown for what it is."""

from __future__ import annotations

import json

import known_runs as run
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmprism_tasks.reports.evaluation import Scores, all_figures, evaluate, together
from llmprism_tasks.reports.evaluation.confidence import UNSURE


@pytest.fixture(scope="module")
def perfect() -> Scores:
    return evaluate(run.found(), run.truth())


RATIOS = ("exact_ratio", "precision", "recall", "step_recall", "step_precision")
NONE = ("invented", "called_other", "not_done", "changed_ids", "reused_ids", "steps_extra", "false_diagnoses", "unsure")


def test_a_perfect_answer_is_perfect(perfect: Scores) -> None:
    found = all_figures(perfect)
    for figures in (found["all"], *found["jobs"].values()):
        assert {figures[name] for name in RATIOS} == {1.0}
        assert {figures[name] for name in NONE} == {0}
        assert figures["layouts"] == figures["layouts_right"] > 0
        assert set(figures["duration_error"].values()) == set(figures["end_error_ns"].values()) == {0}
    assert {row["verdict"] for row in perfect.degrees.to_dicts()} == {"right"}
    assert found["confusions"] == found["invented"] == found["changed_ids"] == found["false_diagnoses"] == []


def test_nothing_found_is_nothing_right() -> None:
    nothing = {name: table if name == "windows" else table.clear() for name, table in run.found().items()}
    figures = all_figures(evaluate(nothing, run.truth(**run.faults())))["all"]
    assert (figures["exact"], figures["layouts_right"], figures["steps_found"]) == (0, 0, 0)
    assert (figures["windows"], figures["steps"], figures["recall"]) == (4, 33, 0)
    assert figures["precision"] is None


def test_a_truth_without_layouts_is_asked_for_none() -> None:
    truth = {name: table for name, table in run.truth().items() if name not in ("layouts", "truth_ranks")}
    figures = all_figures(evaluate(run.found(), truth))["all"]
    assert (figures["degrees"], figures["layouts"], figures["exact"]) == ({}, 0, 4)


def test_json_holds_it(perfect: Scores) -> None:
    assert json.loads(json.dumps(all_figures(perfect))) == all_figures(perfect)


FAULTY = {
    **run.diagnoses((0, "x", "addr", "3", 0.2), (0, "x", "addr", "1", 0.2), (1000, "y", "job", "y", 0.1)),
    "steps": pl.concat([run.found()["steps"], run.found()["steps"].head(4).with_columns(pl.col("end_ns") + 5)]),
}
FAULT = ("slow_gpu", "a", "addr", "1", 500, 1900, ["addr:1"])


def test_the_order_of_rows_means_nothing() -> None:
    found, truth = run.found(**FAULTY), run.truth(**run.faults(FAULT))
    expected = all_figures(evaluate(found, truth))
    for seed in range(8):
        mixed = [
            {name: table.sample(fraction=1, shuffle=True, seed=seed) for name, table in tables.items()}
            for tables in (found, truth)
        ]
        assert all_figures(evaluate(*mixed)) == expected


@settings(max_examples=20)
@given(gone=st.sets(st.integers(0, 32), max_size=33))
def test_fewer_steps_found_are_never_a_better_recall(gone: set[int]) -> None:
    steps = run.found()["steps"].with_row_index().filter(~pl.col("index").is_in(gone)).drop("index")
    figures = all_figures(evaluate(run.found(steps=steps), run.truth()))["all"]
    assert figures["steps_found"] == figures["steps"] - figures["steps_extra"] - sum(
        one < figures["steps"] for one in gone
    )


def test_runs_together_count_as_their_parts(perfect: Scores) -> None:
    worse = evaluate(run.found(**FAULTY), run.truth(**run.faults(FAULT)))
    both = all_figures(together({"good": perfect, "bad": worse}))
    assert list(both["jobs"]) == ["bad/a", "bad/b", "good/a", "good/b"]
    assert both["all"]["steps_extra"] == all_figures(worse)["all"]["steps_extra"] == 4
    assert both["all"]["windows"] == 8
    assert both["all"]["reused_ids"] == 0


def test_an_id_for_two_jobs_is_counted() -> None:
    same = {name: table.with_columns(job_id=pl.lit("x")) for name, table in run.found().items() if "job_id" in table}
    tables = run.found(**same)
    tables["jobs"] = tables["jobs"].unique(["window_start_ns", "job_id"])
    assert all_figures(evaluate(tables, run.truth()))["all"]["reused_ids"] == 1


@pytest.mark.parametrize(("confidence", "unsure", "band"), [(0.75, 0, "0.75 to 0.9"), (0.74, 2, "0.5 to 0.75")])
def test_confidence_below_three_quarters_is_unsure(confidence: float, unsure: int, band: str) -> None:
    assert UNSURE == 0.75
    sure = pl.when(pl.col("job_id") == "x").then(confidence).otherwise("confidence")
    scores = evaluate(run.found(jobs=run.found()["jobs"].with_columns(confidence=sure)), run.truth())
    assert all_figures(scores)["all"]["unsure"] == unsure
    row = scores.bands.filter((pl.col("job") == "a") & (pl.col("of") == "jobs")).row(0, named=True)
    assert (row["band"], row["right"], row["wrong"]) == (band, 2, 0)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [({}, 0), ({"dp": 4}, 2), ({"dp": None}, 0), ({"kind": pl.lit("other")}, 2)],
    ids=["right", "a wrong degree", "an unknown degree", "called other"],
)
def test_a_row_is_wrong_by_what_it_claims(change: dict[str, object], wrong: int) -> None:
    jobs = run.found()["jobs"].with_columns(**change)  # type: ignore[arg-type]
    bands = evaluate(run.found(jobs=jobs), run.truth()).bands.filter((pl.col("of") == "jobs") & (pl.col("job") == "a"))
    assert bands["wrong"].sum() == wrong
    assert bands["right"].sum() == 2 - wrong
