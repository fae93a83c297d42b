"""Hops: which records tell a pace, of which step, and how long a hop is busy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import polars as pl
import pytest
from handmade import MB
from job_evidence import DEFAULT, groups, history, kinds, working

from llmprism_tasks.stages.diagnosis.network import path_pace
from llmprism_tasks.stages.diagnosis.step_times.slow_steps import mark_slow_steps

STEPS = mark_slow_steps(history([1000] * 6 + [2000] * 3), DEFAULT)


Row = tuple[float, float, str, str, int]
RING = ("ab", "bc", "cd", "da")


def placed(*rows: Row, kind: str = "pp", rings: Sequence[str] = ("ab", "cd")) -> pl.DataFrame:
    evidence = dataclasses.replace(working([{"a": [0.0]}]), flows=kinds("j", **{kind: rows}), groups=groups(*rings))
    return path_pace.placed(evidence, STEPS)


def busy_longer(*rows: Row) -> list[float]:
    records = placed(*rows)
    compared = path_pace.compared(path_pace.paces(records, DEFAULT), DEFAULT)
    return path_pace.extra(records, compared)["extra_ns"].to_list()


def test_a_record_belongs_to_the_step_in_which_it_ends() -> None:
    found = placed((900, 1100, "a", "b", 8 * MB), (5900, 6000, "a", "b", 8 * MB), (6000, 6001, "a", "b", 8 * MB))
    ends = STEPS["end_ns"].to_list()
    assert found["step_ns"].to_list() == [ends[1], ends[5], ends[6]]
    assert found["slow"].to_list() == [False, False, True]


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


@pytest.mark.parametrize(("healthy", "slow", "count"), [(3, 3, 1), (2, 3, 0), (3, 2, 0)])
def test_a_path_is_seen_in_three_steps_of_either_sort(healthy: int, slow: int, count: int) -> None:
    begins = [step * 1000 for step in range(healthy)] + [6000 + step * 2000 for step in range(slow)]
    records = placed(*((begin, begin + 100, "a", "b", 8 * MB) for begin in begins))
    assert path_pace.compared(path_pace.paces(records, DEFAULT), DEFAULT).height == count


@pytest.mark.parametrize(("push", "slow"), [(12.5, ["a"]), (15, ["a"]), (16, ["a", "b"])])
def test_a_hop_that_pushes_at_its_usual_pace_waits_for_its_ring(push: float, slow: list[str]) -> None:
    """All hops of the ring take three times as long; before it is complete, `b` pushes 1 MB in 12.5 ms as ever."""
    begins = [(step * 1000, 100) for step in range(6)] + [(6000 + step * 2000, 300) for step in range(3)]
    ring = [(at + 50, at + 50 + length, src, dst, 8 * MB) for at, length in begins for src, dst in ("ab", "ba")]
    pushed = [(at, at + push, "b", "a", MB) for at, length in begins if length == 300]
    found = path_pace.compared(path_pace.paces(placed(*ring, *pushed, kind="dp"), DEFAULT), DEFAULT)
    assert found.filter("slow")["src_addr"].to_list() == slow


@pytest.mark.parametrize(("other", "slow"), [(120, ["b", "c"]), (280, ["c"])])
def test_who_pushes_at_its_usual_pace_is_slow_if_the_ring_does_not_stretch_all(other: float, slow: list[str]) -> None:
    """A queue before a slow link may take at once what `b` pushes; `a` moves its 8 MB at nearly its usual pace, or the
    ring holds it up as well."""
    begins = [(step * 1000, 100.0, 100.0) for step in range(6)] + [(6000 + i * 2000, 300.0, other) for i in range(3)]
    ring = [
        (at + 50, at + 50 + (of_a if src == "a" else length), src, dst, 8 * MB)
        for at, length, of_a in begins
        for src, dst in ("ab", "bc", "ca")
    ]
    pushed = [(at, at + 12.5, "b", "c", MB) for at, length, _ in begins if length == 300]
    records = placed(*ring, *pushed, kind="dp", rings=["abc"])
    found = path_pace.compared(path_pace.paces(records, DEFAULT), DEFAULT)
    assert [name for name in found.filter("slow")["src_addr"] if name != "a"] == slow


@pytest.mark.parametrize(("times", "slow"), [(0, ["a", "b"]), (1, ["a"]), (3, ["a"])])
def test_who_comes_last_to_its_ring_has_nothing_to_push(times: int, slow: list[str]) -> None:
    """In three steps that are slow `b` pushes in some."""
    begins = [(step * 1000, 100) for step in range(6)] + [(6000 + step * 2000, 300) for step in range(3)]
    ring = [(at + 50, at + 50 + length, src, dst, 8 * MB) for at, length in begins for src, dst in ("ab", "ba")]
    pushed = [(at, at + 12.5, "b", "a", MB) for at, _ in begins[6 : 6 + times]]
    found = path_pace.compared(path_pace.paces(placed(*ring, *pushed, kind="dp"), DEFAULT), DEFAULT)
    assert found.filter("slow")["src_addr"].to_list() == slow


@pytest.mark.parametrize(("size", "slow"), [(999_999, ["a", "b"]), (1_000_000, ["a"])])
def test_a_small_push_tells_nothing_of_its_sender(size: int, slow: list[str]) -> None:
    """`b` pushes at its usual pace; a queue that is empty takes some hundred kB at any rate."""
    begins = [(step * 1000, 100) for step in range(6)] + [(6000 + step * 2000, 300) for step in range(3)]
    ring = [(at + 50, at + 50 + length, src, dst, 8 * MB) for at, length in begins for src, dst in ("ab", "ba")]
    pushed = [(at, at + 12.5, "b", "a", size) for at, length in begins if length == 300]
    found = path_pace.compared(path_pace.paces(placed(*ring, *pushed, kind="dp"), DEFAULT), DEFAULT)
    assert found.filter("slow")["src_addr"].to_list() == slow


@pytest.mark.parametrize(("before", "times", "proven"), [(3, 3, ["b"]), (1, 3, []), (3, 2, [])])
def test_who_pushes_slowly_is_proven_slow(before: float, times: int, proven: list[str]) -> None:
    """In slow steps `b` pushes 4 MB, three times as long as usual, and is done some ms before `a` begins."""
    begins = [(step * 1000, 100) for step in range(6)] + [(6000 + step * 2000, 300) for step in range(3)]
    ring = [(at + 200, at + 200 + length, src, dst, 8 * MB) for at, length in begins for src, dst in ("ab", "ba")]
    pushed = [(at + 50 - before, at + 200 - before, "b", "a", 4 * MB) for at, _ in begins[9 - times :]]
    found = path_pace.compared(path_pace.paces(placed(*ring, *pushed, kind="dp"), DEFAULT), DEFAULT)
    assert found.filter("slow")["src_addr"].to_list() == ["a", "b"]
    assert found.filter("proven")["src_addr"].to_list() == proven


@pytest.mark.parametrize(("come", "proven"), [(40, ["b"]), (130, ["b"]), (140, []), (198, ["b"])])
def test_a_push_that_may_have_waited_for_who_sends_to_it_proves_nothing(come: float, proven: list[str]) -> None:
    """`b` pushes 4 MB to `c` from 50 to 197 ms, three times as long as usual, and `a` begins to send to `b` meanwhile:
    of the rest, 62.5 ms are a quarter longer than usual. What was over before, or began after, did not wait."""
    begins = [(step * 1000, 100) for step in range(6)] + [(6000 + step * 2000, 300) for step in range(3)]
    ring = [(at + 200, at + 200 + length, src, dst, 8 * MB) for at, length in begins for src, dst in ("ab", "bc", "ca")]
    before = [(at + come, at + come + 4, "a", "b", MB // 3) for at, length in begins if length == 300]
    pushed = [(at + 50, at + 197, "b", "c", 4 * MB) for at, length in begins if length == 300]
    records = placed(*ring, *before, *pushed, kind="dp", rings=["abc"])
    found = path_pace.compared(path_pace.paces(records, DEFAULT), DEFAULT)
    assert "b" in found.filter("slow")["src_addr"].to_list()
    assert [src for src in found.filter("proven")["src_addr"] if src == "b"] == proven


@pytest.mark.parametrize(
    ("others", "bound"), [((2.0, 1.7, 1.4, 1.26), True), ((2.0, 1.7, 1.3, 1.27), False), ((2.0, 1.7, 1.4, 1.2), False)]
)
def test_hops_of_any_pace_up_to_the_slowest_may_all_wait_for_it(others: tuple[float, ...], bound: bool) -> None:
    """Without a gap of a quarter between two of them, and where none is at its usual pace."""
    healthy = [(step * 1000, step * 1000 + 100, src, dst, 8 * MB) for step in range(6) for src, dst in RING]
    rows = [
        (at, at + 100 * factor, src, dst, 8 * MB)
        for at in (6000, 8000, 10_000)
        for (src, dst), factor in zip(RING, others, strict=True)
    ]
    found = path_pace.compared(path_pace.paces(placed(*healthy, *rows, kind="dp", rings=["abcd"]), DEFAULT), DEFAULT)
    assert found["ring_bound"].all() == bound


def test_a_step_that_is_slow_for_another_reason_tells_nothing_of_who_pushed() -> None:
    """In five slow steps both hops are slow, also by themselves; in three their ring is not, and `a` stumbles once."""
    paces = [(1.0, 1.0, 1.0, False)] * 6 + [(1.0, 1.3, 1.0, True)] * 3 + [(3.0, 3.0, 3.0, True)] * 5
    columns = {"job_id": "j", "kind": "dp", "unit": "a", "path": "leaf", "switch_path": ["leaf"]}
    by_step = pl.DataFrame(
        [
            {**columns, "src_addr": src, "dst_addr": dst, "place": place, "step_ns": step, "slow": slow}
            | {"pace": pace, "own": own[place], "own_least": own[place], "pushed": False, "wait_ns": None}
            for step, (pace, *own, slow) in enumerate(paces)
            for place, (src, dst) in enumerate(("ab", "ba"))
        ]
    )
    assert path_pace.compared(by_step, DEFAULT)["slow"].to_list() == [True, True]


def passed_on(at: float, slow: str, pause: float, come: float = 0.0) -> list[Row]:
    """Return one round of the ring `abcd`, ms: each member sends its own part of 1 MB in 10 ms, then five it received.

    Before `slow` a part goes in two halves of 5 ms with a pause between; `d` comes late by `come`.
    """
    rows: list[Row] = []
    has, free = (dict.fromkeys("abcd", at) | {"d": at + come} for _ in range(2))
    for _ in range(6):
        for src, dst in RING:
            begin = max(has[src], free[src])
            halves = [begin, begin + 5 + pause * (src == slow)]
            rows += [(half, half + 5, src, dst, MB // 2) for half in halves]
            free[src] = halves[1] + 5
        has = {dst: max(free[src], has[dst]) for src, dst in RING}
    return rows


def in_bursts(pause: float, *, slow: str = "b", come: float = 0.0) -> pl.DataFrame:
    healthy = [(step * 1000, step * 1000 + 60, src, dst, 6 * MB) for step in range(6) for src, dst in RING]
    later = [row for step in range(3) for row in passed_on(6000 + step * 2000, slow, pause, come)]
    return path_pace.compared(path_pace.paces(placed(*healthy, *later, kind="dp", rings=["abcd"]), DEFAULT), DEFAULT)


@pytest.mark.parametrize(("pause", "slow"), [(5, []), (8, ["b"]), (30, ["b"]), (59, ["b"]), (61, [])])
def test_a_hop_that_sends_in_bursts_is_slow_if_bytes_wait_before_it(pause: float, slow: list[str]) -> None:
    """All hops have pauses, for each waits for the one before it. In healthy steps a round is one record of 60 ms, so
    longer pauses are between two rounds. Five pauses of 6 ms make a round half longer."""
    found = in_bursts(pause)
    assert found.filter("slow")["src_addr"].to_list() == slow
    assert found.filter("proven")["src_addr"].to_list() == slow
    assert found.filter("innocent")["src_addr"].to_list() == [name for name in "acd" if slow]


@pytest.mark.parametrize(("joined", "slow"), [(4, []), (6, ["a"])])
def test_records_that_a_collector_joined_over_a_pause_show_no_pace(joined: int, slow: list[str]) -> None:
    """Each hop sends ten records of a step; some of one hop's last for twenty times as long in slow steps. If these
    hold most of its bytes, that is its pace."""
    begins = [1000 * step for step in range(6)] + [6000 + 2000 * step for step in range(3)]
    rows = [
        (at, at + (200 if begin >= 6000 and src == "a" and part < joined else 10), src, dst, MB)
        for begin in begins
        for src, dst in RING
        for part, at in enumerate(range(begin, begin + 500, 50))
    ]
    paces = path_pace.paces(placed(*rows, kind="dp", rings=["abcd"]), DEFAULT)
    assert path_pace.compared(paces, DEFAULT).filter("slow")["src_addr"].to_list() == slow


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


@pytest.mark.parametrize(
    ("waits", "proven", "innocent"),
    [
        ({"b": 100, "c": 76, "d": -26, "a": -150}, ["b", "c"], ["a", "d"]),
        ({"b": 100, "c": 74, "d": -26, "a": -148}, ["b"], ["a", "d"]),
        ({"b": 100, "c": 76, "d": -24, "a": -152}, ["b", "c"], ["a"]),
    ],
)
def test_hops_before_which_bytes_wait_about_as_long_are_proven_and_those_that_send_first_innocent(
    waits: dict[str, int], proven: list[str], innocent: list[str]
) -> None:
    """Three quarters of the longest wait, and a quarter of it."""
    by_step = pl.DataFrame(
        [
            {"job_id": "j", "kind": "dp", "unit": "a", "src_addr": src, "dst_addr": dst, "path": None}
            | {"switch_path": None, "place": place, "step_ns": step, "slow": step > 5}
            | {"pace": 3.0 if step > 5 else 1.0, "own": None, "own_least": None, "pushed": False}
            | {"wait_ns": waits[src] * 1e6 if step > 5 else 0.0}
            for step in range(9)
            for place, (src, dst) in enumerate(RING)
        ],
        schema_overrides={"path": pl.String, "switch_path": pl.List(pl.String)}
        | dict.fromkeys(("own", "own_least"), pl.Float64),
    )
    found = path_pace.compared(by_step, DEFAULT)
    assert found.filter("proven")["src_addr"].to_list() == proven
    assert found.filter("innocent")["src_addr"].to_list() == innocent


@pytest.mark.parametrize("come", [0.0, 50.0])
def test_a_ring_waits_once_for_who_comes_late(come: float) -> None:
    assert not in_bursts(0, slow="", come=come)["slow"].any()


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
