"""The pairs of a job tell its period together, and their bursts make its steps."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from itertools import accumulate

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, burst, every, flows, messages, pipeline, ring, settings, stages
from hypothesis import example, given
from hypothesis import settings as generated
from hypothesis import strategies as st

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.group_period import group_periods, in_period
from llmprism_tasks.stages.step_division.joint import gradient_ends, job_steps
from llmprism_tasks.stages.step_division.periodicity import AT_PORTIONS, AT_TURNS, WHOLE_PAIR, stream_rhythms

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
    rhythms = stream_rhythms(table, values).with_columns(group=pl.lit("g"))
    found = group_periods(table, rhythms, values)
    return None if found.is_empty() else round(found["period_ns"].item() / MS, 3)


@pytest.mark.parametrize(
    ("step", "bursts", "busy", "period"),
    [(990, 9, 0.85, 5940), (990, 8, 0.85, 990), (990, 8, 0.02, 5940), (1010, 9, 0.85, 1010), (1010, 8, 0.02, 6060)],
    ids=["buckets", "began later", "something comes once", "a second apart", "comes once, a second apart"],
)
def test_a_job_that_pauses_after_some_steps_keeps_their_period(
    step: float, bursts: int, busy: float, period: float
) -> None:
    """The pair sent its burst about every second for a minute; one of its sizes is cut at pauses alone."""
    table = flows(ring("ab", every(step, count=60)))
    whole = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g")).filter(size_class=WHOLE_PAIR)
    cycle = {"period_ns": 6 * step * MS, "mean_period_ns": 6 * step * MS, "duration_ns": busy * 6 * step * MS}
    sizes = whole.with_columns(
        pl.lit(0).cast(whole.schema["size_class"]).alias("size_class"),
        pl.lit(bursts).cast(whole.schema["bursts"]).alias("bursts"),
        **{name: pl.lit(value).cast(whole.schema[name]) for name, value in cycle.items()},
    )
    found = group_periods(table, pl.concat([whole, sizes]), DEFAULT)
    assert found["period_ns"].item() / MS == pytest.approx(period, rel=0.01)


@pytest.mark.parametrize(
    ("mean", "bursts", "period"),
    [(480, 106, 340), (545, 106, 1000), (480, 75, 1000)],
    ids=["since", "slower", "not all"],
)
def test_a_size_that_only_slower_steps_have_does_not_tell_the_period(mean: float, bursts: int, period: float) -> None:
    """A pair's 340 ms became 1 s: of 496 steps, 106 are slow, in which some records have another size."""
    table = flows(ring("ab", every(340, count=120)))
    whole = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g")).filter(size_class=WHOLE_PAIR)

    def changed(count: int, **columns: float) -> pl.DataFrame:
        values = {"bursts": count, **{f"{name}_ns": value * MS for name, value in columns.items()}}
        return whole.with_columns(pl.lit(value).cast(whole.schema[name]).alias(name) for name, value in values.items())

    sizes = changed(bursts, period=1000, mean_period=1000).with_columns(
        size_class=pl.lit(0, whole.schema["size_class"])
    )
    found = group_periods(table, pl.concat([changed(496, period=340, mean_period=mean), sizes]), DEFAULT)
    assert found["period_ns"].item() / MS == pytest.approx(period)


@pytest.mark.parametrize(
    ("bursts", "period"),
    [(36, 10_000), (35, 6850), (23, 6850), (22, 10_000)],
    ids=["all but one, which the data cut off", "most", "more than half", "half"],
)
def test_a_size_that_is_there_in_slower_steps_and_in_some_others_does_not_tell_the_period(
    bursts: int, period: float
) -> None:
    """Of 37 steps over five minutes half became half as long again. A size in 22 of them may be there once a period."""
    table = flows(ring("ab", every(6850, count=37)))
    whole = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g")).filter(size_class=WHOLE_PAIR)

    def changed(count: int, period: float, size_class: int) -> pl.DataFrame:
        mean = 36 * 8170 * MS / (count - 1)
        values = {"bursts": count, "period_ns": period * MS, "mean_period_ns": mean, "size_class": size_class}
        return whole.with_columns(pl.lit(value).cast(whole.schema[name]).alias(name) for name, value in values.items())

    found = group_periods(table, pl.concat([changed(37, 6850, WHOLE_PAIR), changed(bursts, 10_000, 1)]), DEFAULT)
    assert found["period_ns"].item() / MS == pytest.approx(period)


@pytest.mark.parametrize(
    ("lasts", "every_ms", "once", "period"),
    [(36.7, 3670, False, 3670), (17, 3670, False, 38_250), (36.7, 20_000, False, 38_250), (36.7, 3670, True, 38_250)],
    ids=["checkpoints", "idle for most of it", "two at most", "something comes once"],
)
def test_pauses_between_many_steps_are_not_between_steps(
    lasts: float, every_ms: int, once: bool, period: float
) -> None:
    """A pair is quiet as a whole each 38 s alone, and its sizes come about each tenth of that."""
    table = flows(ring("ab", every(3670, count=80)))
    whole = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g")).filter(size_class=WHOLE_PAIR)

    def changed(bursts: int, period: float, duration: float, size_class: int) -> pl.DataFrame:
        times = dict.fromkeys(("period_ns", "mean_period_ns"), period * MS)
        values = {"bursts": bursts, "duration_ns": duration * MS, "size_class": size_class, **times}
        return whole.with_columns(pl.lit(value).cast(whole.schema[name]).alias(name) for name, value in values.items())

    parts = [changed(8, 38_250, 1000 * lasts, WHOLE_PAIR), changed(round(290_000 / every_ms), every_ms, 3, 0)]
    parts += [changed(8, 38_250, 3, 1)] * once
    assert group_periods(table, pl.concat(parts), DEFAULT)["period_ns"].item() / MS == pytest.approx(period)


@pytest.mark.parametrize(
    ("gradients", "share", "period"),
    [(["ab", "cd"], 0.4, 3760), (["ab"], 0.4, 26_900), (["ab", "cd"], 1.0, 26_900)],
    ids=["most NICs", "half of them", "messages of one size"],
)
def test_pauses_between_steps_that_other_pairs_show_are_not_between_steps(
    gradients: list[str], share: float, period: float
) -> None:
    """The links of a pipeline are quiet as a whole after every seventh step alone, where a checkpoint is saved, and its
    gradients come once a step. Messages of one size that come back may be of micro-batches."""
    table = flows(*(ring(nics, every(3760, count=80)) for nics in ["ac", "bd", *gradients]))
    whole = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g")).filter(size_class=WHOLE_PAIR)
    of_link = pl.concat_str("src_addr", "dst_addr").is_in(["ac", "ca", "bd", "db"])

    def changed(chosen: pl.Expr, bursts: int, period: float, **columns: float) -> pl.DataFrame:
        times = dict.fromkeys(("period_ns", "mean_period_ns"), period * MS)
        values = {"bursts": bursts, **times, **columns}
        some = whole.filter(chosen)
        return some.with_columns(pl.lit(value).cast(whole.schema[name]).alias(name) for name, value in values.items())

    parts = [changed(of_link, 12, 26_900, duration_ns=25_000 * MS), changed(~of_link, 80, 3760, common_share=share)]
    assert group_periods(table, pl.concat(parts), DEFAULT)["period_ns"].item() / MS == pytest.approx(period)


@pytest.mark.parametrize(
    ("turning", "busy", "period"),
    [(["ac", "bd"], 25_000, 3760), (["ac"], 25_000, 26_900), (["ac", "bd"], 13_000, 26_900)],
    ids=["most NICs", "half of them", "idle for most of it"],
)
def test_pauses_between_steps_in_which_links_turn_once_are_not_between_steps(
    turning: list[str], busy: float, period: float
) -> None:
    """The links of a pipeline are quiet as a whole after every seventh step alone, where a checkpoint is saved; nothing
    else crosses hosts. A link turns where it was empty."""
    links = ["ac", "bd"]
    table = flows(*(ring(nics, every(3760, count=80)) for nics in links))
    whole = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g")).filter(size_class=WHOLE_PAIR)
    turns = pl.concat_str("src_addr", "dst_addr").is_in([end for link in turning for end in (link, link[::-1])])

    def changed(some: pl.DataFrame, bursts: int, period: float, duration: float, size_class: int) -> pl.DataFrame:
        times = dict.fromkeys(("period_ns", "mean_period_ns"), period * MS)
        values = {"bursts": bursts, "duration_ns": duration * MS, "size_class": size_class, **times}
        return some.with_columns(pl.lit(value).cast(whole.schema[name]).alias(name) for name, value in values.items())

    parts = [changed(whole, 12, 26_900, busy, WHOLE_PAIR), changed(whole.filter(turns), 80, 3760, 3000, AT_TURNS)]
    assert group_periods(table, pl.concat(parts), DEFAULT)["period_ns"].item() / MS == pytest.approx(period)


@pytest.mark.parametrize(
    ("busy", "period"), [(25_000, 3760), (3000, 26_900)], ids=["nearly all of the pair", "something comes once"]
)
def test_a_size_that_pauses_with_its_pair_is_nothing_that_comes_once(busy: float, period: float) -> None:
    """Two replicas exchange gradients without a silence until a checkpoint is saved, some of them in one size, and the
    links of their pipelines turn once in a step."""
    table = flows(*(ring(nics, every(3760, count=80)) for nics in ("ac", "bd", "ab")))
    whole = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g")).filter(size_class=WHOLE_PAIR)
    linked = whole.filter(pl.concat_str("src_addr", "dst_addr").is_in(["ac", "ca", "bd", "db"]))

    def changed(some: pl.DataFrame, bursts: int, period: float, duration: float, size_class: int) -> pl.DataFrame:
        times = dict.fromkeys(("period_ns", "mean_period_ns"), period * MS)
        values = {"bursts": bursts, "duration_ns": duration * MS, "size_class": size_class, **times}
        return some.with_columns(pl.lit(value).cast(whole.schema[name]).alias(name) for name, value in values.items())

    parts = [changed(whole, 12, 26_900, 25_000, WHOLE_PAIR), changed(linked, 80, 3760, 3000, AT_TURNS)]
    parts.append(changed(whole.join(linked, on="pair", how="anti").head(1), 12, 26_900, busy, 1))
    assert group_periods(table, pl.concat(parts), DEFAULT)["period_ns"].item() / MS == pytest.approx(period)


@pytest.mark.parametrize(("lasts", "period"), [(990, None), (1010, 1000)])
def test_what_goes_on_for_longer_than_a_step_is_no_part_of_it(lasts: float, period: float | None) -> None:
    """A copy of files between two NICs of a ring moves ten times what the ring does."""
    sent = ring("abc", every(1000, count=20))
    copy = [(4300.0, 4300 + lasts, "a", "c", 10 * sum(row[4] for row in sent))]
    assert period_ms(sent, copy) == period


def test_nothing_has_no_rhythm() -> None:
    none = stream_rhythms(flows(), DEFAULT)
    assert none.is_empty()
    assert none.columns[:4] == ["src_addr", "dst_addr", "size_class", "flows"]


def test_each_pair_has_a_rhythm_of_its_own_or_none() -> None:
    table = flows(
        ring("ab", every(1000, count=10)), messages("c", "d", every(300, count=10), MB), chatter("d", "c", total=MB)
    )
    found = stream_rhythms(table, DEFAULT).filter(size_class=WHOLE_PAIR).sort("src_addr", "dst_addr")
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


@pytest.mark.parametrize("other", ["b", "c"])
@pytest.mark.parametrize(("share", "found"), [(0.009, 1000.0), (0.011, None)])
def test_stray_messages_before_a_job_begins_are_no_part_of_its_time(
    other: str, share: float, found: float | None
) -> None:
    """Twenty steps of a second after 35 s in which a NIC sent a message alone: of its pair a hundredth, or of all."""
    steps = ring("ab", every(1000, count=20, start=35_000))
    moved = sum(row[-1] for row in steps if other == "c" or row[2] == "a")
    assert period_ms(steps, messages("a", other, [0], round(share * moved / (1 - share)))) == found


@pytest.mark.parametrize(("share", "found"), [(0.45, 1000.0), (0.55, None)])
def test_a_period_explains_most_bytes(share: float, found: float | None) -> None:
    """Two NICs synchronise 80 MB each way in each of 20 steps; others send this share of all bytes at random."""
    synchronised = 20 * 2 * 80 * MB
    rest = round(synchronised * share / (1 - share))
    assert period_ms(ring("ab", every(1000, count=20)), chatter("c", "a", total=rest)) == found


@pytest.mark.parametrize("expert", ["b", "c"])
@pytest.mark.parametrize(("uneven", "found"), [(2, 1000.0), (4, None)])
def test_experts_are_called_about_equally_often_in_each_period(expert: str, uneven: int, found: float | None) -> None:
    """Calls of random sizes, 10 + uneven in one step and 10 - uneven in the next, carry most bytes.

    They go to the NIC with which gradients are reduced as well, where only the gradients' one size has a rhythm, or to
    another.
    """
    draw = random.Random(2)
    calls = [
        (1000 * step + 90 * i, 1000 * step + 90 * i + 1, "a", expert, draw.randint(MB, 100 * MB))
        for step in range(20)
        for i in [j * 10 / (10 + uneven * (-1) ** step) for j in range(10 + uneven * (-1) ** step)]
    ]
    assert period_ms(ring("ab", every(1000, count=20), parts=1), calls) == found


def test_three_bursts_of_buckets_are_three_steps_and_not_fifteen() -> None:
    """Five equal buckets follow one another 40 ms apart, once in four seconds."""
    buckets = [burst("a", "b", 4000 * step + 40 * i, length=20) for step in range(3) for i in range(5)]
    assert period_ms(*buckets) == 4000


def test_buckets_of_one_burst_are_no_steps() -> None:
    assert period_ms(*[burst("a", "b", 40 * i, length=20) for i in range(5)], messages("b", "a", [4000], MB)) is None


@pytest.mark.parametrize(("count", "silence", "found"), [(9, 1.9, 1000), (9, 2.1, None), (10, 2.1, 1000)])
def test_bursts_that_are_over_after_seconds_may_be_buckets(count: int, silence: float, found: float | None) -> None:
    """Silent for two periods, they are over; ten of a second each have gone on for long enough."""
    table = flows(ring("ab", every(1000, count=count), parts=1))
    rhythms = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g"))
    until_ns = WINDOW.start_ns + round((count - 1 + silence) * 1000) * MS
    periods = group_periods(table, rhythms, DEFAULT, until_ns=until_ns)["period_ns"].to_list()
    assert periods == ([] if found is None else [found * MS])


@pytest.mark.parametrize(("count", "pause", "found"), [(20, 2.9, None), (20, 1.7, 350), (30, 2.9, 350)])
def test_buckets_of_two_bursts_are_no_steps_either(count: int, pause: float, found: float | None) -> None:
    """The second is under way. Five periods of silence make a pause; thirty of them have gone on for ten seconds."""
    begins = [350 * i + (1000 * pause - 350) * (i >= 12) for i in range(count)]
    table = flows(ring("ab", begins, parts=1))
    rhythms = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g"))
    periods = group_periods(table, rhythms, DEFAULT, until_ns=WINDOW.start_ns + round(begins[-1] + 200) * MS)
    assert periods["period_ns"].to_list() == ([] if found is None else [found * MS])


@pytest.mark.parametrize("count", [2, 3])
def test_long_steps_are_seen_from_the_second_on(count: int) -> None:
    table = flows(ring("abc", every(25_000, count=count)))
    assert ends_ms(steps(table)) == [25_000 * i + 100 for i in range(count)]


@pytest.mark.parametrize(("apart", "count"), [(23, 0), (27, 2)])
def test_two_steps_are_believed_only_if_they_are_far_apart(apart: float, count: int) -> None:
    """Five times the shortest quiet time; each step is one record."""
    assert len(ends_ms(steps(flows(ring("abc", [0, 100 + apart], parts=1))))) == count


def test_how_far_apart_can_be_set() -> None:
    table = flows(ring("abc", [0, 123], parts=1))
    assert len(ends_ms(steps(table, values=tuned(few_quiet_ratio=4)))) == 2


def test_a_period_seen_twice_does_not_count_where_another_is() -> None:
    """Two bursts of other sizes, far apart, beside twenty steps."""
    copies = messages("a", "b", [5400, 15_400], 90 * MB)
    assert period_ms(ring("ab", every(1000, count=20)), copies) == 1000


def halves(addrs: str, skipped: int) -> list[Row]:
    """Return steps of which the second half takes twice as long; the first ones are not seen of these NICs."""
    return ring(addrs, [*every(1000, count=11), *every(2000, count=9, start=12_000)][skipped:])


def test_pairs_that_see_more_fast_or_more_slow_steps_agree_on_their_mean_period() -> None:
    """Medians are 1,000 ms for one half of the NICs, 2,000 for the other."""
    table = flows(halves("ab", 0), halves("cd", 3))
    found = stream_rhythms(table, DEFAULT).filter(size_class=WHOLE_PAIR)
    assert set(found["period_ns"] // MS) == {1000, 2000}
    assert period_ms(halves("ab", 0), halves("cd", 3)) == pytest.approx(1518, abs=45)


def test_micro_batches_of_a_pipeline_do_not_hide_the_step() -> None:
    begins = every(2000, count=10)
    rows = [*pipeline("a", "b", begins, spread=1400, count=8), *pipeline("c", "d", begins, spread=1400, count=8)]
    gradients = [*ring("ac", every(2000, count=10, start=1600)), *ring("bd", every(2000, count=10, start=1500))]
    assert period_ms(rows, gradients) == 2000


Stream = tuple[int, float | None, float | None, float | None]
"""A stream of one pair: size class, period, mean period and duration of its bursts in ms."""


def kept(*streams: Stream, group_period: float = 1000, bursts: int = 10) -> list[int]:
    """Return the size classes of the streams of one pair that are in their group's period; the last has so many bursts,
    the others ten."""
    columns = ["bursts", "size_class", "period_ns", "mean_period_ns", "duration_ns"]
    counts = [10] * (len(streams) - 1) + [bursts]
    rows = [
        ("g", "a", "b", count, size_class, *(time and time * MS for time in times))
        for count, (size_class, *times) in zip(counts, streams, strict=True)
    ]
    rhythms = pl.DataFrame(rows, schema=["group", "src_addr", "dst_addr", *columns], orient="row")
    rhythms = rhythms.with_columns(pair=pl.struct("src_addr", "dst_addr").rank("dense"))
    periods = pl.DataFrame({"group": ["g"], "period_ns": [group_period * MS]})
    return sorted(in_period(rhythms, periods, DEFAULT)["size_class"])


@pytest.mark.parametrize(("period", "found"), [(1095, True), (1105, False), (915, True), (905, False)])
def test_a_pair_has_its_group_s_period_within_the_tolerance(period: float, found: bool) -> None:
    assert kept((WHOLE_PAIR, period, 2000, 100)) == [WHOLE_PAIR] * found
    assert kept((WHOLE_PAIR, 2000, period, 100)) == [WHOLE_PAIR] * found, "as its median or as its mean"


@pytest.mark.parametrize(("mean", "found"), [(950, [WHOLE_PAIR]), (800, [0])])
def test_a_pair_whose_median_is_of_the_quick_half_has_the_mean_of_its_sizes(mean: float, found: list[int]) -> None:
    """Half of the steps take 830 ms, half 1060, on average 940."""
    assert kept((WHOLE_PAIR, 830, mean, 300), (0, 1060, 940, 100), group_period=1060) == found


@pytest.mark.parametrize(("mean", "found"), [(920, [0, 1, 2]), (900, [0, 2])])
def test_a_size_that_comes_twice_in_some_steps_yields_to_those_that_come_once(mean: float, found: list[int]) -> None:
    """Steps take 1 s in the median, as all three sizes have it, and on average, as two have."""
    assert kept((0, 1000, 1000, 10), (2, 1000, 1000, 10), (1, 1000, mean, 10), bursts=11) == found


def test_a_pair_with_the_period_as_a_whole_needs_no_parts() -> None:
    assert kept((WHOLE_PAIR, 1000, 1000, 300), (0, 1000, 1000, 300), (1, 1000, 1000, 200)) == [WHOLE_PAIR]


def test_the_parts_of_a_pair_with_another_period_stand_for_it() -> None:
    assert kept((WHOLE_PAIR, 100, 100, 10), (0, 1000, 1000, 300), (1, 100, 100, 10)) == [0]


@pytest.mark.parametrize(("longer", "found"), [(-1, [WHOLE_PAIR]), (1, [1])])
def test_a_pair_that_is_busy_for_most_of_the_period_yields_to_its_compact_sizes(
    longer: float, found: list[int]
) -> None:
    busy = 1000 * DEFAULT.compact + longer
    assert kept((WHOLE_PAIR, 1000, 1000, busy), (0, 1000, 1000, 800), (1, 1000, 1000, 100)) == found


@pytest.mark.parametrize(("bursts", "found"), [(8, [1]), (7, [WHOLE_PAIR])])
def test_a_compact_size_that_is_missing_in_some_bursts_stands_for_no_pair(bursts: int, found: list[int]) -> None:
    """Records that the collector merged or split in a tenth of ten steps, and one at the edge of the data."""
    assert kept((WHOLE_PAIR, 1000, 1000, 800), (1, 1000, 1000, 100), bursts=bursts) == found


@pytest.mark.parametrize(("bursts", "found"), [(12, [WHOLE_PAIR]), (13, [1])])
def test_a_whole_pair_that_is_not_quiet_between_some_steps_yields_to_a_size_that_is(
    bursts: int, found: list[int]
) -> None:
    """Between steps that were far shorter: it shows ten steps, and a size shows more than a tenth more, and one."""
    assert kept((WHOLE_PAIR, 1000, 1000, 200), (1, 1000, 1000, 100), bursts=bursts) == found


def test_a_pair_without_compact_sizes_keeps_its_own_rhythm() -> None:
    assert kept((WHOLE_PAIR, 1000, 1000, 850), (0, 1000, 1000, 800)) == [WHOLE_PAIR]


def test_turns_stand_for_a_pair_that_has_no_rhythm_as_a_whole() -> None:
    turns, micro_batches = (AT_TURNS, 1000, 1000, 900), (WHOLE_PAIR, 30, 30, 1)
    assert kept(micro_batches, turns) == [AT_TURNS]
    assert kept((WHOLE_PAIR, 1000, 1000, 900), turns) == [WHOLE_PAIR]


def test_a_pair_that_is_quiet_after_the_same_bytes_needs_no_parts_however_short_it_is_quiet() -> None:
    assert kept((WHOLE_PAIR, None, None, None), (0, 1000, 1000, 100), (AT_PORTIONS, 1000, 1000, 950)) == [AT_PORTIONS]


def on_busy_hosts(count: int, *, blocks: bool) -> list[Row]:
    """Return steps of a second: five buckets of three sizes, 20 to 240 ms apart, that end after 900 ms.

    Until the next step's it is quiet for 200 to 600 ms, or blocks of context fill the step but for 60 to 120 ms.
    """
    draw, rows = random.Random(7), list[Row]()
    for begin in every(1000, count=count):
        for src, dst in ("ab", "ba"):
            at = begin + 900 - 10 * draw.random()
            for size in (40, 30, 60, 30, 40):
                rows.append((at - 20, at, src, dst, size * MB))
                at -= draw.uniform(120, 180) if blocks else draw.uniform(40, 260)
            if blocks:
                rows += messages(src, dst, [begin + draw.uniform(-20, 20) + 35 * i for i in range(24)], 5 * MB)
    return rows


@pytest.mark.parametrize("blocks", [False, True])
def test_steps_end_with_the_last_bucket_where_no_gap_tells_them(blocks: bool) -> None:
    table = flows(on_busy_hosts(20, blocks=blocks))
    found = stream_rhythms(table, DEFAULT)
    assert found.filter(size_class=WHOLE_PAIR)["period_ns"].null_count() == 2
    assert found.filter(pl.col("size_class") <= AT_PORTIONS)["pair"].to_list() == [0, 1]
    assert ends_ms(steps(table)) == pytest.approx([1000 * i + 900 for i in range(20)], abs=11)


def test_a_pair_is_looked_at_as_a_whole_and_by_each_size_that_recurs() -> None:
    """Gradients of two sizes make up a ring's burst; what comes once (the first weights) is no stream."""
    table = flows(ring("ab", every(1000, count=10)), messages("a", "b", [500], 60 * MB))
    found = stream_rhythms(table, DEFAULT).filter(src_addr="a").sort("size_class")
    assert found["size_class"].to_list() == [WHOLE_PAIR, 0, 1]
    assert found["flows"].to_list() == [81, 40, 40]
    assert found["common_size"].unique().to_list() == [80 * MB * 2 // 12]
    assert found["common_share"].unique().to_list() == pytest.approx([533 / 860], rel=0.01)


def test_a_pair_of_one_size_is_looked_at_once() -> None:
    found = stream_rhythms(flows(messages("a", "b", every(1000, count=10), MB)), DEFAULT)
    assert found["size_class"].to_list() == [WHOLE_PAIR]


@pytest.mark.parametrize(("share", "streams"), [(0.049, 1), (0.051, 2)])
def test_sizes_that_carry_little_are_not_looked_at(share: float, streams: int) -> None:
    """Beside a size that carries the rest; both come ten times."""
    small = round(100 * MB * share)
    table = flows(
        messages("a", "b", every(1000, count=10), 100 * MB - small), messages("a", "b", every(1000, count=10), small)
    )
    assert stream_rhythms(table, DEFAULT).filter(pl.col("size_class") >= 0).height == streams


def test_gradients_beside_blocks_of_context_are_told_by_their_sizes() -> None:
    """Blocks of 4 MB go round throughout, each 50 ms, also between gradients: the pair as a whole is never quiet."""
    blocks = [row for src, dst in ("ab", "ba") for row in messages(src, dst, every(50, count=240), 4 * MB)]
    table = flows(blocks, ring("ab", every(1000, count=12, start=700)))
    whole = stream_rhythms(table, DEFAULT).filter(size_class=WHOLE_PAIR)
    assert 1000 * MS not in whole["period_ns"].to_list()
    assert ends_ms(steps(table)) == [1000 * i + 800 for i in range(12)]


def test_sharded_gradients_are_told_from_the_parameters_that_fill_the_step() -> None:
    """Six layers: parameters of 4 MB are gathered each 80 ms, forth and back, gradients of 8 MB in the second half."""
    gathers = [
        row
        for begin in every(1000, count=12)
        for row in ring("ab", every(80, count=12, start=begin), length=1, size=4 * MB, parts=1)
    ]
    scatters = [
        row
        for begin in every(1000, count=12)
        for row in ring("ab", every(80, count=6, start=begin + 520), length=1, size=8 * MB, parts=1)
    ]
    assert ends_ms(steps(flows(gathers, scatters))) == [1000 * i + 921 for i in range(12)]


def gathers(begins: Iterable[float], size: int) -> list[Row]:
    return ring("ab", begins, length=1, size=size, parts=1)


@pytest.mark.parametrize(("late", "end"), [(100, 101), (260, 261), (265, 12), (330, 12)])
def test_what_comes_once_a_step_marks_where_steps_meet(late: float, end: int) -> None:
    """Of sharded jobs, the gather of the embeddings. Gathers of one size that go on in a part of the step, such as its
    forward pass, belong to the mark if they end within a quarter of a step of it."""
    starts = every(1000, count=12)
    filling = gathers([begin + 20 + 30 * i for begin in starts for i in range(33) if 20 + 30 * i > late], 3 * MB)
    some = gathers([begin + late * i / 5 for begin in starts for i in range(1, 6)], 5 * MB)
    mark = gathers([begin + 11 for begin in starts], 20 * MB)
    found = ends_ms(steps(flows(filling, some, mark)))
    assert found[:12] == [1000 * i + end for i in range(12)]
    assert found[12:] in ([], [11_981])  # whose mark is still to come


def test_gathers_that_some_ranks_began_early_have_one_size() -> None:
    """The first 4 MB go ahead in half of the steps, on another pair in the others; no size is sent in all of them."""
    starts, rows = every(1000, count=12), list[Row]()
    for number, (src, dst) in enumerate(("ab", "ba")):
        rows += messages(src, dst, every(50, count=240, start=30), 20 * MB)
        for step, begin in enumerate(starts):
            if step % 2 == number:
                rows += [*messages(src, dst, [begin + 500], 4 * MB), *messages(src, dst, [begin + 520], 40 * MB)]
            else:
                rows += messages(src, dst, [begin + 520], 44 * MB)
    assert ends_ms(steps(flows(rows))) == [1000 * i + 521 for i in range(12)]


STEPS = [*every(700, count=10)]
"""A pipeline's steps of eight micro-batches: two stages take 281 ms, four 341."""


@pytest.mark.parametrize("nics", ["ab", "abcd"])
@pytest.mark.parametrize("micro_batches", [4, 8, 16])
def test_a_pipeline_whose_gradients_leave_no_host_has_steps_where_it_turns(nics: str, micro_batches: int) -> None:
    table = flows(stages(nics, STEPS, micro_batches=micro_batches))
    found = steps(table)
    assert found["step"].equals(((found["flow_start_ns"] - WINDOW.start_ns) // (700 * MS)).rename("step"))
    assert found.height == table.height


def test_turns_are_a_row_of_each_pair_that_is_answered() -> None:
    found = stream_rhythms(flows(stages("abc", STEPS)), DEFAULT).filter(size_class=AT_TURNS)
    assert set(found.select("src_addr", "dst_addr").iter_rows()) == {("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")}
    assert found["period_ns"].unique().to_list() == [700 * MS]
    assert found["bursts"].unique().to_list() == [10]


@pytest.mark.parametrize(("odd", "turning"), [(0.09, 2), (0.11, 0)])
def test_only_what_is_sent_in_one_size_turns(odd: float, turning: int) -> None:
    """The embedding of first and last stage is a second size on the pair, once a step, with this share of the bytes."""
    embedding = round(128 * MB * odd / (1 - odd))
    rows = [row for src, dst in ("ab", "ba") for row in messages(src, dst, [begin + 600 for begin in STEPS], embedding)]
    found = stream_rhythms(flows(stages("ab", STEPS, micro_batches=16), rows), DEFAULT).filter(size_class=AT_TURNS)
    assert found.height == turning


def test_a_pipeline_of_uneven_micro_batches_turns_and_its_sizes_recur_by_chance() -> None:
    draw = random.Random(5)
    sizes = [draw.choice([5, 6, 7, 8, 9]) * MB + draw.randrange(MB // 50) for _ in range(80)]
    rows = [
        row
        for nic in "ab"
        for row in zip_sizes(
            sorted(r for r in stages("ab", every(700, count=40), micro_batches=2) if r[2] == nic), sizes
        )
    ]
    found = stream_rhythms(flows(rows), DEFAULT)
    assert found.filter(size_class=AT_TURNS)["period_ns"].to_list() == [700 * MS] * 2
    assert found["size_class"].max() == WHOLE_PAIR


def zip_sizes(rows: Iterable[Row], sizes: Iterable[int]) -> list[Row]:
    return [(*row[:4], size) for row, size in zip(rows, sizes, strict=True)]


def test_what_nothing_answers_does_not_turn() -> None:
    there = [row for row in stages("ab", STEPS) if row[2] == "a"]
    larger = [(*row[:4], 9 * MB) for row in stages("ab", STEPS) if row[2] == "b"]
    fewer = [row for row in stages("ab", STEPS) if row[2] == "b" and row[0] % 700 < 220]
    for back in ([], larger, fewer):
        assert stream_rhythms(flows(there, back), DEFAULT).filter(size_class=AT_TURNS).is_empty()


def exchanges(*links: str) -> list[Row]:
    """Return one size each 100 ms over links, forth and at once back: micro-batches whose beginning is not seen."""
    return [
        row
        for link in links
        for src, dst in (link, link[::-1])
        for row in messages(src, dst, every(100, count=200, start=5 * (src < dst)), 8 * MB)
    ]


@pytest.mark.parametrize(
    ("links", "count"),
    [(["ab", "bc"], 0), (["ab", "bc", "cd"], 0), (["ab"], 200), (["ab", "bc", "ca"], 200), (["ab", "bc", "bd"], 200)],
    ids=["line of three", "line of four", "two", "ring", "star"],
)
def test_a_line_that_never_turns_repeats_with_its_micro_batches_and_has_no_steps(links: list[str], count: int) -> None:
    assert len(ends_ms(steps(flows(exchanges(*links))))) == count


def test_a_line_whose_pairs_send_several_sizes_may_be_a_tree_of_gradients() -> None:
    rows = [row for link in ("ab", "bc") for row in ring(link, every(1000, count=12))]
    assert len(ends_ms(steps(flows(rows)))) == 12


def steps(table: pl.DataFrame, *, values: RhythmSettings = DEFAULT) -> pl.DataFrame:
    """Number the steps of all flows as one job."""
    return job_steps.steps_of_jobs(table.with_columns(job_id=pl.lit("j")), values).numbered.sort("flow_start_ns")


def ended_by(table: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Number the steps of all flows as one job, as the bursts of some pairs show them."""
    joint = job_steps.steps_of_jobs(table.with_columns(job_id=pl.lit("j")), DEFAULT)
    return gradient_ends.steps_ended_by(joint, pairs, DEFAULT).numbered


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


@pytest.mark.parametrize(("late", "later"), [(330, 550), (-330, -550)])
def test_steps_meet_where_no_pair_ends_for_longest(late: float, later: float) -> None:
    """Stages may end their part more than half a step after, or before, the pair by which all are lined up."""
    delays = {"ab": 0, "cd": late, "ef": later}
    parts = [ring(nics, every(1000, count=10, start=1000 + delay)) for nics, delay in delays.items()]
    spans = steps(flows(*parts)).group_by("step").agg(pl.col("flow_start_ns").min(), pl.col("flow_end_ns").max())
    assert set((spans["flow_end_ns"] - spans["flow_start_ns"]) // MS) == {650}


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
    numbered = job_steps.steps_of_jobs(table, DEFAULT).numbered
    assert numbered.group_by("job_id").agg(pl.col("step").max()).sort("job_id").rows() == [("one", 9), ("two", 19)]


def broken_pair() -> list[Row]:
    """Bursts whose bytes change by half from step to step, for most of their records are lost."""
    draw = random.Random(4)
    return [row for row in ring("cd", every(1000, count=12)) if draw.random() < 0.3]


def test_named_pairs_too_broken_to_show_the_period_are_cut_like_the_others() -> None:
    table = flows(ring("abef", every(1000, count=12)), broken_pair())
    assert set(steps(table)["src_addr"]) == set("abef")
    named = table.select("src_addr", "dst_addr").unique()
    numbered = ended_by(table, named)
    assert set(numbered["src_addr"]) == set("abcdef")
    begin = (numbered["flow_start_ns"] - WINDOW.start_ns) // (1000 * MS)
    assert (numbered["step"] == begin).all()


@pytest.mark.parametrize(("apart", "names"), [(450, "abef"), (550, "abcef")])
def test_a_named_pair_that_repeats_within_the_period_is_not_broken(apart: int, names: str) -> None:
    """Its gradients are lost among blocks that it sends twice a step, or once."""
    blocks = messages("c", "d", every(apart, count=12_000 // apart), 4 * MB)
    table = flows(ring("abef", every(1000, count=12)), blocks)
    named = table.select("src_addr", "dst_addr").unique()
    numbered = ended_by(table, named)
    assert set(numbered["src_addr"]) == set(names)


def test_a_named_pair_too_broken_to_turn_is_not_cut_where_the_others_turn() -> None:
    """Many records of one link are lost, and the pause between steps is short: no gap of it ends a step."""
    draw, begins = random.Random(4), every(420, count=10)
    table = flows([row for row in stages("abcd", begins) if {row[2], row[3]} != set("cd") or draw.random() < 0.6])
    named = table.select("src_addr", "dst_addr").unique()
    numbered = ended_by(table, named)
    assert set(numbered["src_addr"]) == set("abc")
    assert (numbered["step"] == (numbered["flow_start_ns"] - WINDOW.start_ns) // (420 * MS)).all()


@pytest.mark.parametrize(("shown_by", "chosen"), [(WHOLE_PAIR, [0, 1]), (7, [0])])
def test_a_broken_pair_is_cut_like_others_only_if_these_are_silent_as_a_whole(shown_by: int, chosen: list[int]) -> None:
    """Between messages of one size, such as gradients, pairs also send others, such as tokens."""
    joint = job_steps.steps_of_jobs(flows(ring("ab", every(1000, count=12))).with_columns(job_id=pl.lit("j")), DEFAULT)
    found = pl.concat([joint.streams.found.head(1)] * 2).with_columns(
        pair=pl.Series([0, 1], dtype=pl.Int32), dst_addr=pl.Series(["b", "c"]), period_ns=pl.Series([1e9, None])
    )
    shown = found.head(1).with_columns(size_class=pl.lit(shown_by, pl.Int64), group_period_ns=pl.lit(1e9))
    few = shown.select("group").clear()
    streams = dataclasses.replace(joint.streams, found=found, in_step=shown, of_few=few)
    assert gradient_ends._streams_of_pairs(streams, found.select("src_addr", "dst_addr"))["pair"].to_list() == chosen


@pytest.mark.parametrize("left_out", [0, 1, 5])
def test_steps_keep_their_numbers_where_named_pairs_lack_some(left_out: int) -> None:
    begins = every(1000, count=12)
    table = flows(ring("ab", begins), ring("cd", [begin for begin in begins if begin != left_out * 1000]))
    numbered = ended_by(table, pl.DataFrame({"src_addr": ["c"], "dst_addr": ["d"]}))
    assert (numbered["step"] == (numbered["flow_start_ns"] - WINDOW.start_ns) // (1000 * MS)).all()
    assert set(numbered["step"]) == set(range(12)) - {left_out}


def test_a_burst_where_the_job_has_no_step_makes_none() -> None:
    """Records of a named pair that is too broken to show the period are cut in the middle of a step as well."""
    halves = [row for row in ring("cd", every(1000, count=12, start=500)) if row[0] < 3000]
    table = flows(ring("abef", every(1000, count=12)), broken_pair(), halves)
    numbered = ended_by(table, table.select("src_addr", "dst_addr").unique())
    ends = numbered.filter(pl.col("src_addr").is_in(["a", "b", "e", "f"])).group_by("step").len()
    assert sorted(ends["step"]) == list(range(12))
    assert numbered["step"].max() == 11


def test_pairs_that_are_not_named_are_left_out() -> None:
    table = flows(ring("ab", every(1000, count=12)), ring("cd", every(1000, count=12)))
    named = pl.DataFrame({"src_addr": ["a"], "dst_addr": ["b"]})
    numbered = ended_by(table, named)
    assert numbered.select("src_addr", "dst_addr").unique().rows() == [("a", "b")]


def test_a_job_without_a_rhythm_has_no_steps() -> None:
    numbered = steps(flows(chatter("a", "b", total=MB), chatter("b", "a", total=MB)))
    assert numbered.is_empty()
    assert {"job_id", "step", "group_period_ns"} <= set(numbered.columns)


def job(seed: int, count: int) -> list[Row]:
    """Return some job's traffic: gradients of two stages, and micro-batches or blocks between them."""
    draw = random.Random(seed)
    begins = [1000 * i + draw.uniform(0, 40) for i in range(count)]
    between = pipeline("a", "c", begins) if seed % 2 else messages("a", "b", every(50, count=20 * count), 4 * MB)
    return [*ring("ab", [begin + 700 for begin in begins]), *ring("cd", [begin + 600 for begin in begins]), *between]


jobs = st.builds(job, st.integers(0, 10**6), st.integers(4, 12))


def numbers(table: pl.DataFrame) -> list[tuple[object, ...]]:
    """Return the step of each flow, in order."""
    return sorted(steps(table).select("src_addr", "dst_addr", "flow_start_ns", "step").iter_rows())


@generated(max_examples=12)
@given(jobs, st.integers(1, 1000))
def test_when_it_happens_does_not_matter(rows: list[Row], minutes: int) -> None:
    shift = minutes * WINDOW.length_ns
    later = [
        (src, dst, start - shift, step) for src, dst, start, step in numbers(flows(rows, base=WINDOW.shifted(minutes)))
    ]
    assert later == numbers(flows(rows))


@generated(max_examples=12)
@given(jobs, st.integers(2, 100))
def test_the_unit_of_bytes_does_not_matter(rows: list[Row], factor: int) -> None:
    table = flows(rows)
    assert numbers(table.with_columns(pl.col("bytes") * factor)) == numbers(table)


@generated(max_examples=12)
@given(jobs, st.integers(0, 100))
def test_the_order_of_rows_does_not_matter(rows: list[Row], seed: int) -> None:
    table = flows(rows)
    assert numbers(table.sample(fraction=1, shuffle=True, seed=seed)) == numbers(table)


@generated(max_examples=12)
@given(jobs, jobs)
def test_jobs_do_not_see_each_other(rows: list[Row], others: list[Row]) -> None:
    """NICs of the second job have names of their own."""
    renamed = [(start, end, src.upper(), dst.upper(), size) for start, end, src, dst, size in others]
    both = pl.concat([flows(some).with_columns(job_id=pl.lit(name)) for name, some in (("j", rows), ("k", renamed))])
    together = job_steps.steps_of_jobs(both, DEFAULT).numbered.filter(job_id="j")
    found = sorted(together.select("src_addr", "dst_addr", "flow_start_ns", "step").iter_rows())
    assert found == numbers(flows(rows))


@pytest.mark.parametrize(("times", "count"), [(4, 200), (10, 0)])
def test_bursts_of_which_few_carry_most_bytes_are_no_steps(times: int, count: int) -> None:
    """All come in one rhythm, as layers do; after four to nine of them, one carries several times as much."""
    draw, rows = random.Random(2), list[Row]()
    large = set(accumulate(draw.randint(4, 9) for _ in range(40)))
    for number, start in enumerate(every(300, count=200)):
        for src, dst in ("ab", "bc", "ca"):
            rows += messages(src, dst, [start], (times if number in large else 1) * 10 * MB)
    assert steps(flows(rows))["step"].n_unique() == count


@pytest.mark.parametrize(
    ("period", "passes", "several"),
    [
        (1490, False, []), (1500, False, ["g"]), (13_000, False, ["g"]),
        (660, False, []), (660, True, ["g"]), (670, True, []),
    ],
)  # fmt: skip
def test_what_a_clear_template_has_several_of_are_layers(period: float, passes: bool, several: list[str]) -> None:
    """And what single pairs take for a step is several where the template has a forward and a backward pass."""
    clear = pl.DataFrame({"pair": [0, 1], "group": "g", "group_period_ns": [period, period], "ended": passes})
    found = job_steps.several_steps(clear, pl.DataFrame({"group": ["g", "h"], "period_ns": [1000.0, 1.0]}))
    assert found["group"].to_list() == several


@pytest.mark.parametrize(("period", "left"), [(1000, ["b"]), (1600, ["a", "b"])])
def test_where_a_few_nics_have_the_period_that_bytes_tell_they_say_where_it_ends(
    period: float, left: list[str]
) -> None:
    clocked = pl.DataFrame({"pair": [0, 1, 2], "group": ["a", "a", "b"], "group_period_ns": [1010.0, 1010.0, 1000.0]})
    of_few = pl.DataFrame({"group": ["a", "c"], "period_ns": [float(period), 1000.0]})
    assert sorted(job_steps._without_same_period(clocked, of_few, DEFAULT)["group"]) == left


def tokens(*, more: float, count: int = 20) -> list[Row]:
    """Return what six NICs exchange eight times in each step of a second, each with all others, in random sizes that
    are alike in all; in each step they are larger by up to a ratio."""
    draw, rows = random.Random(11), list[Row]()
    for step in range(count):
        larger = 1 + more * draw.random()
        for turn in range(8):
            for src in "abcdef":
                at = 1000 * step + 90 * turn + 10 * draw.random()
                each = [draw.uniform(0.2, 2) for _ in range(5)]
                scale = 40 * MB * larger / sum(each)
                others = "abcdef".replace(src, "")
                rows += [(at, at + 1, src, dst, round(scale * one)) for dst, one in zip(others, each, strict=True)]
    return rows


@pytest.mark.parametrize(("more", "found"), [(0.0, 20), (0.1, 20), (1.0, 0)])
def test_a_few_nics_tell_the_steps_in_which_all_send_the_same(more: float, found: int) -> None:
    """Gradients of 80 MB cross hosts at two of six NICs, and all of them exchange tokens throughout."""
    gradients = [burst("a", "b", 1000 * step + 800, length=20) for step in range(20)]
    assert steps(flows(tokens(more=more), *gradients))["step"].n_unique() == found


@pytest.mark.parametrize(
    ("apart", "parts", "period"), [(0.06, 1, 1000), (0.0, 1, 100), (0.06, 3, 100)], ids=["tokens", "one size", "bursts"]
)
def test_messages_that_come_one_by_one_in_other_sizes_tell_no_period(apart: float, parts: int, period: float) -> None:
    """Gradients cross hosts at two of six NICs. Others only send tokens, of about the same bytes in each layer."""
    draw, begins = random.Random(3), every(1000, count=20)
    rows = [*messages("a", "b", [at + 850 for at in begins], 80 * MB), *chatter("b", "a", total=MB)]
    for src, dst in ("cd", "dc", "ef", "fe"):
        for at in every(100, count=200):
            rows += burst(src, dst, at, length=5, size=round(8 * MB * draw.uniform(1 - apart, 1 + apart)), parts=parts)
    table = flows(rows)
    rhythms = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g"))
    found = group_periods(table, rhythms, DEFAULT, of_few=True)
    assert found["period_ns"].item() / MS == pytest.approx(period, rel=0.01)


@pytest.mark.parametrize(("messages_each", "shown"), [(2.0, True), (1.85, True), (1.6, False), (0.95, True)])
def test_of_a_few_nics_messages_of_one_size_tell_the_period_if_as_many_come_each_time(
    messages_each: float, shown: bool
) -> None:
    """Now and then some are lost; of gradients that mostly merge with others the rest seems to have any period."""
    begins = every(1000, count=20)
    gradients = messages("a", "b", [at + later for at in begins for later in (850, 870)], 80 * MB)
    table = flows(gradients, *(chatter(src, dst, total=800 * MB, count=200) for src, dst in ("ab", "ba", "cd", "dc")))
    rhythms = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g"))
    some = pl.when(pl.col("size_class") >= 0).then((messages_each * pl.col("bursts")).cast(pl.Int64))
    found = group_periods(table, rhythms.with_columns(flows=some.otherwise("flows")), DEFAULT, of_few=True)
    assert found.is_empty() != shown


def test_two_replicas_beside_a_ring_are_no_line_of_stages() -> None:
    """Gradients go both ways between two, and around one way between four."""
    begins = every(1000, count=20)
    pairs = [ring(pair, begins, parts=1) for pair in ("ab", "cd", "ef", "gh")]
    streams = stream_rhythms(flows(*pairs, ring("ijkl", begins, parts=1)), DEFAULT).with_columns(group=pl.lit("g"))
    assert job_steps._pipeline_only_groups(streams, DEFAULT).is_empty()
    line = [pipeline("a", "b", begins, spread=900, count=8), pipeline("b", "c", begins, spread=900, count=8)]
    streams = stream_rhythms(flows(*line), DEFAULT).with_columns(group=pl.lit("g"))
    assert job_steps._pipeline_only_groups(streams, DEFAULT)["group"].to_list() == ["g"]


@pytest.mark.parametrize("pause", [100, 300, 600])
def test_a_pipeline_that_turns_once_between_pauses_of_any_length_shows_steps(pause: float) -> None:
    """Steps of two stages and two replicas take 415 ms; after every sixth of them a checkpoint is saved."""
    begins = [415 * step + pause * (step // 6) for step in range(60)]
    links = [stages(nics, begins) for nics in ("ac", "bd")]
    gradients = [ring(nics, [begin + 305 for begin in begins], length=40, size=16 * MB) for nics in ("ab", "cd")]
    assert steps(flows(*links, *gradients))["step"].n_unique() == 60


@pytest.mark.parametrize(("replicas", "found"), [(["ef"], [415 * MS]), (["ef", "gh"], [])], ids=["most", "half"])
def test_links_tell_how_long_a_step_is_if_most_nics_turn(replicas: list[str], found: list[float]) -> None:
    begins = every(415, count=20)
    table = flows(*(stages(nics, begins) for nics in ("ac", "bd")), *(ring(nics, begins) for nics in replicas))
    streams = stream_rhythms(table, DEFAULT).with_columns(group=pl.lit("g"))
    assert job_steps._turn_periods(streams, DEFAULT)["period_ns"].to_list() == pytest.approx(found)


@pytest.mark.parametrize("until", [600, 800, 1000, 1500])
def test_a_pipeline_that_is_still_full_has_shown_no_step(until: float) -> None:
    """Over its first links more has gone than has come back, by up to a half."""
    rows = [row for row in stages("abcdefgh", [0], micro_batches=64) if row[0] < until]
    assert ends_ms(steps(flows(rows))) == []


@pytest.mark.parametrize(("until", "emptied"), [(800, 0), (10_000, 1)])
def test_a_pipeline_that_is_still_full_was_not_seen_empty(until: float, emptied: int) -> None:
    rows = [row for row in stages("abcdefgh", [0], micro_batches=64) if row[0] < until]
    streams = stream_rhythms(flows(rows), DEFAULT).with_columns(group=pl.lit("g"))
    assert job_steps._pipeline_only_groups(streams, DEFAULT).height == 1
    assert job_steps._pipeline_only_groups(streams, DEFAULT, emptied=True).height == emptied
