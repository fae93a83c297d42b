"""The pairs of a group tell its period together, and which of them keep it."""

from __future__ import annotations

import random
from collections.abc import Iterable

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, burst, chatter, every, flows, messages, pipeline, ring, settings

from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.group_period import group_periods, in_period
from llmprism_tasks.stages.step_division.periodicity import AT_PORTIONS, AT_TURNS, WHOLE_PAIR, stream_rhythms

DEFAULT = settings().rhythm
NICS = [f"n{i:02}" for i in range(20)]


def tuned(**values: float) -> RhythmSettings:
    return settings("rhythm", **values).rhythm


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
