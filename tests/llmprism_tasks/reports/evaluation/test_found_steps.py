"""Steps: which were found, which were invented, and how far their ends and durations are from the true ones."""

from __future__ import annotations

import known_runs as run
import polars as pl
import pytest

from llmprism_tasks.reports.evaluation import jobs, steps

A = run.ENDS["a"]


def matched(ends: list[int], job_id: str = "x", **found: pl.DataFrame) -> pl.DataFrame:
    """Match job steps that end at these times, reported by the window they end in."""
    rows = [(end // 1000 * 1000, job_id, None, end) for end in ends]
    table = pl.DataFrame(rows, schema=run.found()["steps"].schema, orient="row")
    tables, known = run.found(steps=table, **found), run.normal_truth()
    scores = jobs.job_scores(tables, known)
    return steps.matched_steps(tables, known, scores, jobs.owners(tables, known)).filter(
        (pl.col("job") == "a") | pl.col("job").is_null()
    )


def counts(rows: pl.DataFrame) -> tuple[int, int, int]:
    counted = steps.step_counts(rows).select("true", "found", "extra").sum()
    return counted.row(0)  # type: ignore[return-value]


def test_a_constant_delay_is_no_error() -> None:
    rows = matched([end + 20 for end in A])
    assert counts(rows) == (18, 18, 0)
    assert steps.spread(steps.duration_errors(rows)["error"])["max"] == 0
    assert steps.spread(steps.end_errors(rows)["error_ns"])["max"] == 0


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([*A[:5], *A[6:], 1250], (18, 17, 1)),
        ([*A, A[3] + 5], (18, 18, 1)),
        ([*A[:3], A[3] - 5, A[3] + 5, *A[4:]], (18, 18, 1)),
        ([*A[:9], A[9] + 29, *A[10:]], (18, 18, 0)),
        ([*A[:9], A[9] + 31, *A[10:]], (18, 17, 1)),
        ([], (18, 0, 0)),
    ],
    ids=["missing and invented", "reported twice", "on both sides", "just near", "too far", "none"],
)
def test_steps_are_counted(ends: list[int], expected: tuple[int, int, int]) -> None:
    assert counts(matched(ends)) == expected


@pytest.mark.parametrize(("reduced", "expected"), [(False, (18, 18, 0)), (True, (18, 17, 1))])
def test_gradients_may_be_reduced_at_any_time_since_the_step_before(
    reduced: bool, expected: tuple[int, int, int]
) -> None:
    """Unless the truth tells when they were: then an end that early is none."""
    truth = run.truth()["truth_steps"]
    told = run.normal_truth(truth_steps=truth.with_columns(grad_end_ns="end_ns") if reduced else truth)
    early = [*A[:9], A[9] - 40, *A[10:]]
    rows = [(end // 1000 * 1000, "x", None, end) for end in early]
    tables = run.found(steps=pl.DataFrame(rows, schema=run.found()["steps"].schema, orient="row"))
    found = steps.matched_steps(tables, told, jobs.job_scores(tables, told), jobs.owners(tables, told))
    assert counts(found.filter((pl.col("job") == "a") | pl.col("job").is_null())) == expected


def test_a_late_end_makes_one_step_longer_and_the_next_shorter() -> None:
    rows = matched([*A[:9], A[9] + 10, *A[10:]])
    durations, ends = (
        steps.spread(steps.duration_errors(rows)["error"]),
        steps.spread(steps.end_errors(rows)["error_ns"]),
    )
    assert (durations["median"], durations["max"]) == pytest.approx((0, 0.1))
    assert (ends["median"], ends["max"]) == (0, 10)


def test_durations_are_only_compared_across_neighbours() -> None:
    """Without its third step, the run has two durations fewer, not one of twice the length."""
    rows = run.frame(
        [("a", 0, 0, 0), ("a", 1, 100, 100), ("a", 3, 300, 300), ("a", 4, 400, 440)],
        "job",
        "step",
        "true_ns",
        "found_ns",
    )
    assert steps.duration_errors(rows)["error"].to_list() == pytest.approx([0, 0.4])


def test_nanoseconds_of_our_time_are_not_rounded() -> None:
    """A double holds whole numbers up to 2**53: about 1e16, of today's 1.8e18 ns."""
    epoch = 1_760_000_000_000_000_001
    table = run.frame(
        [("a", n, epoch + 100 * n, epoch + 100 * n + n % 2) for n in range(4)], *("job", "step", "true_ns", "found_ns")
    )
    assert steps.duration_errors(table)["error"].to_list() == pytest.approx([0.01] * 3)
    assert (
        steps.end_errors(table)["error_ns"].to_list() == [0, 1, 0, 1] or steps.end_errors(table)["error_ns"].max() <= 1
    )


def test_steps_that_end_after_the_last_window_are_not_asked_for() -> None:
    first = {"windows": run.WINDOWS.head(1)}
    assert counts(matched([end for end in A if end < 1000], **first)) == (9, 9, 0)


def test_what_a_job_of_nobody_does_is_extra() -> None:
    tables = run.members(dict.fromkeys("1234", "x"), {**dict.fromkeys("1234", "x"), "9": "z"})
    assert counts(matched([1500], "z", **tables)) == (18, 0, 1)


def test_what_a_second_half_of_a_job_does_again_is_extra() -> None:
    halves = dict.fromkeys("123", "x") | {"4": "z"}
    tables = run.members(halves, halves)
    twice = pl.DataFrame(
        [(end // 1000 * 1000, job, None, end) for end in A for job in ("x", "z")],
        schema=run.found()["steps"].schema,
        orient="row",
    )
    found, known = run.found(**tables, steps=twice), run.normal_truth()
    scores = jobs.job_scores(found, known)
    rows = steps.matched_steps(found, known, scores, jobs.owners(found, known))
    assert counts(rows.filter(pl.col("job") == "a")) == (18, 18, 18)


def test_steps_in_silence_are_extra() -> None:
    """The job is over by the second window, and goes on being reported."""
    short = run.truth()["truth_steps"].filter(pl.col("end_ns") < 1000)
    found, known = run.found(), run.normal_truth(truth_steps=short)
    rows = steps.matched_steps(found, known, jobs.job_scores(found, known), jobs.owners(found, known))
    assert counts(rows.filter(pl.col("job") == "a")) == (9, 9, 9)


def one_after_the_other(ends: list[int]) -> pl.DataFrame:
    """Match steps of one found job, of whose NICs another true job has all after the end of the first one at 900."""
    known = run.truth()
    jobs_ = run.frame(
        [("a", addr, 0, 900) for addr in "1234"] + [("c", addr, 950, 2000) for addr in "1234"],
        *("job", "addr", "start_ns", "end_ns"),
    )
    first = known["truth_steps"].filter(pl.col("job") == "a", pl.col("end_ns") <= 900)
    second = run.frame([("c", i, 950 + 70 * i, 1020 + 70 * i) for i in range(14)], "job", "step", "start_ns", "end_ns")
    true = run.normal_truth(truth_jobs=jobs_, truth_steps=pl.concat([first, second]))
    rows = [(end // 1000 * 1000, "x", None, end) for end in ends]
    found = run.found(steps=pl.DataFrame(rows, schema=run.found()["steps"].schema, orient="row"))
    return steps.matched_steps(found, true, jobs.job_scores(found, true), jobs.owners(found, true))


def test_steps_of_jobs_that_were_found_as_one_are_each_job_s_own() -> None:
    ends = [*A[:9], *(1020 + 70 * i for i in range(14))]
    assert counts(one_after_the_other(ends)) == (23, 23, 0)


def test_what_is_near_no_job_s_steps_is_extra_once() -> None:
    ends = [*A[:9], 960, *(1020 + 70 * i for i in range(14))]
    assert counts(one_after_the_other(ends)) == (23, 23, 1)


@pytest.mark.parametrize(("last", "extra"), [(1975, 1), (1985, 0)])
def test_what_ended_after_the_data_but_for_the_offset_is_not_asked_for(last: int, extra: int) -> None:
    """All ends are found 20 ns early, and the last one belongs to a step whose true end nobody logged."""
    assert counts(matched([*(end - 20 for end in A), last])) == (18, 18, extra)
