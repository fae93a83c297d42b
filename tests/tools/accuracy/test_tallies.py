"""Counting runs together: sums, not means of means."""

from __future__ import annotations

import pytest
from results import NOTHING, result

from accuracy.families.registry import Bound
from accuracy.pages.run_totals import missed, tally


def test_counts_of_runs_add_up() -> None:
    counted = tally([result(), result(windows=1, exact=0, steps=150, steps_found=100, steps_extra=3)])
    assert counted["exact"] == pytest.approx(4 / 5)
    assert counted["steps_found"] == pytest.approx(150 / 200)
    assert counted["steps_extra"] == 3
    assert counted["counts"]["windows"] == 5


def test_errors_of_all_steps_are_pooled() -> None:
    counted = tally([result(errors=[0.0] * 19), result(errors=[1.0])])
    assert counted["error_median"] == 0
    assert counted["error_p95"] == pytest.approx(0.05)


def test_a_kind_that_is_nowhere_has_no_figures() -> None:
    counted = tally([result()])
    assert counted["ep_recall"] is None
    assert counted["pairs_right"] == 1


def test_the_lowest_of_all_kinds_counts() -> None:
    half = NOTHING | {"found": 10, "right": 10, "true": 20, "met": 10}
    counted = tally([result(pairs={"dp": half, "cp": NOTHING | {"found": 4, "right": 4, "true": 4, "met": 4}})])
    assert counted["dp_precision"] == 1
    assert counted["dp_recall"] == counted["pairs_right"] == 0.5


def test_only_what_carries_a_layout_is_counted_as_taken_for_a_pipeline() -> None:
    rows = [("dp", "pp", 2), ("cp+dp", "pp", 1), ("other", "pp", 5), ("pp", "dp", 7)]
    confusions = [{"job": "chat", "true": true, "kind": kind, "pairs": pairs} for true, kind, pairs in rows]
    assert tally([result(confusions=confusions)])["called_pp"] == 3


def test_jobs_that_were_not_found_are_not_right() -> None:
    bands = [{"job": "chat", "of": "jobs", "band": "0.5 to 0.75", "right": 2, "wrong": 1}]
    assert tally([result(bands=bands, confidence=[0.6] * 3)])["jobs_right"] == 0.5


def test_runs_without_steps_and_confidence_have_none() -> None:
    counted = tally([result(steps=0, steps_found=0, errors=[], confidence=[])])
    assert counted["steps_found"] is counted["error_p95"] is counted["confidence"] is None


def test_missed_bounds_are_returned() -> None:
    bounds = (Bound("exact", 0.99), Bound("steps_extra", 0, at_most=True))
    assert missed(bounds, tally([result()])) == []
    assert missed(bounds, tally([result(exact=3, steps_extra=1)])) == list(bounds)
