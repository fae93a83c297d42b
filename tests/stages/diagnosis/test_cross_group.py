"""A data-parallel group is named when its transfers are slow against those of its job's other groups."""

from __future__ import annotations

import dataclasses
from typing import Any

import polars as pl
import pytest
from handmade import WINDOW
from job_evidence import DEFAULT, moving, shuffled, together
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis import cross_group
from llmprism_tasks.stages.diagnosis.evidence import ROW, Evidence

RATES = {"abc": 100.0, "def": 100.0, "ghi": 100.0, "jkl": 100.0}


def found(evidence: Evidence, **changed: Any) -> pl.DataFrame:
    return cross_group.find(evidence, dataclasses.replace(DEFAULT, **changed))


def named(evidence: Evidence, **changed: Any) -> list[str]:
    return found(evidence, **changed)["subject"].to_list()


def test_the_slow_group_is_named_by_its_lowest_address() -> None:
    rows = found(moving({"abc": 100, "fed": 40, "ghi": 100, "jkl": 100}, lengths=[900] * 5 + [1000] * 10))
    row = rows.row(0, named=True)
    assert rows.height == 1
    assert rows.schema == pl.Schema(ROW)
    assert (row["kind"], row["subject_type"], row["subject"]) == ("cross_group", "dp_group", "d")
    assert row["score"] == pytest.approx(2.5)
    assert row["severity"] == pytest.approx(1000 / 900 - 1)
    assert (row["start_ns"], row["end_ns"]) == (WINDOW.start_ns, WINDOW.end_ns)
    assert "2.5 times the usual time per byte of the job's groups (40.0 Gbit/s)" in row["explanation"]
    assert (row["confidence"], row["peers"]) == (None, ["a", "g", "j"])


@pytest.mark.parametrize(("rate", "names"), [(79, ["a"]), (81, [])])
def test_a_quarter_slower_is_slow(rate: float, names: list[str]) -> None:
    evidence = moving({**RATES, "abc": rate})
    assert named(evidence) == names
    assert named(evidence, slow_rate=1.1) == ["a"]
    assert named(evidence, slow_rate=1.5) == []


@pytest.mark.parametrize(("groups", "names"), [(2, []), (3, ["a"])])
def test_two_groups_cannot_outvote_each_other(groups: int, names: list[str]) -> None:
    evidence = moving(dict(list({**RATES, "abc": 50.0}.items())[:groups]))
    assert named(evidence) == names
    assert named(evidence, least_peers=4) == []


@pytest.mark.parametrize(("records", "names"), [(9, []), (10, ["a"])])
def test_a_rate_from_few_records_is_chance(records: int, names: list[str]) -> None:
    evidence = moving({**RATES, "abc": 50.0}, records=records)
    assert named(evidence) == names
    assert named(evidence, least_records=9) == ["a"]


def test_groups_that_have_all_become_slow_are_not_to_blame_for_each_other() -> None:
    """Each was twice as quick in the look-back, and so were the others: what changed is not one group."""
    slow = dict.fromkeys(RATES, 50.0)
    assert named(moving(slow, before=RATES)) == []


def test_a_group_that_was_always_slow_is_still_slow() -> None:
    slow = {**RATES, "abc": 50.0}
    assert named(moving(slow, before=slow)) == ["a"]


def test_groups_are_compared_within_their_job() -> None:
    quick, slow = moving(RATES, job="quick"), moving({ring.upper(): 20.0 for ring in RATES}, job="slow")
    assert named(together(quick, slow)) == []


def test_pipeline_pairs_are_no_groups() -> None:
    pairs = {"ad": 100.0, "be": 100.0, "cf": 100.0, "gj": 20.0}
    assert named(moving(RATES, pairs)) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    evidence = moving({**RATES, "abc": 50.0})
    assert_frame_equal(found(shuffled(evidence, seed)), found(evidence))
