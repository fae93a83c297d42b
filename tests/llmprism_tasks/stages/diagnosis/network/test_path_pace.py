"""Hops: which records tell a pace, of which step, and how long a hop is busy."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest
from handmade import MB
from job_evidence import DEFAULT, groups, kinds, working
from placed_hops import RING, STEPS, Row, passed_on, placed

from llmprism_tasks.stages.diagnosis.network import hop_comparison, path_pace


def busy_longer(*rows: Row) -> list[float]:
    records = placed(*rows)
    compared = hop_comparison.compared(path_pace.paces(records, DEFAULT), DEFAULT)
    return path_pace.extra(records, compared)["extra_ns"].to_list()


def test_a_record_belongs_to_the_step_in_which_it_ends() -> None:
    found = placed((1000, 1100, "a", "b", 8 * MB), (5900, 6000, "a", "b", 8 * MB), (6000, 6001, "a", "b", 8 * MB))
    ends = STEPS["end_ns"].to_list()
    assert found["step_ns"].to_list() == [ends[1], ends[5], ends[6]]
    assert found["slow"].to_list() == [False, False, True]


def test_a_record_that_goes_on_over_the_end_of_a_step_tells_no_pace() -> None:
    """A collector joined the gradients of a step and the first bytes of the next: it computed in between."""
    assert placed((5900, 6800, "a", "b", 8 * MB)).is_empty()


def test_what_is_after_the_last_step_or_of_another_job_has_none() -> None:
    assert placed((12_000, 12_001, "a", "b", 8 * MB)).is_empty()


@pytest.mark.parametrize(("size", "count"), [(249_999, 0), (250_000, 1)])
def test_a_small_record_tells_of_latency(size: int, count: int) -> None:
    assert path_pace.timed(placed((10, 11, "a", "b", size)), DEFAULT).height == count


def test_a_record_that_ends_when_it_starts_tells_no_rate() -> None:
    assert path_pace.timed(placed((10, 10, "a", "b", 8 * MB)), DEFAULT).is_empty()


def test_a_ring_whose_records_all_end_when_they_start_has_no_pace() -> None:
    """As from an exporter that knows a single time of a flow."""
    begins = [1000 * step for step in range(6)] + [6000 + 2000 * step for step in range(3)]
    rows = [(at + 100, at + 100, src, dst, 6 * MB) for at in begins for src, dst in RING]
    assert path_pace.paces(placed(*rows, kind="dp", rings=["abcd"]), DEFAULT).is_empty()


def test_the_hops_of_a_ring_are_one_unit_and_pairs_are_each_their_own() -> None:
    assert placed((10, 20, "b", "a", 8 * MB), kind="dp")["unit"].to_list() == ["a"]
    assert placed((10, 20, "b", "a", 8 * MB))["unit"].to_list() == ["b to a"]
    assert placed((10, 20, "b", "a", 8 * MB), kind="other").is_empty()


@pytest.mark.parametrize(
    ("hops", "units"),
    [("ab bc ca ac cb ba", 2), ("ab bc ca", 1), ("ab ba", 1), ("ab bc cb ba", 1), ("ab ba ac ca", 1)],
    ids=["both ways", "one way", "two members", "a line", "a tree"],
)
def test_the_two_ways_around_a_ring_are_two_units(hops: str, units: int) -> None:
    """A line turns back at its ends, and so does a tree at its leaves."""
    found = placed(*((10, 20, src, dst, 8 * MB) for src, dst in hops.split()), kind="dp", rings=["abc"])
    assert found["unit"].n_unique() == units
    assert found.select(path_pace.ring_of_unit()).unique().to_series().to_list() == ["a"]


def test_links_of_a_pipeline_do_not_hide_the_two_ways_around_a_ring() -> None:
    """The link is the first pair that the ring's lowest address sends over."""
    rows = [(10.0, 20.0, src, dst, 8 * MB) for src, dst in ["xy", "yz", "zx", "xz", "zy", "yx"]]
    flows = pl.concat([kinds("j", pp=[(10.0, 20.0, "x", "a", 8 * MB)]), kinds("j", dp=rows)])
    evidence = dataclasses.replace(working([{"a": [0.0]}]), flows=flows, groups=groups("xyz"))
    found = path_pace.placed(evidence, STEPS)
    assert found.filter(pl.col("kind") == "dp")["unit"].n_unique() == 2


def test_queue_pairs_that_send_together_keep_a_hop_busy_once() -> None:
    """100 ms in healthy steps, of which 50 overlap; 300 in slow ones, of which 150 do."""
    healthy = [(step * 1000 + at, step * 1000 + at + 75, "a", "b", 8 * MB) for step in range(6) for at in (0, 25)]
    begins = [6000 + step * 2000 for step in range(3)]
    slow = [(begin + at, begin + at + 225, "a", "b", 8 * MB) for begin in begins for at in (0, 75)]
    assert busy_longer(*healthy, *slow) == pytest.approx([200e6], rel=1e-4)


def test_what_is_cut_into_small_records_in_slow_steps_keeps_a_hop_busy_all_the_same() -> None:
    """100 ms as one record in healthy steps; forty of 7.5 ms, each too small to tell a pace, in slow ones."""
    healthy = [(step * 1000, step * 1000 + 100, "a", "b", 8 * MB) for step in range(6)]
    slow = [
        (6000 + step * 2000 + 20 * part, 6007.5 + step * 2000 + 20 * part, "a", "b", 8 * MB // 40)
        for step in range(3)
        for part in range(40)
    ]
    assert busy_longer(*healthy, *slow) == pytest.approx([200e6], rel=1e-4)


def test_pauses_between_small_records_are_told_by_the_pace_of_larger_ones() -> None:
    """2 of 8 MB take 75 instead of 25 ms; the rest is cut into what passes at once, with pauses."""
    healthy = [(step * 1000, step * 1000 + 100, "a", "b", 8 * MB) for step in range(6)]
    begins = [6000 + step * 2000 for step in range(3)]
    large = [(begin, begin + 75, "a", "b", 2 * MB) for begin in begins]
    small = [(begin + 80 + part, begin + 80.1 + part, "a", "b", MB // 5) for begin in begins for part in range(30)]
    assert busy_longer(*healthy, *large, *small) == pytest.approx([200e6], rel=1e-4)


@pytest.mark.parametrize(("slower", "unseen"), [(1.8, True), (2.0, False)])
def test_records_that_show_half_of_how_slow_a_ring_is_tell_its_pace(slower: float, unseen: bool) -> None:
    """With pauses of 10 ms the ring takes 3.47 or 3.67 times as long, whose roots are 1.86 and 1.91."""
    healthy = [(step * 1000, step * 1000 + 60, src, dst, 6 * MB) for step in range(6) for src, dst in RING]
    begins = [6000 + step * 2000 + part * (5 * slower + 10) for step in range(3) for part in range(12)]
    later = [(begin, begin + 5 * slower, src, dst, MB // 2) for begin in begins for src, dst in RING]
    told = path_pace.paces(placed(*healthy, *later, kind="dp", rings=["abcd"]), DEFAULT)
    assert told["wait_ns"].is_not_null().any() == unseen


@pytest.mark.parametrize(("times", "unseen"), [(2, True), (3, False)])
def test_what_is_seldom_long_enough_to_measure_tells_no_pace(times: int, unseen: bool) -> None:
    """The hop of `a` sends pieces of 0.1 MB, as a NIC that may send only now and then, and some steps have one more."""
    healthy = [(step * 1000, step * 1000 + 60, src, dst, 6 * MB) for step in range(6) for src, dst in RING]
    begins = [6000 + step * 2000 + part * 20 for step in range(3) for part in range(12)]
    later = [(begin, begin + 9, src, dst, MB // 2) for begin in begins for src, dst in RING[1:]]
    later += [(begin + 2 * i, begin + 2 * i + 1, "a", "b", MB // 10) for begin in begins for i in range(5)]
    later += [(7000 + step * 2000, 7030 + step * 2000, "a", "b", MB) for step in range(times)]
    told = path_pace.paces(placed(*healthy, *later, kind="dp", rings=["abcd"]), DEFAULT)
    assert told["wait_ns"].is_not_null().any() == unseen


def test_bytes_wait_before_the_slow_hop_and_all_waits_add_up_to_nothing() -> None:
    rows = [row for step in range(3) for row in passed_on(6000 + step * 2000, "b", 30)]
    found = path_pace.waits(placed(*rows, kind="dp", rings=["abcd"])).sort("step_ns", "src_addr")
    by_hop = found.group_by("src_addr").agg(pl.col("wait_ns").last()).sort("src_addr")
    assert by_hop.filter(pl.col("wait_ns") > 0)["src_addr"].to_list() == ["b"]
    assert found.group_by("step_ns").agg(pl.col("wait_ns").sum())["wait_ns"].abs().max() == pytest.approx(0, abs=1e3)


def test_where_a_member_receives_over_several_hops_nobody_can_tell_for_which_it_waits() -> None:
    """Replicas of experts have rings of their own among the members of the job's ring."""
    rows = passed_on(6000, "b", 30)
    begins, ends, _, _, size = rows[0]
    assert path_pace.waits(placed(*rows, kind="dp", rings=["abcd"])).height == len("abcd")
    assert path_pace.waits(placed(*rows, (begins, ends, "a", "c", size), kind="dp", rings=["abcd"])).is_empty()
