"""Whose rows break an expectation, what is kept of them, and when it is forgotten."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from llmprism_tasks.contract.frames import conform
from llmprism_tasks.validation import refusals

KEY, KIND = "steps.key", "pairs.kind"


def results(*rows: dict[str, Any]) -> pl.DataFrame:
    whole = {"window_start_ns": 0, "column": "", "severity": "critical", "success": True, "observed": "{}"}
    return conform(pl.DataFrame([whole | row for row in rows]), "validation_results")


def refused(**rows: int) -> dict[str, Any]:
    return {"observed_value": sum(rows.values()), refusals.SET_ASIDE: rows}


def test_what_was_observed_is_kept_with_the_jobs_and_comes_back_from_the_results() -> None:
    seen = json.dumps({"observed_value": 5, "partial_unexpected_list": ["friends"]})
    kept = {KIND: refusals.refusal(seen, {"b": 2, "a": 3})}
    (row,) = refusals.noted(results({"expectation": KIND}), kept).to_dicts()
    assert (row["success"], row["unexpected_count"]) == (False, 5)
    assert json.loads(row["observed"])["partial_unexpected_list"] == ["friends"]
    assert refusals.told(refusals.noted(results({"expectation": KIND}), kept)) == kept


def test_what_remains_broken_is_no_refusal() -> None:
    broken = results({"expectation": KEY, "success": False, "observed": '{"observed_value": 1}'})
    assert refusals.told(broken) == {}
    assert refusals.noted(broken, {KEY: refused(a=1)}).equals(broken)


def test_a_result_that_is_no_json_is_no_refusal() -> None:
    assert refusals.told(results({"expectation": KEY, "success": False, "observed": '{"least": NaN}'})) == {}


def test_jobs_that_are_back_are_forgotten_the_others_are_not() -> None:
    earlier = {KEY: refused(a=1, b=2), KIND: refused(a=3)}
    assert refusals.by_job(refusals.standing(earlier, ["a", "c"])) == {"b": {KEY: 2}}
    assert refusals.standing(earlier, ["a", "b"]) == {}


def test_refusals_of_one_expectation_are_joined() -> None:
    both = refusals.joined({KEY: refused(a=1)}, {KEY: refused(b=2), KIND: refused(b=1)})
    assert refusals.by_job(both) == {"a": {KEY: 1}, "b": {KIND: 1, KEY: 2}}


def test_a_window_s_reason_keeps_what_else_was_odd_and_is_the_same_again() -> None:
    gone = {KEY: refused(a=1)}
    once = refusals.reason("late", gone)
    assert once == "late; set aside: job a (unexpected rows: 1 in steps.key)"
    assert refusals.reason(once, gone) == once
    assert refusals.reason(once, {}) == "late"
    assert refusals.reason(refusals.reason(None, gone), {}) is None
