"""Pauses of a whole job between its steps are told if they cost enough, and storage or their interval says what for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, members
from job_evidence import DEFAULT, coded, groups, history, kinds, shuffled, without_rows
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, STORAGE_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.pauses import checkpoints

STEP = 1000
SAVED = (23, 33, 43, 53)
"""Steps before which a checkpoint is written: one in ten, by a job that has run without any for twice as long."""
STORED = 40 * MB
RING = ("ab", "bc", "cd", "da")


def job(
    pause: float = 1500,
    saved: Sequence[int] = SAVED,
    *,
    count: int = 60,
    before: int = 0,
    written: int = STORED,
    early: Sequence[str] = (),
    early_at: float = 900,
    aside: float = 0,
    more: float = 0,
    long: Sequence[int] = (),
    slower: Mapping[int, float] | None = None,
    samples: float = 0,
) -> Evidence:
    """Return evidence about a ring of four whose steps end with a burst, and pause after those before `saved`.

    Parameters
    ----------
    before : steps of the look-back
    written : bytes that `a` writes as each pause begins
    early, early_at : who sends a little in the steps that pause, and when, ms; else it pauses, too
    aside : MB that `a` writes in the middle of each other step
    more : how much longer each pause is than the one before, ms
    long : steps that begin with as long a silence, without a write
    slower : how many times as long the pauses before some steps are
    samples : how much longer the longest samples take than the shortest, ms; one step in five holds either
    """
    waits = dict.fromkeys(long, pause) | {i: pause * (slower or {}).get(i, 1) + more * at for at, i in enumerate(saved)}
    lengths = [STEP + waits.get(i, 0.0) + samples * (2 * i % 5) / 4 for i in range(count)]
    begin = -sum(lengths[:before])
    rows: list[Row] = []
    storage: list[tuple[str, int, int]] = []
    for i, length in enumerate(lengths):
        end = begin + length
        rows += [(end - 100, end, src, dst, 8 * MB) for src, dst in RING]
        if i in saved:
            rows += [(begin + early_at, begin + early_at + 5, src, dst, MB) for src, dst in RING if src in early]
            storage += [("j", WINDOW.start_ns + round((begin + 50) * MS), written)] * bool(written)
        elif aside:
            storage.append(("j", WINDOW.start_ns + round((begin + 400) * MS), round(aside * MB)))
        begin = end
    told = history(lengths, current=count - before)
    start = WINDOW.start_ns - told.filter("current")["start_ns"][0]
    flows = kinds(dp=[*rows, (-sum(lengths[:before]) - 1, -sum(lengths[:before]), "a", "b", 8 * MB)])
    return Evidence(
        flows=coded(flows.with_columns(pl.col("flow_start_ns", "flow_end_ns") - start)),
        steps=pl.DataFrame(),
        history=told,
        groups=groups("abcd"),
        members=members({"j": {addr: f"host-{addr}" for addr in "abcd"}}).drop("window_start_ns"),
        window=WINDOW,
        storage=pl.DataFrame(storage, schema=STORAGE_SCHEMA, orient="row"),
    )


def found(evidence: Evidence, **changed: Any) -> list[dict[str, Any]]:
    return checkpoints.find(evidence, dataclasses.replace(DEFAULT, **changed)).to_dicts()


def test_pauses_for_checkpoints_are_told_with_what_they_cost() -> None:
    rows = checkpoints.find(job(), DEFAULT)
    assert rows.schema == pl.Schema(FINDING_SCHEMA)
    (row,) = rows.to_dicts()
    assert (row["kind"], row["subject_type"], row["subject"]) == ("checkpoint_stall", "job", "j")
    assert row["severity"] == pytest.approx(4 * 1500 / 60_000)
    assert row["score"] == pytest.approx(1500 / 10)
    assert row["confidence"] == pytest.approx(1)
    assert row["start_ns"] == WINDOW.start_ns + 23_000 * MS
    assert row["end_ns"] == WINDOW.start_ns + (53_000 + 3 * 1500 + 2400) * MS
    assert (
        "All members pause for 1.5 s after one in 10 steps of 1.0 s, 4 times in this window, and write 40 MB"
        in (row["explanation"])
    )


@pytest.mark.parametrize(("pause", "told"), [(990, 0), (1010, 1)])
def test_checkpoints_that_cost_little_are_no_news(pause: float, told: int) -> None:
    """A tenth of ten steps of a second."""
    assert len(found(job(pause))) == told
    assert len(found(job(pause), least_checkpoint=0.12)) == 0


@pytest.mark.parametrize(("pause", "told"), [(240, 0), (260, 1)])
def test_a_step_that_is_a_quarter_longer_has_paused(pause: float, told: int) -> None:
    assert len(found(job(pause), least_checkpoint=0.01)) == told


@pytest.mark.parametrize(("saved", "told"), [((33,), 0), ((33, 49), 1)])
def test_one_pause_is_chance(saved: Sequence[int], told: int) -> None:
    assert len(found(job(3000, saved))) == told


@pytest.mark.parametrize(("before", "often"), [(40, "once"), (0, "2 times")])
def test_how_often_counts_what_the_window_saw(before: int, often: str) -> None:
    (row,) = found(job(3000, (33, 49), before=before))
    assert f"{often} in this window, and write" in row["explanation"]


@pytest.mark.parametrize(("saved", "told"), [((31, 41), 0), ((21, 31, 41), 1), ((21, 31, 42), 0), ((21, 22, 23), 0)])
def test_without_storage_pauses_after_equally_many_steps_tell(saved: Sequence[int], told: int) -> None:
    assert len(found(job(3000, saved, written=0, more=11, count=50))) == told


@pytest.mark.parametrize(
    ("early", "written", "pauses", "subjects"),
    [
        ("abd", 0, 5, ["host-c"]),
        ("ad", 0, 5, ["host-c"]),
        ("abcd", 0, 5, ["j"]),
        ("", 0, 5, ["j"]),
        ("abd", STORED, 5, ["j"]),
        ("abd", 0, 4, []),
    ],
    ids=["all but one", "nor who sends to it", "all", "none", "it saves meanwhile", "of four, by chance"],
)
def test_one_host_that_all_others_wait_for_is_no_checkpoint(
    early: str, written: int, pauses: int, subjects: Sequence[str]
) -> None:
    rows = found(job(3000, (23, 33, 43, 53, 63)[:pauses], count=74, written=written, early=early, early_at=20))
    assert [row["subject"] for row in rows] == subjects
    assert [row["kind"] for row in rows if row["subject"] == "host-c"] == ["stalls"] * subjects.count("host-c")


@pytest.mark.parametrize(
    ("first", "pause", "written", "told"),
    [
        *((first, 3000, written, told) for first, told in ((19, 0), (20, 1)) for written in (0, STORED)),
        *((3, 3900, written, 0) for written in (0, STORED)),
        (3, 4100, STORED, 1),
        (3, 4100, 0, 0),
        (3, 15_000, 0, 0),
    ],
)
def test_a_job_that_has_always_paused_does_so_by_choice(first: int, pause: float, written: int, told: int) -> None:
    """Ten steps from one to the next, of which the first may have been missed; nobody chooses to save for two fifths,
    but some evaluate for longer than they train."""
    assert len(found(job(pause, (first, first + 10), written=written, before=10, count=40))) == told


@pytest.mark.parametrize(("before", "slower", "told"), [(30, 1.9, 0), (30, 2.1, 1), (10, 2.1, 0)])
def test_a_habit_that_takes_twice_as_long_as_before_is_told(before: int, slower: float, told: int) -> None:
    """Checkpoints of a second and a half after each ten steps, of which the last goes to slow storage."""
    assert len(found(job(1500, (3, 13, 23, 33), before=before, slower={33: slower}, count=40))) == told


@pytest.mark.parametrize(("saved", "told"), [((5, 15, 27, 37, 47), 0), ((27, 37, 47), 1)])
def test_a_habit_is_one_from_its_first_checkpoint_on(saved: Sequence[int], told: int) -> None:
    """The first two fall into steps of short samples, which are no longer for it than steps of long ones are anyway."""
    evidence = job(600, saved, before=40, count=50, samples=400)
    assert len(found(evidence, least_checkpoint=0.05)) == told


def test_checkpoints_that_have_become_slow_are_usual_when_three_quarters_are() -> None:
    saved = tuple(range(3, 60, 10))
    slow = dict.fromkeys(saved, 2.5)
    assert len(found(job(1500, saved, before=50, slower={at: slow[at] for at in saved[3:]}))) == 1
    assert found(job(1500, saved, before=50, slower={at: slow[at] for at in saved[1:]})) == []


@pytest.mark.parametrize(("written", "most"), [(0, 0.5), (STORED, 1.0)])
def test_without_a_write_it_may_be_an_evaluation_and_pages_nobody(written: int, most: float) -> None:
    """Nobody is paged for an even chance."""
    (row,) = found(job(3000, (20, 30), written=written))
    assert row["confidence"] == pytest.approx(most)
    assert ("it may be an evaluation as well as a checkpoint" in row["explanation"]) is (not written)


@pytest.mark.parametrize(("more", "told"), [(0, 1), (9, 1), (11, 0)])
def test_two_pauses_tell_if_they_are_equally_long(more: float, told: int) -> None:
    """1 % of a step of a second is noise."""
    assert len(found(job(3000, (23, 33), written=0, more=more))) == told


@pytest.mark.parametrize(("seconds", "written", "told"), [(10.0, 0, 1), (10.1, 0, 0), (10.1, STORED, 1)])
def test_what_pauses_after_each_few_seconds_computes_unless_it_writes(seconds: float, written: int, told: int) -> None:
    """Ten steps of a second."""
    assert len(found(job(3000, (20, 30), written=written), least_lasting_s=seconds)) == told


def test_pauses_at_any_time_are_no_checkpoints() -> None:
    assert found(job(3000, (33, 39, 54, 61), written=0, count=70)) == []


@pytest.mark.parametrize(("aside", "told"), [(4, 1), (5, 0)])
def test_who_writes_most_at_other_times_does_not_pause_for_it(aside: float, told: int) -> None:
    """Four times 40 MB in pauses, against 33 other steps since the first of them."""
    assert len(found(job(3000, (33, 39, 54, 61), aside=aside, count=70))) == told


@pytest.mark.parametrize(("saved", "told"), [((43, 63), 0), ((51, 63), 1)])
def test_what_else_a_job_pauses_for_makes_its_checkpoints_no_more_frequent(saved: Sequence[int], told: int) -> None:
    """After twenty steps a pause of a step and a half takes little, after twelve it takes too much."""
    assert len(found(job(pause=1500, saved=saved, count=70, long=(47, 57, 67)))) == told


@pytest.mark.parametrize(("written", "saving"), [(900_000, []), (1_100_000, ["j"])])
def test_who_saves_by_habit_is_known_to_save(written: int, saving: list[str]) -> None:
    assert checkpoints.saving_jobs(job(saved=(3, 9, 24, 31), written=written), DEFAULT)["job_id"].to_list() == saving


def test_a_log_file_is_no_checkpoint() -> None:
    assert found(job(3000, (33, 39, 54, 61), written=900_000, count=70)) == []
    assert len(found(job(3000, (33, 39, 54, 61), written=1_100_000, count=70))) == 1


def test_when_only_some_pause_it_is_no_checkpoint() -> None:
    """The others send what they have as early as ever, and wait: a data loader or a garbage collection."""
    assert found(job(early="abc")) == []


def test_pauses_of_the_look_back_alone_are_no_news() -> None:
    assert found(job(count=65, before=60)) == []
    assert len(found(job(count=60, before=50))) == 1


def test_a_job_that_hangs_has_no_stalls() -> None:
    class Hung:
        class gap:  # noqa: N801
            job_id = "j"

    assert found(dataclasses.replace(job(), silences=[Hung()])) == []  # type: ignore[list-item]


def test_rows_in_any_order_tell_the_same() -> None:
    evidence = dataclasses.replace(job(), steps=job().history)
    mixed = dataclasses.replace(shuffled(evidence, 7), storage=evidence.storage[::-1])
    assert found(mixed) == found(evidence)


def test_no_evidence_no_rows() -> None:
    nothing = without_rows(dataclasses.replace(job(), steps=job().history))
    assert_frame_equal(checkpoints.find(nothing, DEFAULT), pl.DataFrame(schema=FINDING_SCHEMA))
