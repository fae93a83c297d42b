"""A switch is named when most that crosses it is slow, and more than one ring or pair; innocent ones are not."""

from __future__ import annotations

import dataclasses
from string import ascii_letters
from typing import Any

import polars as pl
import pytest
from handmade import WINDOW
from hypothesis import given
from hypothesis import strategies as st
from job_evidence import DEFAULT, moving, shuffled, together, without_rows
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis import cross_group, switch_level
from llmprism_tasks.stages.diagnosis.evidence import ROW, Evidence

LETTERS = ascii_letters[:36]
RATES = {"abc": 100.0, "def": 100.0, "ghi": 100.0, "jkl": 100.0, "mno": 100.0}
RAILS = {ring: [f"leaf-{i}"] for i, ring in enumerate(RATES)}
"""Rings by their NICs, each on a rail and a leaf of its own."""


def found(evidence: Evidence, **changed: Any) -> pl.DataFrame:
    return switch_level.find(evidence, dataclasses.replace(DEFAULT, **changed))


def named(evidence: Evidence, **changed: Any) -> list[str]:
    return found(evidence, **changed)["subject"].to_list()


def groups_named(evidence: Evidence, **changed: Any) -> list[str]:
    return cross_group.find(evidence, dataclasses.replace(DEFAULT, **changed))["subject"].to_list()


def shared(slow: float = 50, **more: Any) -> Evidence:
    """Return five rings, of which the first two share a leaf and its rate."""
    rates = {**RATES, "abc": slow, "def": slow}
    return moving(rates, paths=RAILS | {"abc": ["leaf-x"], "def": ["leaf-x"]}, **more)


def test_a_leaf_that_two_slow_rings_share_is_named() -> None:
    rows = found(shared(lengths=[900] * 5 + [1000] * 10))
    row = rows.row(0, named=True)
    assert rows.height == 1
    assert rows.schema == pl.Schema(ROW)
    assert (row["kind"], row["subject_type"], row["subject"]) == ("switch_level", "switch", "leaf-x")
    assert row["score"] == pytest.approx(2)
    assert row["severity"] == pytest.approx(1000 / 900 - 1)
    assert (row["start_ns"], row["end_ns"]) == (WINDOW.start_ns, WINDOW.end_ns)
    assert "2 of 2 rings and pipeline pairs across leaf-x are slow" in row["explanation"]
    assert "2.00 times the usual time per byte (50.0 Gbit/s)" in row["explanation"]
    assert (row["confidence"], row["peers"]) == (None, ["leaf-2", "leaf-3", "leaf-4"])


def test_what_a_switch_explains_is_no_group_s_fault() -> None:
    assert groups_named(shared()) == []


def test_records_that_end_when_they_start_tell_no_rate() -> None:
    evidence = shared()
    instant = dataclasses.replace(evidence, flows=evidence.flows.with_columns(flow_end_ns="flow_start_ns"))
    assert named(instant) == []


def test_one_slow_ring_may_have_a_slow_nic() -> None:
    """It is the group's, not the switch's; two are asked for."""
    evidence = moving({**RATES, "abc": 50.0}, paths=RAILS)
    assert named(evidence) == []
    assert groups_named(evidence) == ["a"]
    assert named(evidence, least_transfers=1) == ["leaf-0"]
    assert named(shared(), least_transfers=3) == []


def test_a_job_whose_rings_and_pairs_are_alike_is_silent() -> None:
    evidence = moving(RATES, {"ad": 100, "be": 100, "cf": 100}, paths=RAILS)
    assert named(evidence) == []
    assert groups_named(evidence) == []


@pytest.mark.parametrize(("rate", "names"), [(79, ["leaf-x"]), (81, [])])
def test_a_quarter_slower_is_slow(rate: float, names: list[str]) -> None:
    assert named(shared(rate)) == names
    assert named(shared(rate), slow_rate=1.2) == ["leaf-x"]
    assert named(shared(rate), slow_rate=1.3) == []


@pytest.mark.parametrize(("records", "names"), [(9, []), (10, ["leaf-x"])])
def test_a_rate_from_few_records_is_chance(records: int, names: list[str]) -> None:
    """Ten are asked for, of each path."""
    assert named(shared(records=records)) == names
    assert named(shared(records=records), least_records=8) == ["leaf-x"]


@pytest.mark.parametrize(("size", "names"), [(999_999, []), (1_000_000, ["leaf-x"])])
def test_a_small_record_tells_of_latency(size: int, names: list[str]) -> None:
    assert named(shared(size=size)) == names
    assert named(shared(size=size), least_bytes=10) == ["leaf-x"]


@pytest.mark.parametrize(("quick", "names"), [(1, []), (0, ["leaf-x"])])
def test_most_of_what_crosses_a_slow_switch_is_slow(quick: int, names: list[str]) -> None:
    """Two slow rings of three are too few, of two they are all."""
    crossing = ["abc", "def", "ghi"][: 2 + quick]
    evidence = moving({**RATES, "abc": 50.0, "def": 50.0}, paths=RAILS | {ring: ["leaf-x"] for ring in crossing})
    assert named(evidence) == names
    assert named(evidence, persistence=0.6) == ["leaf-x"]


def test_a_spine_is_named_by_the_paths_that_hashing_chose() -> None:
    """Slow rings come from different leaves; their leaves and other spines also carry quick ones."""
    rates = {**RATES, "pqr": 100.0, "abc": 40.0, "ghi": 40.0, "mno": 40.0}
    spines = {"abc": "s1", "def": "s2", "ghi": "s1", "jkl": "s0", "mno": "s1", "pqr": "s2"}
    paths = {ring: [f"leaf-{i // 2}", spines[ring], f"leaf-{i // 2 + 3}"] for i, ring in enumerate(rates)}
    evidence = moving(rates, paths=paths)
    assert named(evidence) == ["s1"]
    assert groups_named(evidence) == []


def hashed(slow: float, *, records: int = 12) -> Evidence:
    """Return pipeline pairs with two queue pairs each, of which hashing sent one across `s1` and one elsewhere."""
    pairs = {"ad": 100.0, "be": 100.0, "cf": 100.0, "gj": 100.0}
    leaves = {pair: (f"leaf-{i}", f"leaf-{i + 4}") for i, pair in enumerate(pairs)}
    others = {pair: [up, f"s{2 + i % 2}", down] for i, (pair, (up, down)) in enumerate(leaves.items())}
    across = {pair: [up, "s1", down] for pair, (up, down) in leaves.items() if pair in ("ad", "be", "cf")}
    one = moving(RATES, pairs, paths=others)
    other = moving({"abc": 1.0}, dict.fromkeys(across, slow), paths=across, records=records)
    return dataclasses.replace(one, flows=pl.concat([one.flows, other.flows.filter(kind="pp")]))


@pytest.mark.parametrize(("rate", "names"), [(50, ["s1"]), (79, ["s1"]), (81, []), (100, [])])
def test_each_path_of_a_pair_is_measured_by_itself(rate: float, names: list[str]) -> None:
    """The pair's quickest records took the other path, and its leaves are crossed by both."""
    assert named(hashed(rate)) == names


@pytest.mark.parametrize(("records", "names"), [(9, []), (10, ["s1"])])
def test_a_path_that_few_records_took_tells_nothing(records: int, names: list[str]) -> None:
    assert named(hashed(50, records=records)) == names


def test_innocent_switches_that_slow_rings_share_are_not_named_too() -> None:
    """Two of the three slow rings also share a leaf that carries nothing else: the spine explains all three."""
    rates = {**RATES, "abc": 40.0, "def": 40.0, "ghi": 40.0, "pqr": 100.0, "stu": 100.0}
    paths = {"abc": ["leaf-0", "s1"], "def": ["leaf-0", "s1"], "ghi": ["leaf-1", "s1"]}
    paths |= {ring: ["leaf-2", "s2"] for ring in ("jkl", "mno", "pqr", "stu")}
    assert named(moving(rates, paths=paths)) == ["s1"]


def test_two_slow_switches_are_both_named() -> None:
    rates = {**RATES, "pqr": 100.0, "stu": 100.0, "vwx": 100.0, "yzA": 100.0}
    paths = {ring: [f"leaf-{i // 2}"] for i, ring in enumerate(rates)}
    slow = {"abc": 50.0, "def": 50.0, "jkl": 25.0, "ghi": 25.0}
    assert sorted(named(moving(rates | slow, paths=paths))) == ["leaf-0", "leaf-1"]


def test_without_paths_no_switch_is_named() -> None:
    """The rings are slow all the same; of five, two are their groups' news."""
    evidence = moving({**RATES, "abc": 50.0, "def": 50.0})
    assert named(evidence) == []
    assert groups_named(evidence) == ["a", "d"]


def test_rings_and_pipeline_pairs_are_compared_with_their_like() -> None:
    """Pairs at a quarter of the rings' rate are no slower than their like; one of two across a leaf is slow."""
    pairs = {"ad": 25.0, "be": 25.0, "cf": 25.0, "gj": 25.0}
    paths = RAILS | {"ad": ["leaf-x"], "be": ["leaf-x"], "cf": ["leaf-y"], "gj": ["leaf-y"]}
    assert named(moving(RATES, pairs, paths=paths)) == []
    slow = moving(RATES, pairs | {"ad": 12.0, "be": 12.0}, paths=paths)
    assert named(slow) == ["leaf-x"]
    assert groups_named(slow) == []


def test_each_job_that_a_slow_switch_touches_is_told() -> None:
    """One ring of each: together they are two."""
    left = moving({**RATES, "abc": 50.0}, paths=RAILS, job="left")
    right = moving(
        {ring.upper(): 100.0 for ring in RATES} | {"ABC": 50.0},
        paths={ring.upper(): [f"other-{i}"] for i, ring in enumerate(RATES)} | {"ABC": ["leaf-0"]},
        job="right",
    )
    rows = found(together(left, right))
    assert rows.sort("job_id").select("job_id", "subject").rows() == [("left", "leaf-0"), ("right", "leaf-0")]
    assert groups_named(together(left, right)) == []


def test_no_evidence_no_rows() -> None:
    for module in (switch_level, cross_group):
        rows = module.find(without_rows(shared()), DEFAULT)
        assert_frame_equal(rows, pl.DataFrame(schema=ROW))


@given(st.sets(st.integers(0, 5), max_size=2), st.floats(1.4, 8), st.integers(0, 10**6))
def test_slow_leaves_are_named_and_no_others_in_whatever_order_rows_come(
    slow: set[int], factor: float, seed: int
) -> None:
    """Six leaves of two rings each, all of one job; at most two leaves are slow."""
    rings = ["".join(ring) for ring in zip(LETTERS[::3], LETTERS[1::3], LETTERS[2::3], strict=True)]
    rates = {ring: 100 / factor if i // 2 in slow else 100 + i % 3 for i, ring in enumerate(rings)}
    evidence = moving(rates, paths={ring: [f"leaf-{i // 2}"] for i, ring in enumerate(rings)}, records=10)
    rows = found(evidence)
    assert sorted(rows["subject"]) == [f"leaf-{i}" for i in sorted(slow)]
    assert_frame_equal(found(shuffled(evidence, seed)), rows)
