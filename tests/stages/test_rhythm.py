"""The pairs of a job tell its period together, and their bursts make its steps."""

from __future__ import annotations

import random
from collections.abc import Iterable

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, burst, every, flows, messages, pipeline, ring, settings
from hypothesis import example, given
from hypothesis import strategies as st

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages import rhythm

DEFAULT = settings().rhythm
NICS = [f"n{i:02}" for i in range(20)]


def tuned(**values: float) -> RhythmSettings:
    return settings("rhythm", **values).rhythm


def chatter(src: str, dst: str, *, total: int, count: int = 40, until: float = 20_000, seed: int = 1) -> list[Row]:
    """Return messages at random times, of random sizes that add up to about `total` bytes: no rhythm at all."""
    draw = random.Random(f"{src}{dst}{seed}")
    sizes = [draw.uniform(0.2, 2) for _ in range(count)]
    times = sorted(draw.uniform(0, until) for _ in sizes)
    return [(at, at + 1, src, dst, round(total * size / sum(sizes))) for at, size in zip(times, sizes, strict=True)]


def period_ms(*parts: Iterable[Row], values: RhythmSettings = DEFAULT) -> float | None:
    """Return the period of all records as one group."""
    table = flows(*parts)
    rhythms = rhythm.stream_rhythms(table, values).with_columns(group=pl.lit("g"))
    found = rhythm.group_periods(table, rhythms, values)
    return None if found.is_empty() else round(found["period_ns"].item() / MS, 3)


def test_nothing_has_no_rhythm() -> None:
    none = rhythm.stream_rhythms(flows(), DEFAULT)
    assert none.is_empty()
    assert none.columns[:4] == ["src_addr", "dst_addr", "size_class", "flows"]


def test_each_pair_has_a_rhythm_of_its_own_or_none() -> None:
    table = flows(
        ring("ab", every(1000, count=10)), messages("c", "d", every(300, count=10), MB), chatter("d", "c", total=MB)
    )
    found = rhythm.stream_rhythms(table, DEFAULT).sort("src_addr", "dst_addr")
    assert found.select("src_addr", "dst_addr").rows() == [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]
    assert found["period_ns"].to_list() == [1000 * MS, 1000 * MS, 300 * MS, None]
    assert found["bursts"].to_list() == [10, 10, 10, 0]
    assert found["flows"].to_list() == [80, 80, 10, 40]
    assert found["threshold_ns"].is_null().to_list() == [False, False, False, True]
    assert found["first_ns"][2] == WINDOW.start_ns
    assert found["last_ns"][2] == WINDOW.start_ns + 2700 * MS


@pytest.mark.parametrize(("supporters", "found"), [(11, None), (12, 1000.0)])
def test_a_period_needs_the_support_of_most_nics(supporters: int, found: float | None) -> None:
    """Of 20 NICs, some are in a chain of periodic pairs; the rest only chat."""
    chain = [burst(*NICS[i : i + 2], begin) for i in range(supporters - 1) for begin in every(1000, count=20)]
    rest = [chatter(nic, NICS[0], total=MB) for nic in NICS[supporters:]]
    assert period_ms(*chain, *rest) == found


@pytest.mark.parametrize(("supporters", "found"), [(16, 100.0), (17, 1000.0)])
def test_of_the_periods_that_about_all_share_the_longest_is_the_step_s(supporters: int, found: float) -> None:
    """All 20 NICs send a micro-batch each 100 ms; fewer synchronise once a step."""
    fast = [messages(*NICS[i : i + 2], every(100, count=200), 20 * MB) for i in range(0, 20, 2)]
    slow = [burst(NICS[i + 1], NICS[i], begin) for i in range(supporters - 1) for begin in every(1000, count=20)]
    assert period_ms(*fast, *slow) == found


@pytest.mark.parametrize(("last", "found"), [(48_000, 1000.0), (52_000, None)])
def test_a_period_goes_on_for_most_of_the_time(last: float, found: float | None) -> None:
    """Twenty steps of a second, and then another NIC speaks once, just before or after 2.5 times as long."""
    assert period_ms(ring("ab", every(1000, count=20)), messages("c", "a", [last], MB)) == found


@pytest.mark.parametrize(("share", "found"), [(0.45, 1000.0), (0.55, None)])
def test_a_period_explains_most_bytes(share: float, found: float | None) -> None:
    """Two NICs synchronise 80 MB each way in each of 20 steps; others send this share of all bytes at random."""
    synchronised = 20 * 2 * 80 * MB
    rest = round(synchronised * share / (1 - share))
    assert period_ms(ring("ab", every(1000, count=20)), chatter("c", "a", total=rest)) == found


@pytest.mark.parametrize(("uneven", "found"), [(2, 1000.0), (4, None)])
def test_experts_are_called_about_equally_often_in_each_period(uneven: int, found: float | None) -> None:
    """Calls of random sizes, 10 + uneven in one step and 10 - uneven in the next, carry most bytes."""
    draw = random.Random(2)
    calls = [
        (1000 * step + 90 * i, 1000 * step + 90 * i + 1, "a", "c", draw.randint(MB, 100 * MB))
        for step in range(20)
        for i in [j * 10 / (10 + uneven * (-1) ** step) for j in range(10 + uneven * (-1) ** step)]
    ]
    assert period_ms(ring("ab", every(1000, count=20)), calls) == found


def test_buckets_of_a_burst_are_no_step() -> None:
    """Five equal buckets follow one another 40 ms apart, once in four seconds of otherwise random traffic."""
    buckets = [burst("a", "b", 4000 * step + 40 * i, length=20) for step in range(3) for i in range(5)]
    assert period_ms(*buckets, values=tuned(period_persistence=0.4)) is None


def test_micro_batches_of_a_pipeline_do_not_hide_the_step() -> None:
    begins = every(2000, count=10)
    rows = [*pipeline("a", "b", begins, spread=1400, count=8), *pipeline("c", "d", begins, spread=1400, count=8)]
    gradients = [*ring("ac", every(2000, count=10, start=1600)), *ring("bd", every(2000, count=10, start=1500))]
    assert period_ms(rows, gradients) == 2000


@pytest.mark.parametrize(("period", "kept"), [(1095, True), (1105, False), (915, True), (905, False)])
def test_a_pair_has_its_group_s_period_within_the_tolerance(period: float, kept: bool) -> None:
    rhythms = pl.DataFrame({"group": ["g"], "period_ns": [period * MS]})
    periods = pl.DataFrame({"group": ["g"], "period_ns": [1000.0 * MS]})
    assert rhythm.in_period(rhythms, periods, DEFAULT).height == int(kept)


def steps(table: pl.DataFrame, *, values: RhythmSettings = DEFAULT) -> pl.DataFrame:
    """Number the steps of all flows as one job."""
    return rhythm.of_jobs(table.with_columns(job_id=pl.lit("j")), values).sort("flow_start_ns")


def ends_ms(numbered: pl.DataFrame) -> list[float]:
    """Return the end of each step, in the order of their numbers."""
    ends = numbered.group_by("step").agg(pl.col("flow_end_ns").max()).sort("step")
    assert ends["step"].to_list() == list(range(ends.height))
    return [(end - WINDOW.start_ns) / MS for end in ends["flow_end_ns"]]


def test_steps_are_numbered_from_0_in_the_order_of_time() -> None:
    assert ends_ms(steps(flows(ring("abc", every(1000, count=10))))) == [1000 * i + 100 for i in range(10)]


def test_pairs_without_the_job_s_period_belong_to_no_step() -> None:
    numbered = steps(flows(ring("ab", every(1000, count=10)), chatter("a", "c", total=MB), chatter("c", "a", total=MB)))
    assert set(numbered["src_addr"]) == {"a", "b"}


def test_later_stages_that_synchronise_earlier_are_in_the_same_step() -> None:
    table = flows(ring("ab", every(1000, count=10, start=300)), ring("cd", every(1000, count=10)))
    assert ends_ms(steps(table)) == [1000 * i + 400 for i in range(10)]


@example(delay=498, count=4, seed=2)
@given(st.integers(460, 510) | st.integers(0, 999), st.integers(4, 25), st.integers(0, 10**6))
def test_a_pair_may_synchronise_at_any_time_of_the_period(delay: int, count: int, seed: int) -> None:
    """Bursts that keep their distance within some jitter fall together, also around half a period."""
    draw = random.Random(seed)
    jitter = [draw.uniform(0, 30) for _ in range(count)]
    late = [1000 * i + delay + jitter[i] for i in range(count)]
    numbered = steps(flows(ring("abef", every(1000, count=count)), ring("cd", late)))
    burst = (numbered["flow_start_ns"] - WINDOW.start_ns) // MS
    numbered = numbered.with_columns(late=pl.col("src_addr").is_in(["c", "d"]), burst=burst).with_columns(
        burst=(pl.col("burst") - pl.when("late").then(delay).otherwise(0)) // 1000
    )
    of_bursts = numbered.group_by("late", "burst").agg(step=pl.col("step").unique())
    assert of_bursts["step"].list.len().max() == 1
    own = of_bursts.explode("step").sort("late", "burst")
    offset = own.group_by("late").agg((pl.col("step") - pl.col("burst")).unique())
    assert offset["step"].list.len().max() == 1
    assert own.filter(~pl.col("late")).height == count
    assert own.filter("late").height >= count - 1  # a last burst may still wait for the others of its step


def test_a_pair_that_misses_some_bursts_keeps_its_place() -> None:
    table = flows(ring("abef", every(1000, count=24)), ring("cd", [1000 * i for i in range(24) if i not in (4, 9)]))
    numbered = steps(table)
    assert len(ends_ms(numbered)) == 24
    assert set(numbered.filter(pl.col("src_addr") == "c")["step"]) == set(range(24)) - {4, 9}


def stalled(share: float) -> list[Row]:
    """Ten steps, of which the sixth stalls for 700 ms after this share of its bytes."""
    whole = ring("ab", [1000 * i + (700 if i > 5 else 0) for i in range(10) if i != 5])
    cut = round(80 * MB * share)
    first = ring("ab", [5000], length=50, size=cut)
    return [*whole, *first, *ring("ab", [5750], length=50, size=80 * MB - cut)]


@pytest.mark.parametrize(("share", "end"), [(0.4, 5800), (0.88, 5800), (0.92, 5050)])
def test_parts_of_a_step_are_joined_until_it_is_whole(share: float, end: float) -> None:
    assert ends_ms(steps(flows(stalled(share)))) == [
        end if i == 5 else 1000 * i + (800 if i > 5 else 100) for i in range(10)
    ]


@pytest.mark.parametrize(("share", "count"), [(0.58, 10), (0.62, 11)])
def test_a_burst_of_too_few_bytes_is_no_step(share: float, count: int) -> None:
    """An eleventh burst, after the others and far from them."""
    table = flows(ring("ab", every(1000, count=10)), ring("ab", [10_500], size=round(80 * MB * share)))
    assert len(ends_ms(steps(table))) == count


@pytest.mark.parametrize(("begin", "count"), [(0, 11), (60, 11), (80, 10), (7000, 10), (60_000, 11)])
def test_a_first_step_that_the_beginning_of_the_data_cuts_off_is_kept(begin: float, count: int) -> None:
    """A burst with a third of the bytes: the rest may lie before the window, unless the window is quiet at first."""
    table = flows(ring("ab", [begin], size=27 * MB), ring("ab", every(1000, count=10, start=begin + 1000)))
    assert len(ends_ms(steps(table))) == count


def test_jobs_are_numbered_each_by_itself() -> None:
    table = pl.concat(
        [
            flows(ring("ab", every(1000, count=10))).with_columns(job_id=pl.lit("one")),
            flows(ring("cd", every(700, count=20, start=350))).with_columns(job_id=pl.lit("two")),
        ]
    )
    numbered = rhythm.of_jobs(table, DEFAULT)
    assert numbered.group_by("job_id").agg(pl.col("step").max()).sort("job_id").rows() == [("one", 9), ("two", 19)]


def broken_pair() -> list[Row]:
    """Bursts whose bytes change by half from step to step, for most of their records are lost."""
    draw = random.Random(4)
    return [row for row in ring("cd", every(1000, count=12)) if draw.random() < 0.3]


def test_named_pairs_too_broken_to_show_the_period_are_cut_like_the_others() -> None:
    table = flows(ring("abef", every(1000, count=12)), broken_pair())
    assert set(steps(table)["src_addr"]) == set("abef")
    named = table.select("src_addr", "dst_addr").unique()
    numbered = rhythm.of_jobs(table.with_columns(job_id=pl.lit("j")), DEFAULT, pairs=named)
    assert set(numbered["src_addr"]) == set("abcdef")
    begin = (numbered["flow_start_ns"] - WINDOW.start_ns) // (1000 * MS)
    assert (numbered["step"] == begin).all()


def test_pairs_that_are_not_named_are_left_out() -> None:
    table = flows(ring("ab", every(1000, count=12)), ring("cd", every(1000, count=12)))
    named = pl.DataFrame({"src_addr": ["a"], "dst_addr": ["b"]})
    numbered = rhythm.of_jobs(table.with_columns(job_id=pl.lit("j")), DEFAULT, pairs=named)
    assert numbered.select("src_addr", "dst_addr").unique().rows() == [("a", "b")]


def test_a_job_without_a_rhythm_has_no_steps() -> None:
    numbered = steps(flows(chatter("a", "b", total=MB), chatter("b", "a", total=MB)))
    assert numbered.is_empty()
    assert {"job_id", "step", "group_period_ns"} <= set(numbered.columns)
