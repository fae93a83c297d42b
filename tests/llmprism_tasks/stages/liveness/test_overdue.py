"""A job is overdue when it is silent in the middle of a step for longer than ever, and a step more."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, burst, every, flows, messages, pipeline, ring, settings, topology, visible

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.stages.liveness.overdue import Silence, long_silences
from llmprism_tasks.stages.liveness.progress.step_progress import StepProgress, step_progress_at
from llmprism_tasks.stages.traffic import nic_pairs
from llmprism_tasks.stages.traffic.index import TrafficIndex

NICS = "abcd"
HOSTS = topology({f"host-{addr}": [addr] for addr in "abcdef"})
STEP = 2000
STEPS = 18
LAST = STEP * STEPS
"""When the step after the last whole one begins to send, in ms."""
NEXT = WINDOW.shifted(1)


def whole(count: int = STEPS, step: float = STEP) -> list[Row]:
    return ring(NICS, every(step, count=count))


def begun(share: float, at: float = LAST, nics: Sequence[str] = NICS) -> list[Row]:
    """Return that share of a step's burst, from each of these NICs to the next of the ring."""
    following = dict(pairwise([*NICS, NICS[0]]))
    size, length = round(80 * MB * share), 100 * share
    return [row for addr in nics for row in burst(addr, following[addr], at, size=size, length=length)]


def others(until: float, since: float = 0) -> list[Row]:
    """Return what shows that the collector sees: small records of somebody else, twice a second."""
    return [(at, at + 1, "x", "y", 100) for at in every(500, count=round((until - since) / 500), start=since)]


def inside(table: pl.DataFrame, nics: str = NICS) -> pl.DataFrame:
    members = pl.DataFrame({"addr": list(nics), "job_id": "j"})
    return nic_pairs.named(nic_pairs.bulk(nic_pairs.inside_jobs(table, members), settings().traffic))


def overdue(table: pl.DataFrame, traffic: TrafficIndex, window: Window = WINDOW) -> list[Silence]:
    """Return the silences that no job ends by itself: in the middle of a step, or of replaced members."""
    silences = long_silences(table, traffic, HOSTS, window, settings())
    return [silence for silence in silences if silence.in_mid_step or silence.replaced]


def found(*parts: list[Row], window: Window = WINDOW, nics: str = NICS) -> list[Silence]:
    table = visible(flows(*parts), window)
    return overdue(inside(table, nics), TrafficIndex.of(table, settings().traffic), window)


def long_in(*parts: list[Row], window: Window = WINDOW) -> list[Silence]:
    table = visible(flows(*parts), window)
    return long_silences(inside(table), TrafficIndex.of(table, settings().traffic), HOSTS, window, settings())


def rests(*parts: list[Row], window: Window = WINDOW) -> list[Silence]:
    """Return the silences that are no hang."""
    return [silence for silence in long_in(*parts, window=window) if not silence.in_mid_step]


def stood(*parts: list[Row]) -> StepProgress | None:
    """Return where a job stood in the middle of a step, if it did."""
    bulk = inside(flows(*parts))
    where = step_progress_at(bulk, int(bulk["flow_end_ns"].max()), settings())  # type: ignore[arg-type]
    return where if where is not None and where.midway else None


def ms(time_ns: int) -> float:
    return (time_ns - WINDOW.start_ns) / MS


def test_a_job_that_stops_in_the_middle_of_a_step_is_overdue() -> None:
    (silence,) = found(whole(), begun(0.4), others(60_000))
    assert silence.gap.job_id == "j"
    assert ms(silence.gap.since_ns) == pytest.approx(LAST + 40)
    assert ms(silence.until_ns) == pytest.approx(59_500)
    assert (silence.over, silence.restarted, silence.alone) == (False, False, False)
    assert silence.where.period_ns == pytest.approx(STEP * MS, rel=0.01)
    assert silence.gap.longest_ns == pytest.approx((STEP - 100) * MS, rel=0.01)


@pytest.mark.parametrize("parts", [1, 250])
@pytest.mark.parametrize("over", [("b", "a"), ("a", "b")], ids=["apart", "where it trains"])
def test_a_copy_of_files_between_two_members_hides_no_silence(over: tuple[str, str], parts: int) -> None:
    """Though it begins before the silence, and is all that is seen besides, in one record or in many."""
    lasts = 25_000 / parts
    copy = [(at, at + 0.9 * lasts, *over, 2 * MB) for at in every(lasts, count=parts, start=LAST - 900)]
    train = whole() if over == ("b", "a") else [row for row in whole() if row[0] < LAST - 1000]
    (silence,) = found(train, begun(0.4), copy)
    assert ms(silence.gap.since_ns) == pytest.approx(LAST + 40, abs=100)
    assert not silence.alone


@pytest.mark.parametrize(("size", "silent"), [(100_000, 1), (8 * MB, 0)])
def test_logs_and_heartbeats_of_its_members_hide_no_silence(size: int, silent: int) -> None:
    """What every pair moves each second in that time is a tenth in the second case, and the job trains slowly."""
    every_pair = [row for at in every(1000, count=20, start=LAST + 1000) for row in ring(NICS, [at], size=size)]
    assert len(found(whole(), begun(0.5), others(60_000), every_pair)) == silent


def test_a_copy_in_one_record_that_begins_early_in_the_silence_hides_none() -> None:
    copy = [(LAST + 1000, LAST + 25_000, "b", "a", 200 * MB)]
    (silence,) = found(whole(), begun(0.4), copy, others(60_000))
    assert ms(silence.gap.since_ns) == pytest.approx(LAST + 40, abs=100)


def test_a_ring_of_which_two_pairs_go_on_is_not_silent() -> None:
    """One of four may be foreign."""
    copy = [(at, at + 90, src, dst, 2 * MB) for src, dst in ("ab", "bc") for at in every(100, count=250, start=LAST)]
    assert found(whole(), begun(0.4), copy, others(60_000)) == []


def test_it_is_in_each_window_that_its_silence_touches_and_the_look_back_shows() -> None:
    parts = (whole(), begun(0.4), others(480_000))
    assert [len(found(*parts, window=WINDOW.shifted(i))) for i in range(8)] == [1, 1, 1, 1, 1, 1, 0, 0]
    came_back = (*parts, begun(0.6, at=70_000), ring(NICS, every(STEP, count=20, start=72_000)))
    assert [len(found(*came_back, window=WINDOW.shifted(i))) for i in range(4)] == [1, 1, 0, 0]


@pytest.mark.parametrize("window", [WINDOW, NEXT])
def test_who_ends_with_a_whole_step_is_not_overdue(window: Window) -> None:
    assert found(whole(), others(120_000), window=window) == []


def test_a_silence_after_a_whole_step_is_news_in_the_window_that_first_knows() -> None:
    (silence,) = rests(whole(), others(120_000))
    assert (silence.over, silence.alone, silence.is_news) == (False, False, True)
    assert [silence.is_news for silence in rests(whole(), others(120_000), window=NEXT)] == [False]
    late = ring(NICS, every(STEP, count=88, start=-120_000))
    assert rests(late, others(120_000)) == []
    assert [silence.is_news for silence in rests(late, others(120_000), window=NEXT)] == [True]


def test_a_pause_after_a_whole_step_is_news_when_it_is_over() -> None:
    back = ring(NICS, every(STEP, count=10, start=LAST + 14_000))
    (silence,) = rests(whole(), back, others(120_000))
    assert (silence.over, silence.restarted, silence.is_news) == (True, False, True)
    assert rests(whole(), ring(NICS, every(STEP, count=10, start=LAST + 5_500)), others(120_000)) == []


@pytest.mark.parametrize("until", [45_000, 59_000])
@pytest.mark.parametrize(("count", "news"), [(6, False), (8, True)])
def test_a_silence_is_news_of_a_job_that_was_seen_for_longer_than_makes_it_overdue(
    count: int, until: int, news: bool
) -> None:
    """Twelve seconds are overdue; how much longer it has been silent when the window ends says no more."""
    assert [silence.is_news for silence in rests(whole(count), others(until))] == [news]


def test_what_follows_each_step_may_follow_the_last() -> None:
    """Parameters are gathered after the gradients are summed up."""
    gathers = ring(NICS, [at + 600 for at in every(STEP, count=STEPS)], size=16 * MB)
    assert stood(whole(), gathers) is None


@pytest.mark.parametrize(("share", "ended"), [(1.0, True), (0.97, True), (0.5, False)])
def test_what_follows_is_what_each_nic_sent_in_one_of_the_steps(share: float, ended: bool) -> None:
    """Half of the longest silence lies before the gathering, give or take: so half of the steps pause there already."""
    begins = [at + (680 if at % (2 * STEP) else 720) for at in every(STEP, count=STEPS)]
    gathers = ring(NICS, begins[:-1], size=4 * MB)
    last = ring(NICS, begins[-1:], size=4 * MB)
    cut = [(*row[:4], round(row[4] * (1 if row[2] in "ab" else share))) for row in last]
    assert (stood(whole(), gathers, cut) is None) == ended


def test_the_first_micro_batches_of_a_step_have_begun_it() -> None:
    pipes = pipeline("a", "c", [at - 1400 for at in every(STEP, count=STEPS)[1:]], spread=1200, count=8)
    assert stood(whole(), pipes) is None
    assert stood(whole(), pipes, pipeline("a", "c", [LAST - 1400], spread=300, count=2)) is not None


@pytest.mark.parametrize(("share", "is_whole"), [(0.89, False), (0.92, True)])
def test_a_step_that_lacks_a_tenth_is_not_whole(share: float, is_whole: bool) -> None:
    assert (stood(whole(), begun(share)) is None) == is_whole


@pytest.mark.parametrize(
    ("usual", "share", "is_whole"), [(1.0, 0.97, True), (1.0, 0.95, False), (0.97, 0.92, False), (0.95, 0.9, True)]
)
def test_where_all_have_always_sent_alike_who_lacks_a_part_has_stopped(
    usual: float, share: float, is_whole: bool
) -> None:
    """A NIC of the ring lacks half of what it or its neighbour did not send, and a fiftieth is nothing.

    Where one of them lacked more in a step before, records are lost, or steps are not cut at one moment.
    """
    steps = [row for row in whole() if not STEP * 5 <= row[0] < STEP * 6]
    worst = [*begun(1.0, at=STEP * 5, nics="abc"), *begun(usual, at=STEP * 5, nics="d")]
    last = [*begun(1.0, nics="abc"), *begun(share, nics="d")]
    assert (stood(steps, worst, last) is None) == is_whole


def test_steps_of_which_records_are_lost_are_compared_with_the_worst_of_them() -> None:
    worst = begun(0.8, at=STEP * 5)
    steps = [row for row in whole() if not STEP * 5 <= row[0] < STEP * 6]
    assert stood(steps, worst, begun(0.85)) is None
    assert stood(steps, worst, begun(0.75)) is not None


def test_one_nic_without_its_part_leaves_a_step_unfinished() -> None:
    assert stood(whole(), begun(1.0, nics="abc")) is not None


@pytest.mark.parametrize(("count", "stands"), [(9, True), (20, False)])
def test_another_period_one_window_before_tells_only_if_it_was_seen_for_some_steps(count: int, stands: bool) -> None:
    """Steps of half a second, for a while before those of two seconds began."""
    before = ring(NICS, every(500, count=count, start=-500 * count))
    assert (stood(before, whole(31), begun(0.4, at=62_000)) is not None) is stands


def test_more_than_a_step_is_no_part_of_one() -> None:
    """A whole model gathered at the end: one NIC sends as much as in three steps."""
    assert stood(whole(), burst("a", "b", LAST, size=240 * MB)) is None
    assert stood(whole(), burst("a", "c", LAST, size=10 * MB)) is None


@pytest.mark.parametrize(("steps", "told"), [(5, False), (7, True)])
def test_a_job_must_have_shown_some_steps(steps: int, told: bool) -> None:
    assert (stood(whole(steps), begun(0.4, at=STEP * steps)) is not None) == told


def test_a_few_long_steps_are_enough() -> None:
    assert stood(whole(3, step=80_000), begun(0.4, at=240_000)) is not None


def test_who_stopped_was_due_before_the_others() -> None:
    """All others send half of their burst, 50 ms; `b` has stopped at once."""
    where = stood(whole(), begun(0.5, nics="acd"))
    assert where is not None
    late = dict(where.next_sends.select("addr", (where.silent_ns - pl.col("due_ns")) / MS).rows())
    assert late["b"] == pytest.approx(50, abs=1)
    assert all(late[addr] == pytest.approx(0, abs=2) for addr in "acd")


@pytest.mark.parametrize(("silent", "overdue_"), [(11_500, False), (12_500, True)])
def test_a_silence_is_news_from_ten_seconds_more_than_ever(silent: float, overdue_: bool) -> None:
    """It was silent for 1.9 s before each step, and now `b` has not begun."""
    parts = (whole(), begun(0.4, nics="acd"), others(LAST + 40 + silent + 501))
    assert bool(found(*parts, begun(0.6, at=LAST + 40 + silent))) == overdue_


@pytest.mark.parametrize(("silent", "told"), [(7500, False), (8500, True)])
def test_a_pause_of_all_in_mid_step_is_known_once_it_may_be_taken_for_a_restart(silent: float, told: bool) -> None:
    """All had come equally far, and go on together."""
    parts = (whole(), begun(0.4), others(LAST + 40 + silent + 501))
    silences = found(*parts, begun(0.6, at=LAST + 40 + silent))
    assert [(one.over, one.where.even) for one in silences] == [(True, True)] * told


@pytest.mark.parametrize(("silent", "overdue_"), [(97_000, False), (103_000, True)])
def test_a_job_of_long_steps_is_overdue_after_a_quarter_more(silent: float, overdue_: bool) -> None:
    """Steps of 80 s, silent for all of it but 100 ms. Now `b` has not begun."""
    parts = (whole(3, step=80_000), begun(0.4, at=240_000, nics="acd"), others(480_000))
    back = begun(0.6, at=240_040 + silent)
    assert bool(found(*parts, back, window=WINDOW.shifted(5))) == overdue_


@pytest.mark.parametrize(("hops", "told"), [(["ab", "bc"], 0), (["ab", "bc", "cd"], 1)])
def test_copies_from_one_to_the_next_have_no_silence(hops: Sequence[str], told: int) -> None:
    """Of four in a line, half send as well as receive: a pipeline may be seen one way only."""
    copies = [row for src, dst in hops for at in every(STEP, count=STEPS) for row in burst(src, dst, at)]
    assert len(long_in(copies, others(60_000))) == told


@pytest.mark.parametrize(
    ("first", "late", "told"), [(0.2, 0.1, True), (0.4, 0.1, False), (0.35, 0.1, False), (0.2, 0.0, False)]
)
def test_a_pause_at_another_place_for_which_one_host_had_stopped_is_no_habit(
    first: float, late: float, told: bool
) -> None:
    """A rank is frozen for 25 s, and for 30 s 40 s later; steps send for three fifths of their time.

    Who has sent less when all stand still was frozen; if nobody has, the job pauses by choice.
    """
    lasts = 0.6 * STEP

    def steps(count: int, start: float) -> list[Row]:
        return ring(NICS, every(STEP, count=count, start=start), length=lasts)

    def cut(share: float, at: float, pause: float) -> list[Row]:
        following = dict(pairwise([*NICS, NICS[0]]))
        return [
            row
            for addr in NICS
            for done in [share - (late if addr == "c" else 0.0)]
            for since, until, start in ((0.0, done, at), (done, 1.0, at + share * STEP + pause))
            for row in burst(
                *(addr, following[addr], start), size=round(80 * MB * (until - since)), length=lasts * (until - since)
            )
        ]

    frozen, again = 20 * STEP, 20 * STEP + STEP + 25_000 + 20 * STEP
    rows = [*steps(20, 0), *cut(first, frozen, 25_000), *steps(20, frozen + STEP + 25_000), *cut(0.4, again, 30_000)]
    rows += steps(20, again + STEP + 30_000)
    window = WINDOW.shifted(int(again + 30_000) // 60_000)
    silences = [silence for silence in found(rows, others(240_000), window=window) if silence.is_news]
    assert bool(silences) == told


def test_pauses_it_has_made_before_are_its_own() -> None:
    paused = [*whole(12), *ring(NICS, every(STEP, count=6, start=STEP * 11 + 15_000))]
    at = STEP * 11 + 15_000 + STEP * 6
    assert found(paused, begun(0.4, at=at), others(at + 24_000)) == []
    assert len(found(paused, begun(0.4, at=at), others(at + 30_000), window=NEXT)) == 1


@pytest.mark.parametrize(
    ("silent", "again", "told"),
    [(11_000, "abce", True), (9000, "abce", False), (11_000, "abcd", False), (30_000, "abcd", True)],
)
def test_a_pause_in_which_a_host_was_replaced_is_not_the_jobs_own(silent: float, again: str, told: bool) -> None:
    """Though it has paused for 15 s before."""
    at = STEP * 11 + 15_000
    paused = [*whole(12), *ring(NICS, every(STEP, count=6, start=at))]
    last = at + STEP * 6
    back = ring(again, every(STEP, count=5, start=last + silent))
    silences = found(paused, begun(0.4, at=last), back, others(180_000), nics=again, window=NEXT)
    assert [set(silence.replaced) for silence in silences] == ([{"d"} & {*"abcd"} - {*again}] if told else [])


@pytest.mark.parametrize(("to", "overdue_"), [("storage", False), ("a", True)])
def test_who_waits_for_a_checkpoint_is_not_overdue(to: str, overdue_: bool) -> None:
    saving = messages("b", to, [LAST + 500], 40 * MB) if to == "storage" else []
    assert bool(found(whole(), begun(0.4), saving, others(60_000))) == overdue_


def test_when_nobody_is_seen_any_more_it_says_so() -> None:
    (silence,) = found(whole(), begun(0.4), others(LAST - 2 * STEP))
    assert silence.alone
    assert silence.until_ns == WINDOW.end_ns


def test_a_member_that_writes_all_the_time_shows_that_the_collector_is_at_work() -> None:
    """One record lasts from before the silence until 10 s into it; nothing else is seen."""
    back = ring(NICS, every(STEP, count=10, start=LAST + 14_000))
    writing = [(LAST - 10.0, LAST + 10_000.0, "b", "storage", 40 * MB)]
    assert [silence.alone for silence in rests(whole(), back, writing)] == [False]
    assert [silence.alone for silence in rests(whole(), back)] == [True]


def test_when_everybody_comes_back_together_the_collector_may_have_been_silent() -> None:
    seen_before, seen_after = others(LAST - 2 * STEP), [(56_000.0, 56_001.0, "x", "y", 100)]
    (silence,) = found(whole(), begun(0.4), begun(0.6, at=55_000), seen_before, seen_after)
    assert (silence.over, silence.alone) == (True, True)
    (silence,) = found(whole(), begun(0.4), begun(0.6, at=55_000), others(60_000))
    assert not silence.alone


def test_who_comes_back_where_it_stood_is_known_to_have_stood_still_once_its_step_is_over() -> None:
    """Its bursts follow each other all the time, so a collector would hardly be back at the same place by chance."""
    bursts = [(at, (8 + at / 200) * MB) for at in every(200, count=10)]
    train = [
        row for at, size in bursts for row in ring(NICS, every(STEP, count=90, start=at), length=180, size=round(size))
    ]
    at, lasts = 42_500, 17_000
    stood_still = [row if row[0] < at else (row[0] + lasts, row[1] + lasts, *row[2:]) for row in train]
    (then,), (now,), later = (long_in(stood_still, window=WINDOW.shifted(i)) for i in range(3))
    assert (then.alone, then.unwitnessed, then.in_place) == (True, True, 0)
    assert (now.alone, now.unwitnessed) == (True, False)
    assert (now.until_ns, later) == (then.until_ns, [])
    lost = [row for row in train if not at <= row[0] < at + lasts + 0.4 * STEP]
    assert [silence.unwitnessed for silence in long_in(lost, window=NEXT)] == [True]


@pytest.mark.parametrize(
    ("until", "back", "told"),
    [
        (60_000, 120_000, False),  # as if a minute's records had not come
        (55_000, 125_000, False),
        (50_000, 125_000, True),  # for longer than that minute
        (60_000, 119_000, True),  # a record is of that minute
    ],
)
def test_a_minute_of_which_there_is_not_one_record_is_no_silence(until: float, back: float, told: bool) -> None:
    """More of it than ever, and ten seconds, must be in minutes with records, or not all of one."""
    before, after = (ring(NICS, every(STEP, count=15, start=start)) for start in (until - 15 * STEP - 1000, back))
    window = WINDOW.shifted(int(back // 60_000))
    assert bool(found(before, begun(0.4, at=until - 1000), after, window=window)) == told


def test_a_job_that_goes_on_has_not_begun_anew() -> None:
    (silence,) = found(whole(), begun(0.4), begun(0.6, at=55_000), others(60_000))
    assert (silence.over, silence.restarted) == (True, False)
    assert ms(silence.until_ns) == 55_000


def test_weights_from_replica_to_replica_begin_a_job_anew() -> None:
    for weights in (burst("a", "c", 55_000, size=400 * MB), burst("a", "b", 55_000, size=400 * MB)):
        (silence,) = found(whole(), begun(0.4), weights, others(60_000))
        assert (silence.over, silence.restarted) == (True, True)


@pytest.mark.parametrize(("read", "restarted"), [(9, False), (11, True)])
def test_a_checkpoint_that_is_read_begins_a_job_anew(read: float, restarted: bool) -> None:
    """From 10 MB on; what is usual is not counted."""
    samples = [row for at in every(STEP, count=STEPS) for row in messages("storage", "a", [at + 900], MB)]
    loaded = messages("storage", "a", [LAST + 9000], round((read + 8) * MB))
    (silence,) = found(whole(), begun(0.4), samples, loaded, begun(0.6, at=55_000), others(60_000))
    assert silence.restarted == restarted


@pytest.mark.parametrize(("written", "restarted"), [(18, True), (20, False)])
def test_who_writes_more_than_is_read_saves_and_loads_nothing(written: int, restarted: bool) -> None:
    """Storage acknowledges what is written: here 19 MB."""
    acknowledged = messages("storage", "a", [LAST + 9000], 19 * MB)
    saved = messages("a", "storage", [LAST + 9000], written * MB)
    (silence,) = found(whole(), begun(0.4), acknowledged, saved, begun(0.6, at=55_000), others(60_000))
    assert silence.restarted == restarted


def test_who_others_take_the_place_of_is_known_when_a_job_begins_anew() -> None:
    again = ring("abce", [55_000, 57_000])
    (silence,) = found(whole(), begun(0.4), again, others(60_000), nics="abce")
    assert silence.restarted
    assert (dict(silence.replaced), silence.replacements) == ({"d": "host-d"}, ("e",))


@pytest.mark.parametrize(
    ("again", "nics"),
    [
        (ring("abcd", [55_000, 57_000]), "abcd"),
        (ring("abc", [55_000, 57_000]), "abc"),
        (ring("abcef", [55_000, 57_000]), "abcef"),
        (ring("abce", [55_000, 57_000]) + messages("d", "a", [56_000], MB), "abce"),
    ],
    ids=["as before", "one fewer", "one more", "who left still sends"],
)
def test_who_just_leaves_or_joins_is_not_replaced(again: list[Row], nics: str) -> None:
    (silence,) = found(whole(), begun(0.4), again, others(60_000), nics=nics)
    assert not silence.replaced


@pytest.mark.parametrize(
    ("until", "still", "back"),
    [(LAST - STEP - 600, 1, 1), (LAST, 0, 0), (LAST + STEP, 0, 0), (LAST + STEP + 1100, 0, 1)],
)
def test_where_all_others_fall_silent_too_it_is_the_collector(until: float, still: int, back: int) -> None:
    """Within a step: who was silent before, or goes on for longer, tells that it was not."""
    assert len(found(whole(), begun(0.4), others(until))) == still
    assert len(found(whole(), begun(0.4), others(until), ring(NICS, [57_000, 59_000]))) == back


@pytest.mark.parametrize(("later", "told"), [(STEP + 600, True), (STEP + 500, False)])  # 540 ms of it before
def test_where_all_others_come_back_within_a_step_before_it_was_the_collector(later: float, told: bool) -> None:
    """For a job may have nothing to send for as long as a step."""
    back = 55_000
    parts = (whole(), begun(0.4), others(LAST), others(60_000, since=back - later), ring(NICS, [back, back + STEP]))
    assert bool(found(*parts)) == told


@pytest.mark.parametrize(("again", "told"), [("abce", True), ("abcd", False), ("abc", False)])
def test_who_comes_back_with_another_was_stopped_even_after_a_whole_step(again: str, told: bool) -> None:
    """Which is known for sure in the window after, if it comes back at the end of one."""
    back = ring(again, [55_000, 57_000, 59_000, 61_000, 63_000])
    parts, nics = (whole(), back, others(240_000)), "".join(sorted({*"abc", *again}))
    silences = [found(*parts, nics=nics, window=WINDOW.shifted(i)) for i in range(3)]
    assert [len(found_in) for found_in in silences] == ([1, 1, 0] if told else [0, 0, 0])
    for (silence,) in filter(None, silences):
        assert (silence.restarted, silence.where.midway, silence.where.even) == (True, False, True)
        assert dict(silence.replaced) == {"d": "host-d"}


@pytest.mark.parametrize(("later", "replaced"), [(0.95, True), (1.05, False)])
def test_who_is_replaced_may_have_sent_a_little_longer_than_the_others(later: float, replaced: bool) -> None:
    since = LAST - STEP + 100
    last = messages("d", "a", [since + later * STEP], 20 * MB)
    found_in = found(whole(), last, ring("abce", [55_000, 57_000]), others(60_000), nics="abce")
    assert bool(found_in) == replaced


def test_rows_in_any_order_tell_the_same() -> None:
    table = flows(whole(), begun(0.4), others(60_000))
    mixed = table.sample(fraction=1, shuffle=True, seed=3)
    indexes = (TrafficIndex.of(part, settings().traffic) for part in (table, mixed))
    one, two = (overdue(inside(index.table), index) for index in indexes)
    assert [vars(s) | {"where": s.where.next_sends.rows()} for s in one] == [
        vars(s) | {"where": s.where.next_sends.rows()} for s in two
    ]


@pytest.mark.parametrize(("share", "even"), [(1.0, True), (0.9, False)])
def test_where_other_steps_pause_all_have_come_equally_far(share: float, even: bool) -> None:
    """Parameters are gathered at once when the optimizer, 50 ms after the gradients, has done with them."""
    gathers = ring(NICS, [at + 150 for at in every(STEP, count=STEPS)], size=40 * MB, length=50)
    last = [*begun(1.0, nics="ab"), *begun(share, nics="cd")]
    where = stood(whole(), gathers, last)
    assert where is not None
    assert where.even == even


@pytest.mark.parametrize(("less", "even"), [(0.015, True), (0.025, False)])
def test_all_have_come_equally_far_within_two_percent(less: float, even: bool) -> None:
    where = stood(whole(), begun(0.5, nics="abc"), begun(0.5 - less, nics="d"))
    assert where is not None
    assert where.even == even


@pytest.mark.parametrize(("pause", "even"), [(130, True), (STEP, False)])
def test_a_copy_of_files_is_due_at_no_time(pause: float, even: bool) -> None:
    """It is over before the job stands still. What comes once in each step is the job's own, and due."""
    moments = [at + 300 for at in every(pause, start=10_000, count=round((LAST - 10_400) / pause))]
    copy = [row for at in moments for row in burst("a", "c", at, size=3 * MB, length=40)]
    where = stood(whole(), begun(0.5), copy)
    assert where is not None
    assert where.even == even


@pytest.mark.parametrize(("until", "in_mid_step"), [(LAST - 500, True), (LAST + 3000, False)])
def test_a_checkpoint_explains_the_silence_in_which_it_is_written(until: float, in_mid_step: bool) -> None:
    """One that was over when the job went on to train does not."""
    saving = [(LAST - 1500.0, until, "b", "storage", 40 * MB)]
    told = long_in(whole(), begun(0.4), saving, others(60_000))
    assert [silence.in_mid_step for silence in told] == [in_mid_step]


@pytest.mark.parametrize(("to", "told"), [("storage", [False]), ("a", [])])
def test_a_checkpoint_shorter_than_an_earlier_silence_is_told_of(to: str, told: list[bool]) -> None:
    """The job stood still for 14 s before: 11 s are no surprise then, unless a checkpoint is written in them."""
    begins = [*every(STEP, count=18, start=-50_000), *every(STEP, count=9), *every(STEP, count=8, start=29_000)]
    saving = messages("b", "storage", [17_500], 40 * MB) if to == "storage" else []
    silences = long_in(ring(NICS, begins), saving, others(60_000, since=-60_000))
    assert [silence.gap.is_longest for silence in silences if silence.gap.since_ns > WINDOW.start_ns] == told
