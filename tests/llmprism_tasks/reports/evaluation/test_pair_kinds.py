"""Kinds of pairs: precision, recall and what was taken for what."""

from __future__ import annotations

from typing import Any

import known_runs as run
import polars as pl
import pytest

from llmprism_tasks.reports.evaluation import jobs, pairs


def asked(changes: dict[tuple[str, str], str | None], **truth: pl.DataFrame) -> pl.DataFrame:
    """Return the pairs asked for when some of job a's are called otherwise, or not found (None)."""
    kinds: dict[tuple[str, str], str | None] = {(src, dst): kind for src, dst, kind in run.PAIRS["a"]}
    rows = [(w, "x", *pair, kind, 0.9) for w in run.STARTS for pair, kind in (kinds | changes).items() if kind]
    columns = ("window_start_ns", "job_id", "src_addr", "dst_addr", "kind", "confidence")
    tables, known = run.found(pairs=run.frame(rows, *columns)), run.normal_truth(**truth)
    scores = jobs.job_scores(tables, known).filter(pl.col("job") == "a")
    return pairs.asked_pairs(tables, known, scores)


def shares(rows: pl.DataFrame) -> dict[str, tuple[float | None, float | None]]:
    figures: list[dict[str, Any]] = pairs.precision_recall(pairs.kind_counts(rows)).to_dicts()
    return {row["kind"]: (row["precision"], row["recall"]) for row in figures}


RIGHT = {"dp": (1.0, 1.0), "pp": (1.0, 1.0)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, RIGHT),
        ({("1", "3"): "dp"}, {"dp": (0.8, 1.0), "pp": (1.0, 0.5)}),
        ({("1", "2"): None}, {"dp": (1.0, 0.75), "pp": (1.0, 1.0), "other": (0.0, None)}),
        ({("1", "4"): "dp"}, {"dp": (0.8, 1.0), "pp": (1.0, 1.0), "other": (None, 0.0)}),
        ({("1", "4"): "other"}, RIGHT | {"other": (1.0, 1.0)}),
    ],
    ids=["right", "a wrong kind", "not found", "chatter taken for dp", "chatter"],
)
def test_kinds_are_scored_pair_by_pair(changes: dict[tuple[str, str], str | None], expected: object) -> None:
    assert shares(asked(changes)) == expected


@pytest.mark.parametrize(("kind", "right"), [("dp", True), ("cp", True), ("pp", False)])
def test_any_of_a_pairs_kinds_is_right(kind: str, right: bool) -> None:
    known = run.truth()["truth_pairs"]
    two = pl.concat([known, run.frame([("a", "1", "2", "cp")], *known.columns)])
    rows = asked({("1", "2"): kind}, truth_pairs=two)
    assert rows["right"].all() is right
    assert pairs.confusions(rows)["true"].to_list() == ([] if right else ["cp+dp"])


def test_what_was_taken_for_what_is_counted() -> None:
    rows = pairs.confusions(asked({("1", "3"): "dp", ("3", "1"): "dp", ("4", "3"): None}))
    assert rows.rows() == [("a", "dp", "other", 2), ("a", "pp", "dp", 4)]


def test_kinds_are_asked_for_after_five_steps() -> None:
    early = run.truth()["truth_steps"].with_columns(pl.col("start_ns", "end_ns") + 500)
    assert pairs.SETTLED_STEPS == 5
    assert asked({}, truth_steps=early)["window_start_ns"].unique().to_list() == [1000]  # 4 have ended before 1,000
    one_more = early.with_columns(pl.col("start_ns", "end_ns") - 50)
    assert asked({}, truth_steps=one_more)["window_start_ns"].unique().sort().to_list() == [0, 1000]


def test_only_pairs_of_present_members_are_asked_for() -> None:
    members = run.truth()["truth_jobs"].with_columns(
        start_ns=pl.when(pl.col("addr").is_in(["3", "4"])).then(1000).otherwise("start_ns")
    )
    first = asked({}, truth_jobs=members).filter(
        pl.col("window_start_ns") == 0, ~pl.col("kinds").list.contains("other")
    )
    assert first.select("src_addr", "dst_addr").rows() == [("1", "2"), ("2", "1")]


@pytest.mark.parametrize(("since", "missing"), [(0, 2), (10, 0)])
def test_what_carries_nothing_may_be_of_another_time_once_members_joined(since: int, missing: int) -> None:
    members = run.truth()["truth_jobs"].with_columns(
        start_ns=pl.when(pl.col("addr") == "4").then(since).otherwise("start_ns")
    )
    assert asked({("1", "2"): None}, truth_jobs=members)["absent"].sum() == missing


def test_pairs_may_have_their_own_times() -> None:
    timed = run.truth()["truth_pairs"].with_columns(
        start_ns=0, end_ns=pl.when(pl.col("src_addr") == "1").then(1000).otherwise(2000)
    )
    rows = asked({("1", "2"): None, ("1", "3"): None}, truth_pairs=timed)
    assert rows.group_by("window_start_ns").agg(pl.col("right").all()).sort("window_start_ns")["right"].to_list() == [
        False,
        True,
    ]


@pytest.mark.parametrize(("nics", "strangers"), [("1234", 0), ("56", 4)])
def test_jobs_that_follow_each_other_on_the_same_nics_share_rows_of_pairs(nics: str, strangers: int) -> None:
    """Job b is found as job a; where it has other NICs, its pairs are none of a's."""
    known = run.truth()
    others = [("b", nics[0], nics[-1], "dp"), ("b", nics[-1], nics[0], "dp"), ("b", "1", "3", "dp")]
    kept = {name: known[name].filter(pl.col("job") == "a") for name in ("truth_jobs", "truth_pairs")}
    placed = run.frame([("b", addr, 0, 1900) for addr in nics], *kept["truth_jobs"].columns)
    truth = run.normal_truth(
        truth_jobs=pl.concat([kept["truth_jobs"], placed]),
        truth_pairs=pl.concat([kept["truth_pairs"], run.frame(others, *kept["truth_pairs"].columns)]),
    )
    rows = [(w, "x", *pair[1:], 0.9) for w in run.STARTS for pair in [*kept["truth_pairs"].rows(), *others[:2]]]
    columns = ("window_start_ns", "job_id", "src_addr", "dst_addr", "kind", "confidence")
    merged = run.members(*[dict.fromkeys("123456", "x")] * 2)
    tables = run.found(pairs=run.frame(rows, *columns), **merged)
    found = pairs.asked_pairs(tables, truth, jobs.job_scores(tables, truth)).filter(pl.col("job") == "a")
    assert found.filter(~pl.col("right")).height == strangers
    kinds = found.filter(src_addr="1", dst_addr="3")["kinds"].to_list()
    assert kinds == [["dp", "pp"] if nics == "1234" else ["pp"]] * 2
