"""A step belongs to the window in which it ends, and neighbouring windows agree on which that is."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, burst, every, flows, messages, ring, settings, visible
from hypothesis import example, given
from hypothesis import settings as generated
from hypothesis import strategies as st

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.settings import Settings
from llmprism_tasks.stages.step_division import completion
from llmprism_tasks.stages.step_division.joint import job_steps

DEFAULT = settings()
NEXT = WINDOW.shifted(1)
EDGE = 60_000
"""The end of the first window, in ms."""

STEPS = every(1000, count=58)  # before the edge, and not in question


def steps_of(
    *parts: Iterable[Row], window: Window = WINDOW, values: Settings = DEFAULT
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the steps of NICs and of the job as a window's run sees them."""
    table = visible(flows(*parts), window, values.window.lookback_windows).with_columns(job_id=pl.lit("j"))
    stepping = job_steps.steps_of_jobs(table, values.rhythm, before_ns=window.start_ns)
    endpoints = completion.endpoint_steps(stepping, window, values)
    return endpoints, completion.job_steps(endpoints, window, values)


def ends(steps: pl.DataFrame) -> list[float]:
    """Return when the steps ended that a window is to report, in ms."""
    return [(end - WINDOW.start_ns) / MS for end in steps.filter(completion.IN_WINDOW)["end_ns"].sort()]


def reported(*parts: Iterable[Row], values: Settings = DEFAULT) -> tuple[list[float], list[float]]:
    """Return the ends of NIC `a`'s steps after 57 s, as the first and as the second window report them."""
    rows = [row for part in parts for row in part]
    seen = [
        ends(steps_of(rows, window=window, values=values)[0].filter(pl.col("addr") == "a")) for window in (WINDOW, NEXT)
    ]
    return tuple([end for end in some if end > 57_500] for some in seen)  # type: ignore[return-value]


def last_step(first: float, *, begin: float, stall: float, rest_length: float = 50) -> list[Row]:
    """Return a step that does a share of its bytes in 50 ms, stalls, and does the rest, all in one burst."""
    cut = round(80 * MB * first)
    return [
        *ring("ab", [begin], length=50, size=cut),
        *ring("ab", [begin + 50 + stall], length=rest_length, size=80 * MB - cut),
    ]


AFTER = ring("ab", every(1000, count=20, start=61_000))


def test_a_step_that_has_hardly_begun_when_it_is_held_over_the_edge_is_the_next_window_s() -> None:
    """It does a hundredth of its bytes, and a link is down for four of its periods: it is long overdue at the edge."""
    held = last_step(0.01, begin=58_900, stall=4000)
    first, second = reported(ring("ab", STEPS), held, ring("ab", every(1000, count=10, start=63_500)))
    assert first == []
    assert second[0] == 63_000


def test_a_step_before_the_edge_is_the_first_window_s() -> None:
    assert reported(ring("ab", [*STEPS, 58_900]), AFTER) == ([59_000], every(1000, count=20, start=61_100))


def test_a_record_that_goes_on_beyond_the_edge_leaves_its_step_to_the_next_window() -> None:
    """Two records: the second starts before the edge and ends after it."""
    crossing = [*ring("ab", [59_930], length=50, size=77 * MB), *messages("a", "b", [59_999.5], 3 * MB)]
    first, second = reported(ring("ab", STEPS), crossing, AFTER)
    assert first == []
    assert second[0] == 60_000.5


@pytest.mark.parametrize(
    ("share", "begin", "first"), [(0.89, 59_899, []), (0.91, 59_899, [59_949]), (0.91, 59_901, []), (0.97, 59_940, [])]
)
def test_a_burst_with_too_few_bytes_at_the_edge_may_go_on(share: float, begin: int, first: list[float]) -> None:
    """The rest comes after the edge. Bursts last 100 ms; `least_whole` decides whose the step is that has lasted so."""
    stall = 60_010 - begin - 50
    found = reported(ring("ab", STEPS), last_step(share, begin=begin, stall=stall), AFTER)
    assert (found[0], [end for end in found[1] if end < 61_000]) == (first, [] if first else [60_060])


@pytest.mark.parametrize(("share", "first"), [(0.975, []), (0.985, [59_990])])
def test_a_burst_whose_bytes_are_complete_is_over_however_soon(share: float, first: list[float]) -> None:
    short = ring("ab", [59_940], length=50, size=round(80 * MB * share))
    found = reported(ring("ab", STEPS), short, AFTER)
    assert (found[0], [end for end in found[1] if end < 61_000]) == (first, [] if first else [59_990])


@pytest.mark.parametrize(("nics", "first"), [("abcdefgh", [59_990]), ("abc", [])])
def test_what_one_member_lacks_is_lost_where_all_together_lack_next_to_nothing(nics: str, first: list[float]) -> None:
    """One hop lacks 8 %: its ends lack 4 % each, and all members together 1 % or 2.7 %. Bursts last 100 ms."""
    hops = zip(nics, nics[1:] + nics[0], strict=True)
    last = [burst(src, dst, 59_940, length=50, size=round((0.92 if src == "a" else 1) * 80 * MB)) for src, dst in hops]
    found = reported(ring(nics, STEPS), *last, ring(nics, every(1000, count=20, start=61_000)))
    assert (found[0], [end for end in found[1] if end < 61_000]) == (first, [] if first else [59_990])


@pytest.mark.parametrize(("begin", "first", "second"), [(59_880.0, [], [59_930.0]), (59_870.0, [59_920.0], [])])
def test_a_burst_that_lasts_too_long_has_lost_records(begin: float, first: list[float], second: list[float]) -> None:
    """Half of the bytes are lost. Bursts last 100 ms; 125 ms after its beginning the step is over without them."""
    lost = ring("ab", [begin], length=50, size=56 * MB)
    found = reported(ring("ab", STEPS), lost, AFTER)
    assert (found[0], [end for end in found[1] if end < 61_000]) == (first, second)


@pytest.mark.parametrize(("overdue", "first"), [(2.0, []), (1.1, [59_930.0])])
def test_how_long_is_too_long_can_be_set(overdue: float, first: list[float]) -> None:
    lost = ring("ab", [59_880], length=50, size=56 * MB)
    assert reported(ring("ab", STEPS), lost, AFTER, values=settings("timeline", overdue=overdue))[0] == first


@pytest.mark.parametrize(("told", "end"), [(True, 59_800), (False, 59_000)])
def test_a_step_that_is_over_though_some_are_not_ends_with_those_that_are(told: bool, end: int) -> None:
    """Of three members the last one ends its step before the window does, and is told then or in the next."""
    rows = [
        ("j", addr, step, WINDOW.start_ns + begin * MS, WINDOW.start_ns + last * MS, True)
        for step, begin in enumerate((50_000, 52_000, 54_000, 56_000))
        for addr, last in zip("abc", (begin + 100,) * 3, strict=True)
    ]
    begin = WINDOW.start_ns + 58_000 * MS
    rows += [("j", addr, 4, begin, WINDOW.start_ns + 59_000 * MS, True) for addr in "ab"]
    rows += [("j", "c", 4, begin, WINDOW.start_ns + 59_800 * MS, told)]
    columns = ["job_id", "addr", "step", "first_ns", "end_ns", "ended"]
    endpoints = pl.DataFrame(rows, schema=columns, orient="row").with_columns(ended_before=pl.lit(value=False))
    last = completion.job_steps(endpoints, WINDOW, settings()).row(-1, named=True)
    assert (last["ended"], last["end_ns"]) == (True, WINDOW.start_ns + end * MS)


def windows(last: int) -> list[Window]:
    return [WINDOW.shifted(i) for i in range(last)]


def everywhere(rows: list[Row], *, lookback: int, count: int = 4) -> tuple[list[float], list[float]]:
    """Return the ends of NIC `a`'s and of the job's steps, as all windows together report them."""
    values = settings("window", lookback_windows=lookback)
    nic: list[float] = []
    job: list[float] = []
    for window in windows(count):
        endpoints, jobs = steps_of(rows, window=window, values=values)
        nic += ends(endpoints.filter(pl.col("addr") == "a"))
        job += ends(jobs)
    return nic, job


@generated(max_examples=15)
@example(period=1000, offset=0.8999, length=100, lookback=1)
@example(period=1000, offset=0.95, length=100, lookback=5)
@given(st.integers(500, 14_000), st.floats(0, 1), st.integers(10, 400), st.sampled_from([1, 3, 5]))
def test_each_step_is_reported_once_wherever_the_edges_fall(
    period: int, offset: float, length: int, lookback: int
) -> None:
    """Four windows of healthy steps; four or five of the longest fit into the first one."""
    begins = every(period, start=offset * period, count=int(200_000 / period))
    nic, job = everywhere(ring("abc", begins, length=length), lookback=lookback)
    expected = [begin + length for begin in begins]
    for found in (nic, job):
        assert found == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("period", [20_000, 25_000])
def test_long_steps_are_reported_from_the_first_window_that_shows_two(period: int) -> None:
    nic, job = everywhere(ring("abc", every(period, count=10, start=5000)), lookback=5)
    assert nic == job == every(period, count=10, start=5100)[: len(nic)]
    assert len(nic) >= 9


@pytest.mark.parametrize("length", [30, 300])
def test_buckets_of_a_job_s_first_burst_are_not_its_steps(length: float) -> None:
    """Each of two sizes comes four times at equal distances; half a minute of silence follows."""
    assert ends(steps_of(ring("abc", [28_000], length=length))[1]) == []


def test_records_of_two_steps_that_the_collector_merged_are_no_part_of_a_pipeline_s_steps() -> None:
    """Two replicas exchange one message each way in a step; three records are two steps long."""
    merged, gone = {(5000, "a"), (15_000, "b"), (25_000, "a")}, {(6000, "a"), (16_000, "b"), (26_000, "a")}
    rows = [
        (start, end + 1000, src, dst, 2 * size) if (start, src) in merged else (start, end, src, dst, size)
        for start, end, src, dst, size in ring("ab", every(1000, count=58), length=400, parts=1)
        if (start, src) not in gone
    ]
    assert len(ends(steps_of(rows)[1])) >= 54


def test_a_copy_between_replicas_is_no_part_of_a_pipeline_s_steps() -> None:
    """It goes on for twenty steps, and moves more than half of what the two exchange in these."""
    copied = [(20_300.0, 40_300.0, "a", "b", 2000 * MB)]
    assert len(ends(steps_of(ring("ab", every(1000, count=58), length=400, parts=1), copied)[1])) >= 54


@generated(max_examples=15)
@given(st.integers(0, 10**6), st.integers(600, 3000), st.sampled_from([1, 5]))
def test_each_step_is_reported_once_with_jitter_loss_and_splits(seed: int, period: int, lookback: int) -> None:
    """Steps vary by 5 %, each pair by some ms, and one record in fifty is lost: no step twice, hardly one missing."""
    draw = random.Random(seed)
    begins = [0.0]
    while begins[-1] < 170_000:
        begins.append(begins[-1] + period * draw.uniform(0.95, 1.05))
    rows = [
        row
        for begin in begins
        for src, dst in (*pairwise("abcd"), ("d", "a"))
        for row in burst(
            src, dst, begin + draw.uniform(0, 5), length=draw.uniform(80, 120), parts=draw.choice((12, 16))
        )
        if draw.random() > 0.02
    ]
    nic, job = everywhere(rows, lookback=lookback, count=3)
    for found in (nic, job):
        assert min(late - early for early, late in pairwise(found)) > 0.7 * period
        assert len(begins) - len(found) <= 1


def test_a_job_s_step_ends_with_its_last_member() -> None:
    _, jobs = steps_of(ring("ab", every(1000, count=10)), ring("cd", every(1000, count=10, start=200)))
    assert ends(jobs) == [1000 * i + 300 for i in range(10)]


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_job_s_step_is_over_when_it_is_over_for_all(share: float) -> None:
    """The edge falls between the last stage's burst and the first stage's.

    With half of the bytes it could be a broadcast of weights: then the last stage's step is seen in the next window.
    """
    size = round(80 * MB * share)
    rows = [
        *ring("ab", every(1000, count=62, start=50), size=80 * MB - size),
        *ring("cd", every(1000, count=62, start=-250)[1:], size=size),
    ]
    last = {addr: [] for addr in "ac"}
    job = []
    for window in (WINDOW, NEXT):
        endpoints, jobs = steps_of(rows, window=window)
        for addr, seen in last.items():
            seen.append([end for end in ends(endpoints.filter(pl.col("addr") == addr)) if end > 58_800])
        job.append([end for end in ends(jobs) if end > 58_800])
    early = [58_850.0, 59_850.0]
    assert last["c"] == [early[:1], [*early[1:], 60_850]] if share == 0.5 else [early, [60_850]]
    assert last["a"] == job == [[59_150], [60_150, 61_150]]


def test_members_that_seldom_take_part_are_not_waited_for() -> None:
    """Two NICs stopped after a third of the steps: the job's later steps are over without them."""
    rows = [*ring("abef", every(1000, count=30)), *ring("cd", every(1000, count=10))]
    assert len(ends(steps_of(rows)[1])) == 30


def test_a_member_that_stopped_is_waited_for_only_so_long() -> None:
    """Two NICs missed the last step before the edge: it is over once it is overdue, if only in the next window."""
    rows = [*ring("abef", [*STEPS, 58_900]), *ring("cd", STEPS)]
    assert ends(steps_of(rows)[1])[-1] == 59_000
    close = [*ring("abef", [*STEPS, 59_895]), *ring("cd", STEPS), *AFTER]
    assert ends(steps_of(close)[1])[-1] < 59_900
    assert 59_995 in ends(steps_of(close, window=NEXT)[1])


def test_no_steps_are_no_steps() -> None:
    endpoints, jobs = steps_of(messages("a", "b", [0], MB))
    assert endpoints.is_empty()
    assert jobs.is_empty()
    assert completion.first_indices(endpoints, jobs).is_empty()


def placed(*parts: Iterable[Row]) -> list[tuple[str, float, int | None]]:
    """Say of some flows to which step of a job of `a` and `b` they belong: sender, start in ms, step."""
    endpoints, jobs = steps_of(ring("ab", every(1000, count=10)))
    table = flows(*parts).with_columns(job_id=pl.lit("j"))
    found = completion.step_of_flows(table, endpoints, jobs)
    return [
        (src, (start - WINDOW.start_ns) / MS, step)
        for src, start, step in found.select("src_addr", "flow_start_ns", "step").iter_rows()
    ]


def test_a_flow_belongs_to_the_first_step_that_its_sender_has_not_ended() -> None:
    times = [0, 99, 101, 1100, 1101, 9100]
    assert placed(messages("a", "b", times, MB)) == [
        ("a", 0, 0),
        ("a", 99, 0),
        ("a", 101, 1),
        ("a", 1100, 1),
        ("a", 1101, 2),
        ("a", 9100, 9),
    ]


def test_flows_after_the_last_step_belong_to_none_yet() -> None:
    assert placed(messages("a", "b", [9101], MB)) == [("a", 9101, None)]


def test_a_sender_without_steps_of_its_own_goes_by_its_job_s() -> None:
    assert placed(messages("x", "a", [50, 150], MB)) == [("x", 50, 0), ("x", 150, 1)]


def test_the_window_s_first_step_is_its_step_0() -> None:
    endpoints, jobs = steps_of(ring("ab", every(1000, count=100)), window=NEXT)
    assert completion.first_indices(endpoints, jobs).rows() == [("j", 60)]
