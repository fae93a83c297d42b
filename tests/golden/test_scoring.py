"""The scores themselves: what is wrong on purpose is counted as wrong."""

from __future__ import annotations

import polars as pl
import pytest
import scoring

WINDOWS = pl.DataFrame({"window_start_ns": [0, 1000], "window_end_ns": [1000, 2000]})
ENDS = [100 * (i + 1) for i in range(18)]
TRUTH = {
    "truth_jobs": pl.DataFrame({"job": ["a", "a", "b"], "addr": ["1", "2", "3"]}),
    "truth_steps": pl.DataFrame({"job": "a", "step": range(18), "start_ns": [e - 100 for e in ENDS], "end_ns": ENDS}),
    "truth_pairs": pl.DataFrame(
        {"job": "a", "src_addr": ["1", "2", "2"], "dst_addr": ["2", "1", "1"], "kind": ["dp", "dp", "other"]}
    ),
    "layouts": pl.DataFrame({"job": ["a"], "tp": [1], "pp": [1], "dp": [2]}),
}
DEGREES = {"tp": [1, 1], "pp": [1, 1], "dp": [2, 2]}


def members(*by_window: dict[str, str]) -> dict[str, pl.DataFrame]:
    """Return `job_members` and `jobs` from the job of each address, window by window."""
    rows = [(1000 * number, job, addr) for number, window in enumerate(by_window) for addr, job in window.items()]
    table = pl.DataFrame(rows, schema=["window_start_ns", "job_id", "addr"], orient="row")
    jobs = table.select("window_start_ns", "job_id").unique().with_columns(tp=1, pp=1, dp=2)
    return {"job_members": table, "jobs": jobs}


def jobs_of(found: dict[str, pl.DataFrame]) -> pl.DataFrame:
    return scoring.job_scores(found, TRUTH, WINDOWS).filter(pl.col("job") == "a")


RIGHT = members({"1": "j", "2": "j"}, {"1": "j", "2": "j"})


@pytest.mark.parametrize(
    ("second", "exact"),
    [
        ({"1": "j", "2": "j"}, True),
        ({"1": "j"}, False),
        ({"1": "j", "2": "k"}, False),
        ({"1": "j", "2": "j", "3": "j"}, False),
        ({"1": "j", "2": "j", "9": "j"}, False),
        ({}, False),
    ],
    ids=["right", "one missing", "cut in two", "two jobs as one", "a stranger", "not seen"],
)
def test_members_must_be_exactly_the_true_ones(second: dict[str, str], exact: bool) -> None:
    assert jobs_of(members({"1": "j", "2": "j"}, second))["exact"].to_list() == [True, exact]


def test_jobs_without_a_true_member_are_invented() -> None:
    found = members({"1": "j", "2": "j", "9": "x"})
    assert scoring.invented_jobs(found, TRUTH)["job_id"].to_list() == ["x"]


def pairs(*kinds: tuple[str, str, str]) -> dict[str, pl.DataFrame]:
    table = pl.DataFrame(list(kinds), schema=["src_addr", "dst_addr", "kind"], orient="row")
    return {"pairs": pl.concat([table.with_columns(window_start_ns=w, job_id=pl.lit("j")) for w in (0, 1000)])}


@pytest.mark.parametrize(
    ("found", "dp", "pp_precision"),
    [
        (pairs(("1", "2", "dp"), ("2", "1", "dp")), (1.0, 1.0), None),
        (pairs(("1", "2", "dp"), ("2", "1", "other")), (1.0, 1.0), None),
        (pairs(("1", "2", "dp"), ("2", "1", "pp")), (1.0, 0.5), 0.0),
        (pairs(("1", "2", "dp")), (1.0, 1.0), None),
        (pairs(("2", "1", "dp")), (1.0, 0.5), None),
        (pairs(("1", "2", "dp"), ("2", "1", "dp"), ("1", "3", "dp")), (2 / 3, 1.0), None),
    ],
    ids=["right", "another true kind", "a wrong kind", "other by its absence", "missing", "chatter taken for dp"],
)
def test_kinds_are_scored_pair_by_pair(
    found: dict[str, pl.DataFrame], dp: tuple[float, float], pp_precision: float | None
) -> None:
    scores = {row["kind"]: row for row in scoring.kind_scores(found, TRUTH, jobs_of(RIGHT)).iter_rows(named=True)}
    assert (scores["dp"]["precision"], scores["dp"]["recall"]) == pytest.approx(dp)
    assert ("pp" in scores) == (pp_precision is not None)
    if pp_precision is not None:
        assert scores["pp"]["precision"] == pp_precision


def test_degrees_are_right_together_or_not_at_all() -> None:
    jobs = jobs_of(RIGHT)
    assert scoring.degree_scores(jobs, TRUTH)["right"].to_list() == [1.0]
    unknown = jobs.with_columns(dp=pl.Series([2, None]))
    assert scoring.degree_scores(unknown, TRUTH)["right"].to_list() == [0.5]


def step_figures(ends: list[int]) -> dict[str, float]:
    """Score job steps that end at these times, reported by the window they end in."""
    steps = pl.DataFrame({"end_ns": ends}).with_columns(
        window_start_ns=pl.col("end_ns") // 1000 * 1000, job_id=pl.lit("j"), addr=pl.lit(None, dtype=pl.String)
    )
    matched = scoring.matched_steps({"steps": steps}, TRUTH, jobs_of(RIGHT))
    return scoring.step_scores(matched).row(0, named=True)


def test_a_constant_delay_is_no_error() -> None:
    figures = step_figures([end + 20 for end in ENDS])
    assert (figures["true"], figures["found"], figures["extra"], figures["worst"]) == (18, 18, 0, 0)


def test_a_step_that_is_missing_or_invented_is_counted() -> None:
    figures = step_figures([*ENDS[:5], *ENDS[6:], 1250])
    assert (figures["true"], figures["found"], figures["extra"]) == (18, 17, 1)


def test_a_step_reported_twice_is_extra_once() -> None:
    figures = step_figures([*ENDS, ENDS[3] + 5])
    assert (figures["found"], figures["extra"]) == (18, 1)


def test_a_late_end_makes_one_step_longer_and_the_next_shorter() -> None:
    figures = step_figures([*ENDS[:9], ENDS[9] + 10, *ENDS[10:]])
    assert figures["found"] == 18
    assert figures["worst"] == pytest.approx(0.1)
    assert figures["median"] == 0


def test_durations_are_only_compared_across_neighbours() -> None:
    """Without its fifth step, the run has two durations fewer, not one of twice the length."""
    steps = pl.DataFrame(
        {"job": "a", "step": [0, 1, 3, 4], "true_ns": [0, 100, 300, 400], "found_ns": [0, 100, 300, 440]}
    )
    assert scoring.duration_errors(steps)["error"].to_list() == pytest.approx([0, 0.4])
