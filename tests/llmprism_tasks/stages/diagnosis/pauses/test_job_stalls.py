"""A job that stands still as a whole, now and then, has stalls, whoever it waits for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
import pytest
from handmade import MB, MS, WINDOW, settings
from job_evidence import DEFAULT, history, kinds, lengthened, shuffled, without_rows, working
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, STORAGE_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.network import devices
from llmprism_tasks.stages.diagnosis.pauses import job_stalls
from llmprism_tasks.stages.diagnosis.pauses.one_host import OneHost

STEPS = 14


def standing(by: Mapping[int, float], differ: float = 0.005, silent: bool = True) -> Evidence:
    """Return steps of which some are so many ms longer, since all members are silent before they send, or since they
    send for longer; what they need before may `differ` from step to step, by this ratio up and down."""
    ready = [400.0 * (1 + differ * (0, 1, -1)[step % 3]) + by.get(step, 0) * silent for step in range(STEPS)]
    return lengthened(working([dict.fromkeys("abcdef", ready)], paid=False), by)


def named(evidence: Evidence) -> list[tuple[str, str, str]]:
    return job_stalls.find(evidence, DEFAULT).select("kind", "subject_type", "subject").rows()


JOB = [("stalls", "job", "j")]


def test_steps_before_which_all_are_silent_for_long_are_stalls_of_the_job() -> None:
    rows = job_stalls.find(standing({2: 500, 5: 500, 6: 500}, differ=0), DEFAULT)
    assert rows.schema == pl.Schema(FINDING_SCHEMA)
    row = rows.row(0, named=True)
    assert (row["kind"], row["subject_type"], row["subject"]) == JOB[0]
    # 1.5 of 15.5 seconds.
    assert row["severity"] == pytest.approx((1.5 / 15.5) / (14 / 15.5), rel=0.01)
    assert row["confidence"] == 1
    assert "In 3 of 14 steps the whole job is silent for longer, by 500 ms on average" in row["explanation"]


@pytest.mark.parametrize(
    ("at", "rows"),
    [
        ((2, 5, 6), JOB),
        ((5, 6), []),
        ((9, 10, 11, 12, 13), []),
        ((1, 4, 7, 10), []),
        ((1, 4, 8, 11), []),
        ((1, 4, 9, 12), JOB),
        ((1, 3, 5, 7), []),
        ((1, 3, 6, 8), JOB),
        ((6, 7, 9, 10), JOB),
        ((7, 8, 10, 11), []),
    ],
    ids=[
        *("rare", "too few", "lasting", "each third", "about each third", "now and then", "each second", "not quite"),
        *("half since the first", "most since the first"),
    ],
)
def test_what_lasts_or_comes_at_a_distance_is_something_else(
    at: Sequence[int], rows: list[tuple[str, str, str]]
) -> None:
    assert named(standing(dict.fromkeys(at, 500.0))) == rows


@pytest.mark.parametrize(("at", "told"), [((2, 4, 6, 7, 8), True), ((2, 6, 7, 8, 9), False)])
def test_of_those_that_follow_each_other_there_are_few(at: Sequence[int], told: bool) -> None:
    """Three of five may be chance, four are a trouble that began."""
    assert job_stalls._is_occasional(pl.DataFrame({"step_index": at})) == told


@pytest.mark.parametrize(
    ("distances", "told"), [((1, 5) * 3, False), ((1, 5, 1, 5, 1), True), ((1, 5, 1, 5, 1, 4), True)]
)
def test_distances_that_come_again_three_times_in_one_order_are_parts_of_steps(
    distances: tuple[int, ...], told: bool
) -> None:
    stalled = pl.DataFrame({"step_index": np.cumsum([2, *distances])})
    assert job_stalls._is_occasional(stalled) == told


@pytest.mark.parametrize(
    ("distances", "told"), [((4, 4, 3, 5, 4), False), ((4, 3, 5, 4), True), ((4, 4, 2, 6, 4), True)]
)
def test_a_schedule_is_one_though_a_step_s_end_was_told_one_step_off(distances: tuple[int, ...], told: bool) -> None:
    """A job that generates samples after each fourth step, with step ends lost now and then."""
    stalled = pl.DataFrame({"step_index": np.cumsum([2, *distances])})
    assert job_stalls._is_occasional(stalled) == told


@pytest.mark.parametrize(("members", "rows"), [("a", []), ("abcd", JOB)], ids=["one", "most"])
def test_a_step_is_as_long_as_for_most_members(members: str, rows: list[tuple[str, str, str]]) -> None:
    """Of some of six members the longer steps begin half a second sooner, as where they are cut elsewhere."""
    more, at = 500, (2, 5, 6)
    evidence = standing(dict.fromkeys(at, float(more)))
    later = pl.when(pl.col("step_index").is_in(at) & ~pl.col("addr").is_in([*members])).then(more * 1_000_000)
    steps = evidence.steps.with_columns(start_ns=pl.col("start_ns") + later.otherwise(0))
    assert named(dataclasses.replace(evidence, steps=steps)) == rows


def test_a_host_that_most_stalls_that_show_it_wait_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    one = OneHost("host-b", np.arange(STEPS) % 2 == 1, 9)
    monkeypatch.setattr(job_stalls, "find_one_host", lambda *_: one)
    (row,) = job_stalls.find(standing({2: 500, 5: 500, 6: 500}), DEFAULT).iter_rows(named=True)
    assert (row["kind"], row["subject_type"], row["subject"]) == ("stalls", "host", "host-b")
    assert row["confidence"] == pytest.approx(7 / 9)
    assert "In 7 of the 9 with the longest silences host host-b took no part" in row["explanation"]


def test_steps_that_are_longer_for_what_they_send_do_not_stand_still() -> None:
    assert named(standing({2: 500, 5: 500, 6: 500}, silent=False)) == []


@pytest.mark.parametrize(("more", "rows"), [(1.0, JOB), (1.24, JOB), (1.26, []), (2.0, [])])
def test_longer_steps_that_hold_more_work_do_not_stand_still(more: float, rows: list[tuple[str, str, str]]) -> None:
    """They are half longer: a quarter of that may be work, as where two steps are told as one."""
    at = (2, 5, 6)
    evidence = standing(dict.fromkeys(at, 500.0))
    spans = evidence.steps.filter(pl.col("addr") == "a", pl.col("step_index").is_in(at)).select("start_ns", "end_ns")
    inside = pl.any_horizontal(pl.col("flow_start_ns").is_between(*span) for span in spans.rows())
    bytes_ = pl.when(inside).then((pl.col("bytes") * more).round().cast(pl.Int64)).otherwise("bytes")
    assert named(dataclasses.replace(evidence, flows=evidence.flows.with_columns(bytes=bytes_))) == rows


@pytest.mark.parametrize(("differ", "rows"), [(0.09, JOB), (0.1, [])])
def test_where_samples_differ_in_length_a_stall_stands_far_out(differ: float, rows: list[tuple[str, str, str]]) -> None:
    """Of 10 % more than half of the long steps are no stalls."""
    assert named(standing({2: 500, 5: 500, 6: 500}, differ=differ)) == rows


@pytest.mark.parametrize(("longer", "told"), [(0, False), (100, False), (200, True)])
def test_the_longer_half_of_one_distribution_is_no_stall(longer: int, told: bool) -> None:
    """A healthy job whose samples differ in length by a tenth: its shorter pauses are alike by chance."""
    lengths, pauses = (
        [441, 426, 498, 548, 587, 438, 520, 523, 444, 484],
        [355, 351, 403, 464, 385, 354, 429, 399, 329, 366],
    )
    more = pl.when(pl.col("pause_ns") > 390).then(longer).otherwise(0)
    steps = pl.DataFrame({"length_ns": lengths, "pause_ns": pauses}).select((pl.all() + more) * MS)
    steps = steps.with_columns(
        job_id=pl.lit("j"), step_index=pl.int_range(pl.len()), silent_ns="pause_ns", longest_ns="pause_ns"
    )
    judged = job_stalls._mark_stalled_steps(steps, DEFAULT)
    assert (judged is not None) == told


@pytest.mark.parametrize(
    ("written", "saves", "rows"), [(0.9, (2, 5, 6), JOB), (1.1, (2, 5, 6), []), (0.9, (5,), JOB), (1.1, (5,), [])]
)
def test_who_writes_to_storage_meanwhile_waits_for_it(
    written: float, saves: Sequence[int], rows: list[tuple[str, str, str]]
) -> None:
    """A megabyte and more, in each of three pauses, or in one; the two others are too few."""
    evidence = standing(dict.fromkeys((2, 5, 6), 500.0))
    spans = evidence.steps.filter(pl.col("addr") == "a").sort("step_index").select("start_ns", "end_ns")
    history = evidence.history.with_columns(*spans)
    stored = [("j", spans["start_ns"][step] + 10_000_000, round(written * 1e6)) for step in saves]
    stores = pl.DataFrame(stored, schema=STORAGE_SCHEMA, orient="row")
    assert named(dataclasses.replace(evidence, history=history, storage=stores)) == rows


@pytest.mark.parametrize(("by", "rows"), [(210, JOB), (180, [])])
def test_what_costs_too_little_is_not_told(by: float, rows: list[tuple[str, str, str]]) -> None:
    """4 % of 14 s and three stalls."""
    assert named(standing(dict.fromkeys((2, 5, 6), by))) == rows


@pytest.mark.parametrize("ended", [7, STEPS], ids=["before the window's steps", "and none ended in it"])
def test_what_was_before_the_window_is_no_news(ended: int) -> None:
    evidence = standing({2: 500, 5: 500, 6: 500})
    now = pl.col("step_index") >= ended
    assert named(dataclasses.replace(evidence, steps=evidence.steps.with_columns(current=now))) == []


@pytest.mark.parametrize(("since", "rows"), [(6, JOB), (7, [])], ids=["four of eight", "four of seven"])
def test_most_of_a_window_s_steps_is_no_longer_now_and_then(since: int, rows: list[tuple[str, str, str]]) -> None:
    evidence = standing(dict.fromkeys((2, 7, 9, 11, 12), 500.0))
    now = pl.col("step_index") >= since
    assert named(dataclasses.replace(evidence, steps=evidence.steps.with_columns(current=now))) == rows


def test_a_job_of_which_more_is_known_is_left_to_that() -> None:
    evidence = standing({2: 500, 5: 500, 6: 500})
    one_late = lengthened(
        working(
            [
                {"a": [400.0 + 500 * (step in (2, 5, 6)) for step in range(STEPS)]}
                | dict.fromkeys("bcde", [400.0] * STEPS)
            ],
            paid=False,
        ),
        dict.fromkeys((2, 5, 6), 500.0),
    )
    assert named(one_late) == []
    piped = dataclasses.replace(evidence, flows=evidence.flows.with_columns(kind=pl.lit("pp")))
    assert named(piped) == []


@pytest.mark.parametrize(("kind", "rows"), [("link_flap", []), ("slow_nic", JOB)])
def test_while_a_link_is_down_nothing_is_sent_either(kind: str, rows: list[tuple[str, str, str]]) -> None:
    evidence = standing({2: 500, 5: 500, 6: 500})
    known = job_stalls.find(evidence, DEFAULT).with_columns(kind=pl.lit(kind), subject=pl.lit("a"))
    beside = dataclasses.replace(evidence)
    beside._findings[devices.find, DEFAULT] = known
    assert named(beside) == rows


def test_the_order_of_rows_does_not_matter_and_no_rows_are_none() -> None:
    evidence = standing({2: 500, 5: 500, 6: 500})
    expected = job_stalls.find(evidence, DEFAULT)
    for seed in range(3):
        assert_frame_equal(job_stalls.find(shuffled(evidence, seed), DEFAULT), expected)
    assert job_stalls.find(without_rows(evidence), DEFAULT).is_empty()


@pytest.mark.parametrize(("stretched", "samples"), [((5, 9), True), ((5,), False)])
def test_who_takes_longer_in_all_parts_of_most_steps_has_longer_samples(
    stretched: Sequence[int], samples: bool
) -> None:
    """Of eight buckets each leaves later by the same ratio of the time before it, or all by the same time."""
    lengths = [1500.0 if step in (5, 9) else 1000.0 + step % 3 for step in range(14)]
    spans = history(lengths).with_columns(length=pl.col("end_ns") - pl.col("start_ns"))
    sent = []
    for step, (since, length) in enumerate(spans.select("start_ns", "length").rows()):
        late, grows = (0, length / MS / 1000) if step in stretched else (length / MS - 1000, 1)
        begins = [(since - WINDOW.start_ns) / MS + late + grows * 110 * bucket for bucket in range(1, 9)]
        sent += [(at, at + 20, "a", "b", 8 * MB) for at in begins]
    long = pl.col("length") > 1200 * MS
    steps = spans.with_columns(long=long, still=long, longer=pl.col("length") - 1000 * MS)
    evidence = dataclasses.replace(standing({}), flows=kinds(dp=sent))
    assert job_stalls._has_longer_samples("j", steps, evidence) == samples


@pytest.mark.parametrize(
    ("at", "least_s", "rows"),
    [((1, 4, 9, 12), 0.49, 0), ((1, 4, 9, 12), 0.51, 1), ((1, 4, 6, 9, 12), 0.49, 1)],
    ids=["two habits", "too short for one", "one more"],
)
def test_a_few_long_pauses_may_be_two_habits(at: Sequence[int], least_s: float, rows: int) -> None:
    """They take half a second each."""
    found = job_stalls.find(standing(dict.fromkeys(at, 500.0)), settings("diagnosis", least_single_s=least_s).diagnosis)
    assert found.height == rows
