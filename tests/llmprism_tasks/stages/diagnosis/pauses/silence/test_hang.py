"""A hang names who went quiet first, a crash is told and wakes nobody, and the end of the data is nobody's trouble."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from handmade import MS, WINDOW
from job_evidence import DEFAULT, working
from polars.testing import assert_frame_equal

from llmprism_tasks.numerics.robust import EVEN_ODDS, SURE
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.pauses.silence import hang
from llmprism_tasks.stages.liveness.overdue import Silence
from llmprism_tasks.stages.liveness.progress.step_progress import StepProgress
from llmprism_tasks.stages.liveness.quiet_times import Gap

PERIOD = 2000
SINCE = 20_000

Due = tuple[str, str, float, float]
"""Whom a NIC was due to send to, since when, and when it sent its last: ms before the silence."""

FIRST_B: list[Due] = [("b", "c", 900, 1000), ("c", "d", 600, 700), ("d", "a", 300, 400), ("a", "b", 100, 200)]
"""`b` owed something to `c`, which went on for a while."""
OPEN_B: list[Due] = [("b", "c", 900, 1000), ("c", "d", 600, 950), ("d", "a", 300, 400), ("a", "b", 100, 200)]
"""The same, but `c` was not seen any more either."""
ALL_AT_ONCE: list[Due] = [(src, dst, -500, 0) for src, dst, *_ in FIRST_B]
"""Nobody owed anything yet."""


def stood(due: Sequence[Due], *, even: bool = False, lasts: float = 0.0) -> StepProgress:
    silent_ns = WINDOW.start_ns + SINCE * MS
    sends = pl.DataFrame(
        [
            (src, dst, 5.0 * MS, lasts * MS, *(round(silent_ns - at * MS) for at in (late, last, last)))
            for src, dst, late, last in due
        ],
        schema=["addr", "to", "noise_ns", "lasts_ns", "due_ns", "last_ns", "heard_ns"],
        orient="row",
    ).with_columns(lost=0.0, rest_ns="lasts_ns")
    # Each answers, so that it is no ring.
    pairs = sends.select(src_addr="addr", dst_addr="to", last_ns="last_ns")
    return StepProgress(
        midway=True,
        ended_ns=WINDOW.start_ns,
        silent_ns=silent_ns,
        period_ns=PERIOD * MS,
        even=even,
        may_end=even,
        pairs=pl.concat([pairs, pairs.select(src_addr="dst_addr", dst_addr="src_addr", last_ns="last_ns")]),
        next_sends=sends,
        lost=1e-6,
    )


def evidence(
    due: Sequence[Due],
    *,
    over: bool = False,
    restarted: bool = False,
    alone: bool = False,
    hosts: Mapping[str, str] | None = None,
    even: bool = False,
    lasts: float = 0.0,
    in_place: float = 0.0,
) -> Evidence:
    """Return evidence about a job that is silent for 20 s; `lasts` is how long what was due takes, ms."""
    since, until = (WINDOW.start_ns + at * MS for at in (SINCE, 2 * SINCE))
    gap = Gap("j", since, until if over else None, PERIOD * MS)
    where = stood(due, even=even, lasts=lasts)
    told = Silence(gap, until, restarted=restarted, alone=alone, where=where, in_place=in_place)
    addrs = sorted({addr for row in due for addr in row[:2]})
    well = working([{addr: [500.0] * 10 for addr in addrs}], hosts=hosts)
    return dataclasses.replace(well, silences=[told])


def named(told: Evidence) -> list[tuple[str, str, str]]:
    return hang.find(told, DEFAULT).select("kind", "subject_type", "subject").rows()


def test_who_was_due_first_is_named_with_what_it_costs() -> None:
    rows = hang.find(evidence(FIRST_B), DEFAULT)
    assert rows.schema == pl.Schema(FINDING_SCHEMA)
    (row,) = rows.to_dicts()
    assert (row["kind"], row["subject_type"], row["subject"]) == ("hang", "addr", "b")
    assert (row["start_ns"], row["end_ns"]) == (WINDOW.start_ns + SINCE * MS, WINDOW.start_ns + 2 * SINCE * MS)
    assert (row["severity"], row["score"]) == (10, 10)
    assert row["peers"] == ["a", "c", "d"]
    assert (row["confidence"], row["candidates"], row["odds"]) == (SURE, None, None)
    was = "in the middle of a step of 2.0 s, and had been silent for 20 s when the window ended"
    assert f"{was}. NIC b stopped first: it was the first that was due to send" in row["explanation"]


def test_of_two_that_may_have_stopped_first_nobody_is_accused() -> None:
    (row,) = hang.find(evidence(OPEN_B), DEFAULT).to_dicts()
    assert (row["kind"], row["subject_type"], row["subject"]) == ("hang", "job", "j")
    assert row["candidates"] == ["host-b", "host-c"]
    assert row["odds"] == pytest.approx([0.75, 0.25], abs=0.02)
    assert sum(row["odds"]) == 1
    assert row["confidence"] == EVEN_ODDS
    assert "It is not sure which host stopped first: host-b (75%), host-c (25%)." in row["explanation"]


def test_if_only_one_may_have_but_all_may_have_stopped_together_it_is_said_so() -> None:
    due: list[Due] = [("b", "c", 30, 1000), ("c", "b", -500, 0)]
    (row,) = hang.find(evidence(due), DEFAULT).to_dicts()
    assert (row["subject_type"], row["candidates"]) == ("job", ["host-b", "together"])
    assert row["odds"] == pytest.approx([0.76, 0.24], abs=0.05)
    assert sum(row["odds"]) == 1
    assert re.search(
        r"not sure which host stopped first: host-b \(\d\d%\), all together, as when a job is killed \(\d\d%\)\. ",
        row["explanation"],
    )


def test_of_a_job_that_may_have_been_killed_amid_a_long_exchange_no_host_is_accused() -> None:
    """A collector that writes records of whole messages shows neither what was under way."""
    due: list[Due] = [("b", "c", 200, 1000), ("c", "d", -500, 0), ("d", "b", -500, 0)]
    (row,) = hang.find(evidence(due), DEFAULT).to_dicts()
    assert (row["subject_type"], row["subject"], row["candidates"]) == ("addr", "b", None)
    (row,) = hang.find(evidence(due, lasts=300), DEFAULT).to_dicts()
    assert (row["kind"], row["subject_type"], row["candidates"]) == ("hang", "job", ["host-b", "together"])
    assert row["odds"] == pytest.approx([0.727, 0.273], abs=0.01)


def test_where_nothing_was_due_all_members_stopped_at_the_same_moment() -> None:
    (row,) = hang.find(evidence(ALL_AT_ONCE), DEFAULT).to_dicts()
    assert (row["kind"], row["subject_type"], row["severity"]) == ("stopped", "job", 0)
    assert row["explanation"].endswith("All members stopped at the same moment.")


@pytest.mark.parametrize(("places", "told"), [(20.0, True), (4.0, False)])
@pytest.mark.parametrize(("over", "restarted"), [(False, False), (True, True)])
def test_at_one_of_many_pauses_a_silent_job_hangs(places: float, told: bool, over: bool, restarted: bool) -> None:
    """The chance that this is the pause between two steps is one in so many; that of a hang is what they last."""
    known = evidence(ALL_AT_ONCE, even=True, over=over, restarted=restarted)
    lengths = tuple((PERIOD + 10 * (at % 3)) * MS for at in range(40))
    (one,) = known.silences
    where = dataclasses.replace(one.where, places=places, paused=0.8, lengths_ns=lengths)
    rows = hang.find(dataclasses.replace(known, silences=[dataclasses.replace(one, where=where)]), DEFAULT).to_dicts()
    assert [(row["kind"], row["subject_type"], row["confidence"]) for row in rows] == [
        ("stopped", "job", EVEN_ODDS)
    ] * told
    if told and not over:
        assert "All members had come equally far: the job was killed, or it hangs" in rows[0]["explanation"]


def test_lock_step_peers_are_their_host() -> None:
    hosts = {f"{addr}{at}": f"host-{addr}" for addr in "abcd" for at in (1, 2)}
    both = [(f"{src}{at}", f"{dst}{at}", late, last) for src, dst, late, last in FIRST_B for at in (1, 2)]
    (row,) = hang.find(evidence(both, hosts=hosts), DEFAULT).to_dicts()
    assert (row["subject_type"], row["subject"]) == ("host", "host-b")
    assert row["peers"] == ["a1", "a2", "c1", "c2", "d1", "d2"]


def test_who_begins_anew_was_stopped_and_who_stopped_first_is_named_if_one_did() -> None:
    (row,) = hang.find(evidence(FIRST_B, over=True, restarted=True), DEFAULT).to_dicts()
    assert (row["kind"], row["subject"], row["severity"]) == ("stopped", "b", 0)
    assert "until it restarted. NIC b was the first" in row["explanation"]
    (row,) = hang.find(evidence(ALL_AT_ONCE, over=True, restarted=True), DEFAULT).to_dicts()
    assert (row["kind"], row["subject_type"], row["severity"]) == ("stopped", "job", 0)
    assert row["explanation"].endswith("was silent for 20 s until it restarted.")


@pytest.mark.parametrize(
    ("replaced", "subject"),
    [
        ({"x": "host-x"}, ("addr", "x")),
        ({"x": "host-x", "y": "host-x"}, ("host", "host-x")),
        ({"x": "host-x", "y": "host-y"}, ("job", "j")),
    ],
)
def test_who_is_replaced_when_the_job_begins_anew_had_failed(
    replaced: Mapping[str, str], subject: tuple[str, str]
) -> None:
    crashed = evidence(ALL_AT_ONCE, over=True, restarted=True)
    (one,) = crashed.silences
    told = dataclasses.replace(one, replaced=replaced, replacements=("a",))
    (row,) = hang.find(dataclasses.replace(crashed, silences=[told]), DEFAULT).to_dicts()
    assert (row["kind"], row["subject_type"], row["subject"]) == ("stopped", *subject)
    named_one = subject[0] != "job"
    assert row["explanation"].endswith("was replaced by host-a.") == named_one
    assert row["confidence"] == (SURE if named_one else EVEN_ODDS)


def test_a_job_that_came_equally_far_had_crashed_if_one_was_replaced() -> None:
    ended = evidence(ALL_AT_ONCE, over=True, restarted=True, even=True)
    assert named(ended) == []
    told = dataclasses.replace(ended.silences[0], replaced={"x": "host-x"}, replacements=("a",))
    assert named(dataclasses.replace(ended, silences=[told])) == [("stopped", "addr", "x")]


def test_who_goes_on_after_a_while_hung() -> None:
    """A job that goes on by itself did not stop as a whole, though nobody owed anything when it fell silent."""
    (row,) = hang.find(evidence(FIRST_B, over=True), DEFAULT).to_dicts()
    assert (row["kind"], row["subject"]) == ("hang", "b")
    assert "until it went on" in row["explanation"]
    (row,) = hang.find(evidence(ALL_AT_ONCE, over=True), DEFAULT).to_dicts()
    assert (row["kind"], row["subject_type"]) == ("hang", "job")


@pytest.mark.parametrize(
    ("due", "changed", "sure"),
    [
        (FIRST_B, {"alone": True}, 0.9),
        (FIRST_B, {"alone": True, "over": True}, 0.9),
        ([("b", "c", 30, 1000), ("c", "b", -500, 0)], {}, 0.5),
        ([("b", "c", 30, 1000), ("c", "b", -500, 0)], {"alone": True}, 0.25),
    ],
    ids=["it was overdue", "it went on", "others are seen", "nobody is seen"],
)
def test_where_nothing_else_is_seen_the_collector_may_have_stopped(
    due: list[Due], changed: dict[str, bool], sure: float
) -> None:
    """Less than an even chance pages nobody."""
    (row,) = hang.find(evidence(due, **changed), DEFAULT).to_dicts()
    assert (row["kind"], row["confidence"]) == ("hang", sure)
    assert ("the collector may have stopped instead" in row["explanation"]) == (sure < 0.5)


@pytest.mark.parametrize(
    "changed",
    [{"even": True}, {"alone": True}, {"even": True, "over": True}, {"even": True, "over": True, "restarted": True}],
)
def test_where_all_have_come_equally_far_or_nobody_is_seen_the_job_may_have_ended_or_paused(
    changed: dict[str, bool],
) -> None:
    assert named(evidence(ALL_AT_ONCE, **changed)) == []
    assert named(evidence(FIRST_B, **changed))[0][1:] == ("addr", "b")


def test_who_goes_on_where_it_stood_hung_though_nobody_else_is_seen() -> None:
    assert named(evidence(ALL_AT_ONCE, alone=True, over=True, in_place=SURE - 0.01)) == []
    assert named(evidence(ALL_AT_ONCE, alone=True, over=True, in_place=SURE)) == [("hang", "job", "j")]


def test_no_silence_no_rows() -> None:
    well = dataclasses.replace(evidence(FIRST_B), silences=())
    assert_frame_equal(hang.find(well, DEFAULT), pl.DataFrame(schema=FINDING_SCHEMA))
