"""Degrees and stage order: right, wrong, or not known."""

from __future__ import annotations

import known_runs as run
import polars as pl
import pytest

from llmprism_tasks.reports.evaluation import jobs, layouts


def verdicts(found: run.Tables, truth: run.Tables) -> dict[str, list[str]]:
    scores = jobs.job_scores(found, truth).filter(pl.col("job") == "a")
    rows = pl.concat(
        [layouts.degree_verdicts(found, truth, scores), layouts.stage_verdicts(found, truth, scores)],
    )
    return dict(rows.sort("window_start_ns").group_by("degree").agg("verdict").iter_rows())


@pytest.mark.parametrize(("dp", "verdict"), [(2, "right"), (4, "wrong"), (None, "unknown")])
def test_a_degree_is_right_wrong_or_unknown(dp: int | None, verdict: str) -> None:
    called = run.found()["jobs"].with_columns(dp=pl.lit(dp, pl.Int64))
    found = verdicts(run.found(jobs=called), run.normal_truth())
    assert found["dp"] == [verdict] * 2
    assert found["tp"] == found["pp"] == found["sharded"] == ["right"] * 2


def test_a_job_that_was_not_found_has_no_known_degree() -> None:
    tables = run.found(**run.members({}, {}))
    tables["jobs"] = run.found()["jobs"].clear()
    assert set(verdicts(tables, run.normal_truth())["dp"]) == {"unknown"}


def test_degrees_without_a_column_or_a_truth_are_not_asked_for() -> None:
    without = run.found(jobs=run.found()["jobs"].drop("sharded"))
    assert set(verdicts(without, run.normal_truth())) == {"tp", "pp", "dp", "pp_stage"}
    untold = run.normal_truth(layouts=run.truth()["layouts"].drop("sharded"))
    assert set(verdicts(run.found(), untold)) == {"tp", "pp", "dp", "pp_stage"}


def test_the_layout_is_that_of_as_many_ranks_as_there_are_members() -> None:
    two = pl.concat([run.truth()["layouts"], run.frame([("a", 1, 2, 4, "no")], "job", "tp", "pp", "dp", "sharded")])
    assert verdicts(run.found(), run.normal_truth(layouts=two))["dp"] == ["right"] * 2


@pytest.mark.parametrize(("since", "verdicts_"), [(0, ["wrong", "wrong"]), (1000, ["right", "wrong"])])
def test_a_layout_may_have_its_own_time(since: int, verdicts_: list[str]) -> None:
    known = run.truth()["layouts"].filter(pl.col("job") == "a").with_columns(start_ns=0, end_ns=since or 1)
    later = known.with_columns(tp=2, pp=1, start_ns=since, end_ns=2000)
    truth = run.normal_truth(layouts=pl.concat([known, later], how="vertical_relaxed"))
    assert verdicts(run.found(), truth)["pp"] == verdicts_


def test_layouts_are_counted_from_the_ranks_where_they_are_not_told() -> None:
    places = run.truth()["truth_ranks"].with_columns(dp_index=pl.Series([0, 1, 0, 1, 0, 1]), tp_index=0)
    truth = run.truth(truth_ranks=places)
    del truth["layouts"]
    from llmprism_tasks.reports.evaluation.truth_tables import normal

    assert verdicts(run.found(), normal(truth)) == dict.fromkeys(("tp", "pp", "dp", "pp_stage"), ["right"] * 2)


@pytest.mark.parametrize(
    ("stage", "verdict"),
    [
        (pl.col("pp_stage"), ["right"] * 2),
        (1 - pl.col("pp_stage"), ["wrong"] * 2),
        (pl.when(pl.col("addr") != "4").then("pp_stage"), ["wrong"] * 2),
        (pl.lit(None, pl.Int64), ["unknown"] * 2),
    ],
    ids=["right", "the wrong way round", "one missing", "not known"],
)
def test_stages_are_right_all_together(stage: pl.Expr, verdict: list[str]) -> None:
    members = run.found()["job_members"].with_columns(pp_stage=stage)
    assert verdicts(run.found(job_members=members), run.normal_truth())["pp_stage"] == verdict


def test_stages_are_asked_for_only_where_both_know_them() -> None:
    without = run.found(job_members=run.found()["job_members"].drop("pp_stage"))
    assert "pp_stage" not in verdicts(without, run.normal_truth())
    untold = run.normal_truth(truth_ranks=run.truth()["truth_ranks"].clear())
    assert "pp_stage" not in verdicts(run.found(), untold)
