"""Job sets and identities: what is wrong on purpose is counted as wrong."""

from __future__ import annotations

import itertools

import known_runs as run
import polars as pl
import pytest

from llmprism_tasks.reports.evaluation import jobs, presence

A, B = dict.fromkeys("1234", "x"), dict.fromkeys("56", "y")
WITHOUT = {**B, "1": "x", "2": "x", "3": "x"}


def exact(found: run.Tables, truth: run.Tables) -> list[bool]:
    scores = jobs.job_scores(run.found(**found), truth)
    return scores.filter(pl.col("job") == "a")["exact"].to_list()


@pytest.mark.parametrize(
    ("second", "right"),
    [
        ({**A, **B}, True),
        (WITHOUT, False),
        ({**WITHOUT, "4": "z"}, False),
        ({**A, "5": "x", "6": "x"}, False),
        ({**A, **B, "9": "x"}, False),
        ({**WITHOUT, "9": "x"}, False),
        (B, False),
    ],
    ids=["right", "one missing", "cut in two", "two jobs as one", "a stranger", "one for another", "not seen"],
)
def test_members_must_be_exactly_the_true_ones(second: dict[str, str], right: bool) -> None:
    assert exact(run.members({**A, **B}, second), run.normal_truth()) == [True, right]


@pytest.mark.parametrize(("start", "asked"), [(969, [0, 1000]), (972, [1000])])
def test_a_job_is_asked_for_once_its_first_step_is_past_the_forward_pass(start: int, asked: list[int]) -> None:
    """Of a step of 90 that begins before a window's end at 1000."""
    steps = run.frame([("a", start, start + 90), ("a", start + 90, start + 180)], "job", "start_ns", "end_ns")
    assert presence.at_work(steps, run.WINDOWS)["window_start_ns"].to_list() == asked


def ends(job: str, *times: int) -> pl.DataFrame:
    return run.frame(
        [(job, n, start, end) for n, (start, end) in enumerate(itertools.pairwise(times))],
        "job",
        "step",
        "start_ns",
        "end_ns",
    )


@pytest.mark.parametrize(("second", "windows"), [(ends("a", 0, 400, 900), [0]), (ends("a", 990, 1010), [0, 1000])])
def test_windows_count_in_which_a_step_is_under_way(second: pl.DataFrame, windows: list[int]) -> None:
    scores = jobs.job_scores(run.found(), run.normal_truth(truth_steps=second))
    assert scores["window_start_ns"].to_list() == windows


def test_silence_between_steps_is_not_asked_for() -> None:
    three = pl.DataFrame(
        {"window_start_ns": [0, 1000, 2000], "window_end_ns": [1000, 2000, 3000], "status": ["done", "done", "landed"]}
    )
    steps = pl.concat([ends("a", 0, 400, 900), ends("a", 2100, 2500, 2600).with_columns(step=pl.col("step") + 2)])
    members = run.truth()["truth_jobs"].with_columns(end_ns=pl.lit(3000, pl.Int64))
    scores = jobs.job_scores(run.found(windows=three), run.normal_truth(truth_steps=steps, truth_jobs=members))
    assert scores.select("window_start_ns", "done").rows() == [(0, True), (2000, False)]


GROWN = run.frame(
    [("a", "1", 0, 1900), ("a", "2", 0, 1900), ("a", "3", 600, 1900), ("a", "4", 600, 1895)],
    "job",
    "addr",
    "start_ns",
    "end_ns",
)
PAIR, WHOLE, ODD = {"1": "x", "2": "x"}, A, {"1": "x", "2": "x", "3": "x"}


@pytest.mark.parametrize(
    ("first", "second", "right"),
    [
        (PAIR, WHOLE, [True, True]),
        (WHOLE, WHOLE, [True, True]),
        (ODD, WHOLE, [False, True]),
        (PAIR, PAIR, [True, False]),
    ],
    ids=["as it was", "as it becomes", "neither", "too late"],
)
def test_either_set_counts_where_members_change(
    first: dict[str, str], second: dict[str, str], right: list[bool]
) -> None:
    assert exact(run.members(first, second), run.normal_truth(truth_jobs=GROWN)) == right


def test_ranks_that_leave_one_by_one_make_no_sets_of_their_own() -> None:
    """Rank 4 is gone for the last 5 ns, less than a step: without it the job was nothing."""
    assert exact(run.members(WHOLE, ODD), run.normal_truth(truth_jobs=GROWN)) == [True, False]


def test_only_steps_with_the_present_members_count() -> None:
    scores = jobs.job_scores(run.found(), run.normal_truth(truth_jobs=GROWN)).filter(pl.col("job") == "a")
    assert scores.select("changes", "steps", "members").rows() == [(True, 3, 4), (False, 12, 4)]


def test_what_leaves_no_flows_is_not_asked_for() -> None:
    hidden = run.truth()["truth_jobs"].with_columns(kind=pl.lit("training"), visible=pl.col("job") != "a")
    assert jobs.job_scores(run.found(), run.normal_truth(truth_jobs=hidden))["job"].unique().to_list() == ["b"]


@pytest.mark.parametrize(
    ("truth", "found", "who"),
    [
        ({}, {}, []),
        ({}, {**A, **B, "9": "z"}, ["nobody"]),
        (
            {"kind": pl.when(pl.col("job") == "b").then(pl.lit("other")).otherwise(pl.lit("training"))},
            {},
            ["another tenant"],
        ),
        ({"visible": pl.col("job") != "b"}, {}, ["an invisible job"]),
        ({"end_ns": pl.when(pl.col("job") == "b").then(900).otherwise("end_ns")}, {**A, **B}, ["a job that is over"]),
        ({}, {**A, "5": "y", "9": "y"}, []),
    ],
    ids=["right", "nobody", "other tenant", "inside its hosts", "over", "one true member"],
)
def test_training_without_a_member_that_trains_is_invented(
    truth: dict[str, pl.Expr], found: dict[str, str], who: list[str]
) -> None:
    known = run.normal_truth(truth_jobs=run.truth()["truth_jobs"].with_columns(**truth))
    tables = run.found(**run.members({}, found or {**A, **B}))
    assert jobs.invented_jobs(tables, known, jobs.owners(tables, known))["who"].to_list() == who


def test_a_job_that_is_called_other_is_not_invented() -> None:
    tables = run.found(**run.members({"9": "z"}))
    tables["jobs"] = tables["jobs"].with_columns(kind=pl.lit("other"))
    known = run.normal_truth()
    assert jobs.invented_jobs(tables, known, jobs.owners(tables, known)).is_empty()


REPLACED = run.frame(
    [("a", "1", 0, 1900), ("a", "2", 0, 1900), ("a", "3", 0, 900), ("a", "4", 0, 900), ("a", "7", 1000, 1900),
     ("a", "8", 1000, 1900)],
    "job", "addr", "start_ns", "end_ns",
)  # fmt: skip
LOST = REPLACED.with_columns(end_ns=pl.when(pl.col("addr") == "2").then(900).otherwise("end_ns"))


@pytest.mark.parametrize(
    ("members", "second", "changed"),
    [
        (None, A, False),
        (None, dict.fromkeys("1234", "z"), True),
        (REPLACED, dict.fromkeys("1278", "x"), False),
        (REPLACED, dict.fromkeys("1278", "z"), True),
        (LOST, dict.fromkeys("178", "z"), False),
    ],
    ids=["kept", "lost", "kept by half", "lost by half", "fewer than half stay"],
)
def test_an_id_is_kept_while_half_of_the_members_stay(
    members: pl.DataFrame | None, second: dict[str, str], changed: bool
) -> None:
    known = run.normal_truth(**({} if members is None else {"truth_jobs": members}))
    tables = run.found(**run.members(A, second))
    rows = jobs.identities(jobs.job_scores(tables, known), known, tables["windows"])
    assert rows.filter(pl.col("job") == "a")["changed"].to_list() == [changed]
