"""One slow step is told in its own window with what it was; schedules, noise and errors of division are not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, flows, settings
from job_evidence import as_texts, coded, groups, history, kinds, with_flows, working
from network_evidence import both, job, ring

from llmprism_tasks.numerics.robust import EVEN_ODDS, SURE
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, PAUSES_SCHEMA, STORAGE_SCHEMA, Evidence, shares
from llmprism_tasks.stages.diagnosis.pauses import one_step
from llmprism_tasks.stages.liveness.quiet_times import quiet_times
from llmprism_tasks.stages.traffic.index import TrafficIndex

USUAL = 4000.0
WELL = [USUAL, USUAL + 20, USUAL - 20] * 8
RING = {"a": "b", "b": "c", "c": "d", "d": "a"}
NOTHING = pl.DataFrame(schema=FINDING_SCHEMA)


def evidence(lengths: Sequence[float], current: int, *, moving: Sequence[int] = (), scale: float = 1.0) -> Evidence:
    """Return a job whose ring reduces in the last 400 ms of each step.

    Parameters
    ----------
    moving : steps whose ring takes all the time that they are longer than usual
    scale : bytes of the steps that are longer than usual, over the usual bytes
    """
    steps = history(lengths, current=current)
    rows = []
    for at, (start_ns, end_ns) in enumerate(steps.select("start_ns", "end_ns").iter_rows()):
        start, end = ((ns - WINDOW.start_ns) / MS for ns in (start_ns, end_ns))
        takes = 400 + max(end - start - USUAL, 0) * (at in moving)
        size = round(8 * MB * (scale if end - start > 1.2 * USUAL else 1))
        rows += [(end - takes, end - 1, src, dst, size) for src, dst in RING.items()]
    well = working([{addr: [500.0] * 3 for addr in RING}])
    flows = kinds(dp=rows)
    pauses = quiet_times(flows).filter(pl.col("back_ns") - pl.col("since_ns") >= 1000 * MS)
    return dataclasses.replace(
        well, flows=flows, history=steps, steps=of_members(steps, RING), groups=groups(RING), pauses=pauses
    )


def of_members(history: pl.DataFrame, addrs: Iterable[str]) -> pl.DataFrame:
    """Return the steps of members that all end with their job's."""
    return history.join(pl.DataFrame({"addr": [*addrs]}), how="cross")


def told(job: Evidence, found: pl.DataFrame = NOTHING, **changed: Any) -> list[dict[str, Any]]:
    return one_step.find(found, job, settings("diagnosis", **changed)).to_dicts()


def test_a_whole_job_that_stands_still_in_one_step_is_told_with_what_it_costs() -> None:
    (row,) = told(evidence([*WELL, 14_000, *WELL[:5]], current=6))
    assert (row["kind"], row["subject_type"], row["subject"], row["steps"]) == ("cross_step", "job", "j", 1)
    assert row["lost_s"] == pytest.approx(10, rel=0.01)
    assert row["end_ns"] - row["start_ns"] == 14_000 * MS
    assert row["severity"] == pytest.approx(10 / (6 * 4), rel=0.01)
    assert "One step took 14.0 s instead of 4.0 s, while its training stood still" in row["explanation"]


@pytest.mark.parametrize(
    ("before", "moving", "odds"),
    [(WELL, (), EVEN_ODDS), ([*WELL[:12], 6_000, *WELL[:11]], (), None), (WELL, (24,), None)],
    ids=["the first pause", "it has paused before", "no pause"],
)
def test_the_first_pause_of_a_whole_job_may_be_its_habit(
    before: Sequence[float], moving: Sequence[int], odds: float | None
) -> None:
    """Nothing is written in it, and nobody was first to stop."""
    (row,) = told(evidence([*before, 14_000, *WELL[:5]], current=6, moving=moving))
    assert (row["kind"], row["subject_type"], row["confidence"]) == ("cross_step", "job", odds)
    assert ("It was not seen to pause before" in row["explanation"]) == (odds is not None)


@pytest.mark.parametrize(("windows", "rows", "odds"), [(5, 0, EVEN_ODDS), (0, 1, None)], ids=["seen", "not seen"])
def test_the_first_steps_of_a_run_that_was_seen_to_begin_are_no_news_and_no_habit(
    windows: int, rows: int, odds: float | None
) -> None:
    """Where the look-back is shorter than the run, its first steps are as good as any."""
    every = settings("window", lookback_windows=windows)
    warm_up = [14_000, 9_000, *WELL[:10]]
    assert len(one_step.find(NOTHING, evidence(warm_up, current=11), every)) == rows
    (row,) = one_step.find(NOTHING, evidence([*warm_up, 30_000, *WELL[:5]], current=6), every).to_dicts()
    assert row["confidence"] == odds


@pytest.mark.parametrize(("src", "dst"), [("a", "c"), ("a", "b")], ids=["apart", "where it trains"])
def test_a_copy_of_files_between_two_members_neither_hides_nor_ends_the_silence(src: str, dst: str) -> None:
    job = evidence([*WELL, 14_000, *WELL[:5]], current=6)
    start_ms = (job.history["start_ns"][24] - WINDOW.start_ns) / MS
    copy = [(start_ms + 100 * at, start_ms + 100 * at + 90, src, dst, 2 * MB) for at in range(130)]
    (row,) = told(with_flows(job, kinds(other=copy)))
    assert "One step took 14.0 s instead of 4.0 s, while its training stood still" in row["explanation"]


@pytest.mark.parametrize(("senders", "times", "rows"), [("ab", 4, 0), ("a", 4, 1), ("ab", 1, 1)])
def test_a_step_in_which_half_of_the_members_send_more_than_twice_as_much_is_an_evaluation(
    senders: str, times: int, rows: int
) -> None:
    """Its forward passes go through the pipelines; no trouble makes members send more."""
    lengths = [*WELL, 14_000, *WELL[:5]]
    job = evidence(lengths, current=6)
    forward = []
    for at, start_ns in enumerate(job.history["start_ns"]):
        start_ms = (start_ns - WINDOW.start_ns) / MS
        passes = 10 + 10 * times if lengths[at] > USUAL * 2 else 10
        forward += [
            (start_ms + 300 * i, start_ms + 300 * i + 50, src, dst, MB)
            for i in range(passes)
            for src, dst in ("ac", "bd")
            if i < 10 or src in senders
        ]
    assert len(told(with_flows(job, kinds(pp=forward)))) == rows


@pytest.mark.parametrize("chat", [False, True])
def test_who_stopped_first_in_a_long_step_is_a_candidate(chat: bool) -> None:
    """`b` and who sends to it have sent nothing into their ring, and the others have begun; members may chat."""
    job = evidence([*WELL, 14_000, *WELL[:5]], current=6)
    start_ms = (job.history["start_ns"][24] - WINDOW.start_ns) / MS
    begun = [(start_ms + 3600, start_ms + 3630, src, RING[src], MB) for src in "cd"]
    talk = [(start_ms + at, start_ms + at + 1, "a", "c", 20_000) for at in range(3800, 13_000, 400)] if chat else []
    job = with_flows(job, kinds(dp=begun))
    (row,) = told(with_flows(job, kinds(other=talk)) if chat else job)
    assert (row["kind"], row["subject_type"]) == ("cross_step", "job")
    assert "host-b" in row["candidates"]
    assert len(row["candidates"]) <= 2
    assert sum(row["odds"]) == pytest.approx(1)
    assert "All others waited for host host-b" in row["explanation"]


@pytest.mark.parametrize(("size", "named"), [(65_000, True), (66_000, False)])
def test_who_talks_less_than_a_message_at_a_time_may_have_stopped_to_train(size: int, named: bool) -> None:
    """Eight megabytes a step. What is no smaller than the smallest message may be a part of it."""
    job = evidence([*WELL, 14_000, *WELL[:5]], current=6)
    start_ms = (job.history["start_ns"][24] - WINDOW.start_ns) / MS
    begun = [(start_ms + 3600, start_ms + 3630, src, RING[src], MB) for src in "cd"]
    talk = [(start_ms + at, start_ms + at + 1, "c", "d", size) for at in range(4600, 13_000, 1600)]
    (row,) = told(with_flows(job, kinds(dp=[*begun, *talk])))
    assert bool(row["candidates"]) == named


@pytest.mark.parametrize(("later", "rows"), [("throughout", 0), ("at first", 1)])
def test_a_step_that_is_longer_in_all_its_parts_holds_longer_samples(later: str, rows: int) -> None:
    """Of eight buckets of gradients each leaves twice as late in the step, or all leave by the same time later."""
    job = evidence([*WELL, 2 * USUAL, *WELL[:5]], current=6)
    buckets = []
    for start_ns, end_ns in job.history.select("start_ns", "end_ns").iter_rows():
        start, length = (start_ns - WINDOW.start_ns) / MS, (end_ns - start_ns) / MS
        grows = length / USUAL if later == "throughout" else 1
        waits = 0 if later == "throughout" else length - USUAL
        begins = [start + waits + grows * 450 * bucket for bucket in range(1, 9)]
        buckets += [(at, at + 30, src, dst, 8 * MB) for at in begins for src, dst in RING.items()]
    assert len(told(dataclasses.replace(job, flows=kinds(dp=buckets)))) == rows


def awaiting(
    rails: int, begun: str, at: float = 3600, after: Sequence[float] = WELL[:5], size: int = MB
) -> dict[str, Any]:
    """Return the row of a job one of whose steps takes ten seconds more, in which these hosts send a little ahead.

    Who comes to the exchange does: less than a hundredth of what its pair moves in a step.
    """
    rings = {f"{src}{rail}": f"{dst}{rail}" for src, dst in RING.items() for rail in range(rails)}
    steps = history([*WELL, 14_000, *after], current=1 + len(after))
    rows = []
    for number, (start_ns, end_ns) in enumerate(steps.select("start_ns", "end_ns").iter_rows()):
        start, end = ((ns - WINDOW.start_ns) / MS for ns in (start_ns, end_ns))
        rows += [(end - 400, end - 1, src, dst, 150 * MB) for src, dst in rings.items()]
        if number == len(WELL):
            rows += [(start + at, start + at + 1, src, dst, size) for src, dst in rings.items() if src[0] in begun]
    hosts = {addr: f"host-{addr[0]}" for addr in rings}
    well = working([{addr: [500.0] * 3 for addr in rings}], hosts=hosts)
    job = dataclasses.replace(well, history=steps, steps=of_members(steps, rings), groups=groups(rings))
    (row,) = told(dataclasses.replace(job, flows=kinds(dp=rows)))
    return row


@pytest.mark.parametrize(("size", "named"), [(65_000, False), (66_000, True)])
def test_the_first_part_of_a_large_exchange_shows_who_has_come(size: int, named: bool) -> None:
    """A two-thousandth of what its pair moves in a step is no chatter, if it is no smaller than a message."""
    assert (awaiting(2, "acd", size=size)["subject"] == "host-b") == named


PAUSED = {12: 4_000.0, 17: 4_100.0, 26: 3_950.0}


@pytest.mark.parametrize(
    ("paused", "begun", "named"),
    [
        (PAUSED, "acd", True),
        (PAUSED, "abcd", False),
        ({12: 4_000.0, 19: 4_000.0, 26: 4_000.0}, "acd", False),
        ({12: 4_000.0, 17: 6_000.0, 26: 9_000.0}, "acd", False),
        ({5: 4_000.0, 12: 4_500.0, 17: 6_000.0, 22: 5_200.0, 26: 4_000.0}, "acd", True),
    ],
    ids=["one host", "all", "on schedule", "two habits", "more than two habits"],
)
def test_pauses_of_one_host_at_no_fixed_distance_are_no_habit(
    paused: dict[int, float], begun: str, named: bool
) -> None:
    """In each of them all but one host have sent a little ahead; pauses of equal length are one work done again."""
    rows = awaited_in(paused, begun)
    assert [(row["kind"], row["subject"]) for row in rows] == ([("stalls", "host-b")] if named else [])


@pytest.mark.parametrize(
    ("paused", "odd", "kinds"),
    [
        (PAUSED, "b1", ["link_flap"]),
        (PAUSED, "", []),
        ({12: 4_000.0, 19: 4_000.0, 26: 4_000.0}, "b1", []),
        ({27: 4_000.0, 29: 6_000.0}, "b1", ["link_flap"]),
        ({26: 8_000.0, 27: 5_000.0, 29: 9_500.0}, "b1", ["link_flap"]),
        ({26: 8_000.0, 27: 5_000.0, 29: 9_500.0}, "", ["stalls"]),
    ],
    ids=["at no fixed distance", "all", "on schedule", "twice", "three in a window", "three of all"],
)
def test_pauses_in_which_one_nic_lacks_a_message_are_its_link_s(
    paused: dict[int, float], odd: str, kinds: list[str]
) -> None:
    """All hosts have sent a little ahead, but over one rail of a host nothing was sent."""
    rows = awaited_in(paused, "abcd", rails=3, odd=odd)
    assert [row["kind"] for row in rows] == kinds
    assert [row["subject"] for row in rows] == [odd or "j"] * len(kinds)


def awaited_in(paused: dict[int, float], begun: str, *, rails: int = 2, odd: str = "") -> list[dict[str, Any]]:
    """Return the rows of a job that pauses in some steps, after these hosts have sent a megabyte over all rails but
    those of one NIC."""
    rings = {f"{src}{rail}": f"{dst}{rail}" for src, dst in RING.items() for rail in range(rails)}
    steps = history([USUAL + paused.get(number, 0) for number in range(30)], current=4)
    rows, silences = [], []
    for number, (start_ns, end_ns) in enumerate(steps.select("start_ns", "end_ns").iter_rows()):
        start, end = ((ns - WINDOW.start_ns) / MS for ns in (start_ns, end_ns))
        rows += [(end - 400, end - 1, src, dst, 150 * MB) for src, dst in rings.items()]
        if number in paused:
            ahead = [hop for hop in rings.items() if hop[0][0] in begun and odd not in hop]
            rows += [(start + 100, start + 101, src, dst, MB) for src, dst in ahead]
            silences.append(("j", round(start_ns + 101 * MS), round(end_ns - 400 * MS)))
    hosts = {addr: f"host-{addr[0]}" for addr in rings}
    well = working([{addr: [500.0] * 3 for addr in rings}], hosts=hosts)
    job = dataclasses.replace(well, history=steps, steps=of_members(steps, rings), groups=groups(rings))
    pauses = pl.DataFrame(silences, schema=PAUSES_SCHEMA, orient="row")
    return told(dataclasses.replace(job, flows=kinds(dp=rows), pauses=pauses))


def test_who_trains_on_while_it_writes_does_not_wait_for_its_writes() -> None:
    """As much is written in each second before and after the slow step as in it."""
    job = evidence([*WELL, 14_000, *WELL[:5]], current=6)
    begins = range(job.history["start_ns"][20], job.history["end_ns"][-1], 1000 * MS)
    stored = pl.DataFrame([("j", begin, MB) for begin in begins], schema=STORAGE_SCHEMA, orient="row")
    (row,) = told(dataclasses.replace(job, storage=stored))
    assert row["kind"] == "cross_step"


@pytest.mark.parametrize(
    ("begun", "at", "named"),
    [("acd", 3600, True), ("abcd", 3600, False), ("ac", 3600, False), ("acd", 6700, True), ("acd", 6900, False)],
    ids=["one is missing", "none is", "two are", "for most of it", "for less"],
)
def test_a_host_that_all_others_wait_for_has_stalled(begun: str, at: float, named: bool) -> None:
    """After a pause of all members one is the last as well; the others must have waited in the longest silence."""
    row = awaiting(2, begun, at)
    assert (row["kind"], row["subject"]) == (("stalls", "host-b") if named else ("cross_step", "j"))
    assert ("All others waited for host host-b" in row["explanation"]) == named
    assert not named or row["confidence"] >= SURE


@pytest.mark.parametrize(
    ("after", "kind"),
    [([], "slow_compute"), ([9_100], "slow_compute"), ([8_900], "stalls"), ([9_100, USUAL], "stalls")],
)
def test_a_host_that_all_others_wait_for_may_compute_slowly_until_a_quicker_step_follows(
    after: Sequence[float], kind: str
) -> None:
    """A step is quicker if it loses less than half as much, of ten seconds."""
    row = awaiting(2, "acd", after=after)
    assert (row["kind"], row["subject"]) == (kind, "host-b")


def test_a_host_that_all_others_waited_for_in_one_of_two_slow_steps_explains_its_share() -> None:
    alone, other = awaiting(2, "acd"), awaiting(2, "acd", after=[USUAL, 9_000, USUAL])
    assert (alone["steps"], other["steps"]) == (1, 2)
    assert other["confidence"] == pytest.approx(alone["confidence"] * 10 / 15, rel=0.01)


@pytest.mark.parametrize(("rails", "kind"), [(1, "cross_step"), (2, "stalls")])
def test_a_host_of_one_nic_may_have_lost_its_link(rails: int, kind: str) -> None:
    """Nothing comes to it, either: of two links both would have to be down."""
    row = awaiting(rails, "cd")
    assert (row["kind"], row["candidates"]) == (kind, ["host-b"] if rails == 1 else None)


def test_of_a_host_of_one_nic_that_is_sent_to_a_record_may_be_lost() -> None:
    row = awaiting(1, "acd")
    assert (row["kind"], row["candidates"]) == ("cross_step", ["host-b", "host-c"])


def test_it_is_told_in_its_own_window_alone() -> None:
    assert told(evidence([*WELL, 14_000, *WELL[:15]], current=15)) == []


@pytest.mark.parametrize(("length", "count"), [(4900, 0), (5200, 1)])
def test_a_second_and_a_quarter_of_the_step_are_worth_a_row(length: float, count: int) -> None:
    assert len(told(evidence([*WELL, length, *WELL[:5]], current=6))) == count


def test_noise_raises_the_bar() -> None:
    noisy = [USUAL * factor for factor in (0.7, 1.4, 0.9, 1.2, 1.0, 0.8, 1.1, 1.5, 0.6, 1.0)] * 3
    assert told(evidence([*noisy, 14_000, *noisy[:3]], current=4)) == []


def test_of_a_handful_of_steps_nobody_knows_what_is_usual() -> None:
    assert told(evidence([*WELL[:3], 14_000, USUAL], current=5)) == []


@pytest.mark.parametrize("steps", [(10, 20, 30), (14, 30)])
def test_what_recurs_after_equal_numbers_of_steps_or_takes_as_long_again_is_a_schedule(steps: Sequence[int]) -> None:
    lengths = [12_000 if at in steps else WELL[at % len(WELL)] for at in range(36)]
    assert told(evidence(lengths, current=8)) == []


@pytest.mark.parametrize(("last", "count"), [(9900, 0), (10_100, 1)])
def test_what_is_on_schedule_and_takes_twice_as_long_is_told(last: float, count: int) -> None:
    """Three seconds more than other steps are usual after ten of them."""
    lengths = [{10: 7000, 20: 7000, 30: last}.get(at, WELL[at % len(WELL)]) for at in range(36)]
    assert len(told(evidence(lengths, current=8))) == count


@pytest.mark.parametrize(
    ("places", "steps"),
    [((1, 1), []), ((1, 3), [2]), ((4, 0), [])],
    ids=["one place", "two places", "at the end of a step, or before the next one"],
)
def test_a_pause_as_long_at_another_place_of_the_step_is_no_schedule(places: Sequence[int], steps: list[int]) -> None:
    """Who evaluates or saves stands still at one place of the step, a link that goes down at any."""
    pauses = dict(zip((26, 33), places, strict=True))
    assert [row["steps"] for row in told(pausing(pauses, 3000))] == steps


@pytest.mark.parametrize(("places", "count"), [((1, 1), 0), ((1, 3), 1)])
def test_a_job_has_no_habit_of_pausing_anywhere(places: Sequence[int], count: int) -> None:
    """It paused before, for half as long again."""
    pauses = dict(zip((14, 33), places, strict=True))
    assert len(told(pausing(pauses, 3000, first=2000))) == count


def pausing(pauses: Mapping[int, int], lasts: float, first: float | None = None) -> Evidence:
    """Return a job whose ring sends at each quarter of a step, but for pauses after some of them.

    Parameters
    ----------
    pauses : the steps in which it pauses, and after how many quarters
    lasts, first : how long, in ms: all pauses, or all but the first one
    """
    long = {step: lasts if number or first is None else first for number, step in enumerate(pauses)}
    steps = history([WELL[at % len(WELL)] + long.get(at, 0) for at in range(36)], current=12)
    rows = []
    for at, (start_ns, end_ns) in enumerate(steps.select("start_ns", "end_ns").iter_rows()):
        start, end = ((ns - WINDOW.start_ns) / MS for ns in (start_ns, end_ns))
        quarter = (end - start - long.get(at, 0)) / 4
        for number in range(4):
            held = long.get(at, 0) if number >= pauses.get(at, 4) else 0
            sent = start + held + (number + 0.5) * quarter
            rows += [(sent, sent + 100, src, dst, 8 * MB) for src, dst in RING.items()]
    traffic = kinds(dp=rows)
    known = quiet_times(traffic).filter(pl.col("back_ns") - pl.col("since_ns") >= 1500 * MS)
    well = working([{addr: [500.0] * 3 for addr in RING}])
    return dataclasses.replace(
        well, flows=traffic, history=steps, steps=of_members(steps, RING), groups=groups(RING), pauses=known
    )


def test_a_second_pause_of_another_length_is_no_schedule() -> None:
    lengths = [{14: 7000, 30: 12_000}.get(at, WELL[at % len(WELL)]) for at in range(36)]
    assert [row["steps"] for row in told(evidence(lengths, current=8))] == [1]


@pytest.mark.parametrize(
    ("pauses", "count"),
    [
        ({8: 12_000, 20: 7500, 34: 12_000}, 0),
        ({8: 6000, 20: 5500, 34: 12_000}, 1),
        ({8: 12_000, 12: 12_200, 20: 7500, 32: 12_000}, 0),
        ({6: 12_000, 19: 12_200, 22: 7500, 32: 12_000}, 0),
    ],
    ids=["alike", "one is far longer", "three alike, now and then", "three alike, after equal numbers"],
)
def test_a_schedule_is_one_whatever_else_makes_a_step_slow(pauses: dict[int, float], count: int) -> None:
    lengths = [pauses.get(at, WELL[at % len(WELL)]) for at in range(36)]
    assert len(told(evidence(lengths, current=8))) == count


@pytest.mark.parametrize(("longer", "count"), [({20: 12_000}, 0), ({22: 12_000}, 1)], ids=["one of them", "another"])
def test_a_schedule_may_have_a_step_that_is_longer_for_another_reason_too(longer: dict[int, float], count: int) -> None:
    """Who evaluates after each fifth step may save after one of these, which then takes longer."""
    pauses = dict.fromkeys([5, 10, 15, 25, 30, 35, 40], 6000) | {12: 12_000} | longer
    lengths = [pauses.get(at, WELL[at % len(WELL)]) for at in range(45)]
    assert [row["kind"] for row in told(evidence(lengths, current=16))] == ["stalls"] * count


@pytest.mark.parametrize(("pauses", "kind"), [(2, "cross_step"), (3, "stalls")])
def test_silences_that_come_now_and_then_are_stalls(pauses: int, kind: str) -> None:
    at = {26: 6000, 29: 8000, 34: 11_000} if pauses > 2 else {26: 6000, 29: 8000}
    (row,) = told(evidence([at.get(step, WELL[step % len(WELL)]) for step in range(36)], current=12))
    assert (row["kind"], row["subject_type"], row["steps"]) == (kind, "job", pauses)
    assert row["lost_s"] == pytest.approx(sum(at.values()) / 1000 - 4 * pauses, rel=0.01)


def test_slow_steps_in_a_row_are_a_fault_that_lasts() -> None:
    assert told(evidence([*WELL, 9000, 9100, 9000, *WELL[:4]], current=7)) == []


def test_a_step_that_was_cut_at_another_place_is_not_slow() -> None:
    assert told(evidence([*WELL, 6500, 1500, *WELL[:4]], current=6)) == []


@pytest.mark.parametrize(("others", "rows"), [("cd", 0), ("d", 1)], ids=["half", "one of four"])
def test_a_step_that_half_of_the_members_end_as_early_as_ever_is_no_step_of_the_job(others: str, rows: int) -> None:
    """Members wait for each other. Where they do not, two jobs were taken for one, or steps were cut wrongly."""
    job = evidence([*WELL, 14_000, *WELL[:5]], current=6)
    early = of_members(history([*WELL, USUAL, *WELL[:5]], current=6), others)
    whose = job.steps.filter(~pl.col("addr").is_in(list(others)))
    assert len(told(dataclasses.replace(job, steps=pl.concat([whose, early])))) == rows


@pytest.mark.parametrize("scale", [2.0, 0.5])
def test_two_steps_taken_for_one_and_one_that_lost_records_are_not_told(scale: float) -> None:
    assert told(evidence([*WELL, 8000, *WELL[:5]], current=6, scale=scale)) == []


@pytest.mark.parametrize(("written", "length", "kind"), [(500, 14_000, "checkpoint_stall"), (0, 14_000, "cross_step")])
def test_who_writes_to_storage_meanwhile_saves_a_checkpoint(written: int, length: float, kind: str) -> None:
    job = evidence([*WELL, length, *WELL[:5]], current=6)
    stored = pl.DataFrame([("j", WINDOW.start_ns + 1000 * MS, written * MB)], schema=STORAGE_SCHEMA, orient="row")
    (row,) = told(dataclasses.replace(job, storage=stored))
    assert (row["kind"], row["subject_type"]) == (kind, "job")


@pytest.mark.parametrize(("more", "kind"), [(1.1, "checkpoint_stall"), (0.9, "cross_step")])
def test_who_writes_as_much_in_each_step_does_not_save_a_checkpoint(more: float, kind: str) -> None:
    """A megabyte beyond the usual is no log."""
    job = evidence([*WELL, 14_000, *WELL[:5]], current=6)
    begins = job.history["start_ns"].to_list()
    slow = begins[len(WELL)]
    stored = [("j", begin + 1000 * MS, round((5 + more * (begin == slow)) * MB)) for begin in begins]
    (row,) = told(dataclasses.replace(job, storage=pl.DataFrame(stored, schema=STORAGE_SCHEMA, orient="row")))
    assert row["kind"] == kind


def saving(lengths: Sequence[float], at: Sequence[int], current: int) -> Evidence:
    """Return a job that writes a checkpoint one second after some of its steps began."""
    job = evidence(lengths, current=current)
    begins = job.history["start_ns"].to_list()
    stored = [("j", begins[step] + 1000 * MS, 500 * MB) for step in at]
    return dataclasses.replace(job, storage=pl.DataFrame(stored, schema=STORAGE_SCHEMA, orient="row"))


@pytest.mark.parametrize(("length", "count"), [(7000, 0), (9500, 0), (10_500, 1)])
def test_the_first_checkpoint_is_told_if_it_costs_as_much_of_a_minute_as_others_may(length: float, count: int) -> None:
    """A tenth of the window. What is usual for the job nobody knows yet."""
    rows = told(saving([*WELL, length, *WELL[:5]], [24], current=6))
    assert [row["confidence"] for row in rows] == [0.5] * count
    assert ["it may take as long each time" in row["explanation"] for row in rows] == [True] * count


@pytest.mark.parametrize(("length", "count"), [(12_000, 0), (15_000, 1)])
def test_a_checkpoint_is_told_if_it_takes_far_longer_than_those_before_it(length: float, count: int) -> None:
    lengths = [*WELL[:9], 9000, *WELL[:11], length, *WELL[:5]]
    assert [row["confidence"] for row in told(saving(lengths, [9, 21], current=6))] == [1.0] * count


@pytest.mark.parametrize(("length", "count"), [(6800, 0), (7200, 1)])
def test_after_the_first_checkpoint_what_others_cost_counts_and_no_tenth_of_the_window(
    length: float, count: int
) -> None:
    lengths = [*WELL[:9], 5500, *WELL[:11], length, *WELL[:5]]
    assert len(told(saving(lengths, [9, 21], current=6))) == count


@pytest.mark.parametrize(("before", "rows"), [(3400, 1), (9000, 0)])
def test_a_silence_that_a_copy_breaks_into_pieces_is_one_pause(before: float, rows: int) -> None:
    """Ten seconds in pieces are no habit of a job that has paused for three, though each of the pieces is."""
    job = evidence([*WELL, 14_000, *WELL[:5]], current=6)
    start_ns = job.history["start_ns"][24]
    first_ns = job.history["start_ns"][0] - 30_000 * MS
    earlier = [("j", first_ns, first_ns + round(before * MS))]
    pieces = [("j", start_ns + at * MS, start_ns + (at + 3300) * MS) for at in (0, 3400, 6800, 10_200)]
    pauses = pl.DataFrame(earlier + pieces, schema=PAUSES_SCHEMA, orient="row")
    start_ms = (start_ns - WINDOW.start_ns) / MS
    message = [(start_ms + at, start_ms + at + 90, "a", "b", 2 * MB) for at in (3300, 6700, 10_100)]
    found = told(dataclasses.replace(with_flows(job, kinds(dp=message)), pauses=pauses))
    assert ["while its training paused time and again" in row["explanation"] for row in found] == [True] * rows


def test_a_ring_that_moves_all_the_time_is_no_silence() -> None:
    (row,) = told(evidence([*WELL, 9000, *WELL[:5]], current=6, moving=[24]))
    assert row["kind"] == "cross_step"
    assert "transfers alone were slow between a, b, c, d, one of which may have lost its link" in row["explanation"]
    assert row["candidates"] is None, "four NICs of one ring are too many to name"


def test_a_ring_is_held_whose_records_began_before_most_members_ended_their_step() -> None:
    job = evidence([*WELL, 9000, *WELL[:5]], current=6, moving=[24])
    start, end = pl.col("flow_start_ns"), pl.col("flow_end_ns")
    longer = pl.when(end - start > 5000 * MS).then(start - 4000 * MS).otherwise(start)
    early = dataclasses.replace(job, flows=job.flows.with_columns(flow_start_ns=longer))
    ends = [(ns - WINDOW.start_ns) / MS for ns in job.history["end_ns"]]
    most = [(end - 400, end - 1, "ace"[at % 3], "xyz"[at // 3], 8 * MB) for end in ends for at in range(9)]
    (row,) = told(with_flows(early, kinds(pp=most)))
    assert "between a, b, c, d, one of which" in row["explanation"]


@pytest.mark.parametrize(("moving", "after", "rows"), [([24], 0, 1), ([], 0, 0), ([24], 1, 0)])
def test_most_members_may_end_the_last_step_in_time_if_it_is_the_ring_of_some_that_is_held(
    moving: list[int], after: int, rows: int
) -> None:
    """They are of other stages. In the next step they are late as well, or the step was cut too late."""
    job = evidence([*WELL, 9000, *WELL[:after]], current=6, moving=moving)
    in_time = pl.when(pl.col("step_index") >= 5 - after).then(pl.col("end_ns") - 5000 * MS).otherwise("end_ns")
    others = of_members(job.history, "uvwxyz").with_columns(end_ns=in_time)
    found = told(dataclasses.replace(job, steps=pl.concat([job.steps, others])))
    assert ["between a, b, c, d, one of which may" in row["explanation"] for row in found] == [True] * rows


@pytest.mark.parametrize(
    ("kind", "severity", "count"), [("stalls", 0.01, 0), ("slow_compute", 2.0, 0), ("slow_compute", 0.1, 1)]
)
def test_what_another_finding_tells_is_not_told_again(kind: str, severity: float, count: int) -> None:
    job = evidence([*WELL, 14_000, *WELL[:5]], current=6)
    other = {"job_id": "j", "kind": kind, "subject_type": "job", "subject": "j", "severity": severity, "score": 9.0}
    span = {"start_ns": WINDOW.start_ns, "end_ns": WINDOW.end_ns, "explanation": "It is slow."}
    assert len(told(job, pl.DataFrame([other | span], schema=FINDING_SCHEMA))) == count


def test_readings_add_up() -> None:
    assert sum(shares(dict.fromkeys("abc", 1.0)).values()) == pytest.approx(1)


@pytest.mark.parametrize(("after", "kind"), [(0, "slow_nic"), (1, "link_flap")])
def test_a_nic_that_was_slow_in_one_step_has_flapped_once_a_quick_step_follows(after: int, kind: str) -> None:
    hops = (ring("abc", 20), ring("def"), both("a", "d", 20), both("b", "e"), both("c", "f"))
    slow = [*[False] * 20, True, *[False] * after]
    (row,) = told(job(*hops, lost=1900, slow=slow))
    assert (row["kind"], row["subject"], row["steps"]) == (kind, "a", 1)


@pytest.mark.parametrize(("beside", "kind"), [(True, "slow_network"), (False, "cross_step")])
def test_of_a_path_that_was_slow_in_one_step_all_its_devices_are_told(beside: bool, kind: str) -> None:
    """All slow pairs cross a spine between two leaves. Others clear it, so that two links are left; or the spine, its
    links and both leaves may be at fault, which are more than anybody looks at."""
    slow = [both(a, b, 20, "leaf-0 s1 leaf-1") for a, b in ("ad", "be")]
    well = [both(a, b, 1, "leaf-0 s2 leaf-1") for a, b in ("ad", "be", "cf")]
    others = [both("g", "h", 1, "leaf-2 s1 leaf-3"), both("i", "j", 1, "leaf-2 s1 leaf-3")]
    hops = [*slow, *(well if beside else []), *(others if beside else [])]
    (row,) = told(job(*hops, lost=1900, slow=[*[False] * 20, True]))
    assert (row["kind"], row["steps"]) == (kind, 1)
    assert (row["candidates"] == ["leaf-0 - s1", "leaf-1 - s1"]) == beside


def test_two_nics_one_of_which_was_slow_in_one_step_are_no_slow_network() -> None:
    """One of them may have lost its link: the others clear all that lies between them."""
    slow, well = both("a", "d", 20, "leaf-0 s1 leaf-1"), both("b", "e", 1, "leaf-0 s1 leaf-1")
    (row,) = told(job(slow, well, both("c", "f", 1, "leaf-0 s1 leaf-1"), lost=1900, slow=[*[False] * 20, True]))
    assert row["kind"] != "slow_network"


@pytest.mark.parametrize(("before", "told_of"), [(7_600, 2), (7_900, 1), (8_900, 1), (9_100, 0)])
def test_a_run_of_slow_steps_is_one_of_steps_that_lost_as_much(before: float, told_of: int) -> None:
    """Pauses of 10 and 7.5 s after a step that lost less than half of them: three alike are a fault that lasts."""
    slow = range(len(WELL), len(WELL) + 3)
    rows = told(evidence([*WELL, before, 14_000, 11_500, *WELL[:5]], current=8, moving=slow))
    assert sum(row["steps"] for row in rows) == told_of


@pytest.mark.parametrize(
    ("works", "length", "told_of"), [(True, 16_000, 1), (False, 16_000, 0), (False, 15_100, 0), (False, 14_900, 1)]
)
def test_a_job_did_not_stand_still_where_the_collector_stopped(works: bool, length: float, told_of: int) -> None:
    """What goes on unseen loses whole steps: here three of them, give or take a quarter."""
    job = evidence([*WELL, length, *WELL[:5]], current=6)
    pairs = job.flows.select(pl.col("src_addr", "dst_addr").cast(pl.String)).unique().sort("src_addr")
    numbers = pairs.with_row_index("pair").with_columns(pl.col("pair").cast(pl.Int32))
    table = flows(
        [(at, at + 1, "x", "y", MB) for at in range(-90_000, 40_000, 500) if works or not 500 < at < length - 1500]
    )
    mine = job.flows.with_columns(pl.col("src_addr", "dst_addr").cast(pl.String)).join(
        numbers, on=["src_addr", "dst_addr"], maintain_order="left"
    )
    every = pl.concat([table, as_texts(job.flows).select(table.columns)])
    seen = dataclasses.replace(job, flows=coded(mine), index=TrafficIndex.of(every, settings().traffic))
    assert seen.begun_by_others("j").tolist() == table["flow_start_ns"].to_list()
    assert [row["kind"] for row in told(seen)] == ["cross_step"] * told_of
    away = dataclasses.replace(seen, elsewhere=pl.DataFrame({"flow_start_ns": [0, 2**62]}))
    assert away.begun_by_others("j").tolist() == [0, *table["flow_start_ns"], 2**62]
