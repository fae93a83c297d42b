"""Hop comparison: which hops of a ring are slow, which wait for them, and which are proven."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MB
from job_evidence import DEFAULT
from placed_hops import RING, passed_on, placed

from llmprism_tasks.stages.diagnosis.network import hop_comparison, path_pace


def compared(records: pl.DataFrame) -> pl.DataFrame:
    return hop_comparison.compared(path_pace.paces(records, DEFAULT), DEFAULT)


@pytest.mark.parametrize(("healthy", "slow", "count"), [(3, 3, 1), (2, 3, 0), (3, 2, 0)])
def test_a_path_is_seen_in_three_steps_of_either_sort(healthy: int, slow: int, count: int) -> None:
    begins = [step * 1000 for step in range(healthy)] + [6000 + step * 2000 for step in range(slow)]
    records = placed(*((begin, begin + 100, "a", "b", 8 * MB) for begin in begins))
    assert compared(records).height == count


@pytest.mark.parametrize(("push", "slow"), [(12.5, ["a"]), (15, ["a"]), (16, ["a", "b"])])
def test_a_hop_that_pushes_at_its_usual_pace_waits_for_its_ring(push: float, slow: list[str]) -> None:
    """All hops of the ring take three times as long; before it is complete, `b` pushes 1 MB in 12.5 ms as ever."""
    begins = [(step * 1000, 100) for step in range(6)] + [(6000 + step * 2000, 300) for step in range(3)]
    ring = [(at + 50, at + 50 + length, src, dst, 8 * MB) for at, length in begins for src, dst in ("ab", "ba")]
    pushed = [(at, at + push, "b", "a", MB) for at, length in begins if length == 300]
    found = compared(placed(*ring, *pushed, kind="dp"))
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
    found = compared(records)
    assert [name for name in found.filter("slow")["src_addr"] if name != "a"] == slow


@pytest.mark.parametrize(("bucket", "slow"), [(29, ["a"]), (31, ["a", "b"]), (40, ["a", "b"])])
def test_what_is_sent_early_as_slowly_as_the_slow_ring_clears_nobody(bucket: float, slow: list[str]) -> None:
    """`b` first sends a bucket of 1 MB, as ever; 8 MB of the ring take 300 ms now, so 1 MB takes 37.5 ms."""
    begins = [(step * 1000, 100) for step in range(6)] + [(6000 + step * 2000, 300) for step in range(3)]
    ring = [(at + 50, at + 50 + length, src, dst, 8 * MB) for at, length in begins for src, dst in ("ab", "ba")]
    first = [(at, at + bucket, "b", "a", MB) for at, _ in begins]
    found = compared(placed(*ring, *first, kind="dp"))
    assert found.filter("slow")["src_addr"].to_list() == slow


@pytest.mark.parametrize(("times", "slow"), [(0, ["a", "b"]), (1, ["a"]), (3, ["a"])])
def test_who_comes_last_to_its_ring_has_nothing_to_push(times: int, slow: list[str]) -> None:
    """In three steps that are slow `b` pushes in some."""
    begins = [(step * 1000, 100) for step in range(6)] + [(6000 + step * 2000, 300) for step in range(3)]
    ring = [(at + 50, at + 50 + length, src, dst, 8 * MB) for at, length in begins for src, dst in ("ab", "ba")]
    pushed = [(at, at + 12.5, "b", "a", MB) for at, _ in begins[6 : 6 + times]]
    found = compared(placed(*ring, *pushed, kind="dp"))
    assert found.filter("slow")["src_addr"].to_list() == slow


@pytest.mark.parametrize(("size", "slow"), [(999_999, ["a", "b"]), (1_000_000, ["a"])])
def test_a_small_push_tells_nothing_of_its_sender(size: int, slow: list[str]) -> None:
    """`b` pushes at its usual pace; a queue that is empty takes some hundred kB at any rate."""
    begins = [(step * 1000, 100) for step in range(6)] + [(6000 + step * 2000, 300) for step in range(3)]
    ring = [(at + 50, at + 50 + length, src, dst, 8 * MB) for at, length in begins for src, dst in ("ab", "ba")]
    pushed = [(at, at + 12.5, "b", "a", size) for at, length in begins if length == 300]
    found = compared(placed(*ring, *pushed, kind="dp"))
    assert found.filter("slow")["src_addr"].to_list() == slow


@pytest.mark.parametrize(("before", "times", "proven"), [(3, 3, ["b"]), (1, 3, []), (3, 2, [])])
def test_who_pushes_slowly_is_proven_slow(before: float, times: int, proven: list[str]) -> None:
    """In slow steps `b` pushes 4 MB, three times as long as usual, and is done some ms before `a` begins."""
    begins = [(step * 1000, 100) for step in range(6)] + [(6000 + step * 2000, 300) for step in range(3)]
    ring = [(at + 200, at + 200 + length, src, dst, 8 * MB) for at, length in begins for src, dst in ("ab", "ba")]
    pushed = [(at + 50 - before, at + 200 - before, "b", "a", 4 * MB) for at, _ in begins[9 - times :]]
    found = compared(placed(*ring, *pushed, kind="dp"))
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
    found = compared(records)
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
    found = hop_comparison.compared(
        path_pace.paces(placed(*healthy, *rows, kind="dp", rings=["abcd"]), DEFAULT), DEFAULT
    )
    assert found["ring_bound"].all() == bound


@pytest.mark.parametrize(("now", "near"), [((300, 300, 300, 300), "abcd"), ((300, 300, 300, 260), "abc")])
def test_a_hop_as_slow_as_the_slowest_is_near_it_however_quick_it_was(now: tuple[float, ...], near: str) -> None:
    """In healthy steps each hop waits for a while: `a` takes 100 ms, the others up to 30 % more."""
    rows = [
        (at, at + length, src, dst, 8 * MB)
        for lengths, begins in (((100, 115, 130, 130), range(0, 6000, 1000)), (now, (6000, 8000, 10_000)))
        for at in begins
        for (src, dst), length in zip(RING, lengths, strict=True)
    ]
    found = compared(placed(*rows, kind="dp", rings=["abcd"]))
    assert "".join(found.filter(pl.col("near") > -1)["src_addr"].sort()) == near


@pytest.mark.parametrize(("of_b", "slow"), [(300, "ab"), (280, "a")])
def test_a_hop_at_the_pace_of_the_slowest_is_slow_however_slow_it_was(of_b: float, slow: str) -> None:
    """`a` took 100 ms and takes 300, `b` took 170; `c` and `d` are quick as ever, on another channel."""
    rows = [
        (at, at + length, src, dst, 8 * MB)
        for lengths, begins in (((100, 170, 90, 90), range(0, 6000, 1000)), ((300, of_b, 90, 90), (6000, 8000, 10_000)))
        for at in begins
        for (src, dst), length in zip(RING, lengths, strict=True)
    ]
    found = compared(placed(*rows, kind="dp", rings=["abcd"]))
    assert "".join(found.filter("slow")["src_addr"].sort()) == slow


def test_a_step_that_is_slow_for_another_reason_tells_nothing_of_who_pushed() -> None:
    """In five slow steps both hops are slow, also by themselves; in three their ring is not, and `a` stumbles once."""
    paces = [(1.0, 1.0, 1.0, False)] * 6 + [(1.0, 1.3, 1.0, True)] * 3 + [(3.0, 3.0, 3.0, True)] * 5
    assert hop_comparison.compared(of_two(paces), DEFAULT)["slow"].to_list() == [True, True]


@pytest.mark.parametrize(("first", "slow"), [(1.3, [True, False]), (1.4, [True, True])])
def test_what_is_sent_early_in_quick_steps_is_compared_with_these(first: float, slow: list[bool]) -> None:
    """The pace of slow steps is 1.7 or 4; what `b` sends first takes its usual 1.3 or 1.4 in half of them."""
    paces = [(1.0, 1.0, first, False)] * 6 + [(1.7, 1.7, first, True), (4.0, 4.0, 4.0, True)] * 4
    assert hop_comparison.compared(of_two(paces), DEFAULT)["slow"].to_list() == slow


def of_two(paces: list[tuple[float, float, float, bool]]) -> pl.DataFrame:
    """Return the paces of a ring of two in each step: of all that they send, of what `a` and `b` send first; whether
    the step is slow."""
    columns = {"job_id": "j", "kind": "dp", "unit": "a", "path": "leaf", "switch_path": ["leaf"]}
    return pl.DataFrame(
        [
            {**columns, "src_addr": src, "dst_addr": dst, "place": place, "step_ns": step, "slow": slow}
            | {"pace": pace, "own": own[place], "own_least": own[place], "pushed": False, "wait_ns": None}
            for step, (pace, *own, slow) in enumerate(paces)
            for place, (src, dst) in enumerate(("ab", "ba"))
        ]
    )


def in_bursts(pause: float, *, slow: str = "b", come: float = 0.0) -> pl.DataFrame:
    healthy = [(step * 1000, step * 1000 + 60, src, dst, 6 * MB) for step in range(6) for src, dst in RING]
    later = [row for step in range(3) for row in passed_on(6000 + step * 2000, slow, pause, come)]
    return hop_comparison.compared(
        path_pace.paces(placed(*healthy, *later, kind="dp", rings=["abcd"]), DEFAULT), DEFAULT
    )


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
    assert hop_comparison.compared(paces, DEFAULT).filter("slow")["src_addr"].to_list() == slow


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
    found = hop_comparison.compared(by_step, DEFAULT)
    assert found.filter("proven")["src_addr"].to_list() == proven
    assert found.filter("innocent")["src_addr"].to_list() == innocent


@pytest.mark.parametrize("come", [0.0, 50.0])
def test_a_ring_waits_once_for_who_comes_late(come: float) -> None:
    assert not in_bursts(0, slow="", come=come)["slow"].any()


@pytest.mark.parametrize(("pause", "slow"), [(5, []), (8, ["b"]), (30, ["b"]), (59, ["b"]), (61, [])])
def test_a_hop_that_sends_in_bursts_is_slow_if_bytes_wait_before_it(pause: float, slow: list[str]) -> None:
    """All hops have pauses, for each waits for the one before it. In healthy steps a round is one record of 60 ms, so
    longer pauses are between two rounds. Five pauses of 6 ms make a round half longer."""
    found = in_bursts(pause)
    assert found.filter("slow")["src_addr"].to_list() == slow
    assert found.filter("proven")["src_addr"].to_list() == slow
    assert found.filter("innocent")["src_addr"].to_list() == [name for name in "acd" if slow]


@pytest.mark.parametrize(("late", "slow"), [(80, []), (0, ["a", "b"])])
def test_who_waits_for_the_last_member_of_a_ring_is_not_slow(late: float, slow: list[str]) -> None:
    """In slow steps the records of two hops take 80 ms longer than those of the others, which begin later, or do not:
    then they end sooner."""
    begins = [1000 * step for step in range(6)] + [6000 + 2000 * step for step in range(3)]
    early = [(at, at + (180 if at >= 6000 else 100), src, dst, 8 * MB) for at in begins for src, dst in ("ab", "bc")]
    came = [at + late * (at >= 6000) for at in begins]
    others = [(at, at + 100, src, dst, 8 * MB) for at in came for src, dst in ("cd", "da")]
    paces = path_pace.paces(placed(*early, *others, kind="dp", rings=["abcd"]), DEFAULT)
    assert hop_comparison.compared(paces, DEFAULT).filter("slow")["src_addr"].to_list() == slow
