"""A silence between two steps is told once: as a pause if the job went on, else with what it may be."""

from __future__ import annotations

import dataclasses
from typing import Any

import polars as pl
import pytest
from handmade import MS, WINDOW
from job_evidence import DEFAULT, working

from llmprism_tasks.numerics.robust import EVEN_ODDS, SURE
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, PAUSES_SCHEMA, STORAGE_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.pauses.habit import CHECKPOINT_BYTES, FIRST_SAVE
from llmprism_tasks.stages.diagnosis.pauses.silence import between_steps
from llmprism_tasks.stages.liveness.overdue import Silence
from llmprism_tasks.stages.liveness.progress.step_progress import StepProgress
from llmprism_tasks.stages.liveness.quiet_times import Gap

PERIOD = 4000
SINCE = 20_000
PAIRS = {"src_addr": pl.String, "dst_addr": pl.String, "late_ns": pl.Int64, "noise_ns": pl.Int64, "sent": pl.Int64}


def silence(*, until: float = 50_000, back: bool = False, longest: float = 2000, **changed: Any) -> Silence:
    since_ns, until_ns = (WINDOW.start_ns + round(at * MS) for at in (SINCE, until))
    where = StepProgress(
        midway=False,
        ended_ns=since_ns,
        silent_ns=since_ns,
        period_ns=PERIOD * MS,
        even=True,
        may_end=True,
        pairs=pl.DataFrame(schema=PAIRS),
        next_sends=pl.DataFrame(schema=PAIRS),
        lengths_ns=tuple((PERIOD + 10 * (at % 3)) * MS for at in range(40)),
    )
    gap = Gap("j", since_ns, until_ns if back else None, round(longest * MS))
    one = Silence(gap, until_ns, restarted=False, alone=False, where=where, in_mid_step=False)
    return dataclasses.replace(one, **changed)


def evidence(*rests: Silence) -> Evidence:
    return dataclasses.replace(working([{"a": [500.0] * 4, "b": [500.0] * 4}]), rests=rests)


def told(*rests: Silence) -> list[dict[str, Any]]:
    rows = between_steps.find(evidence(*rests), DEFAULT)
    assert rows.schema == pl.Schema(FINDING_SCHEMA)
    return rows.to_dicts()


def test_who_is_silent_after_a_whole_step_may_have_ended_or_hang() -> None:
    (row,) = told(silence())
    assert (row["kind"], row["subject_type"], row["subject"], row["severity"]) == ("ended", "job", "j", 0)
    may_be = dict(zip(row["candidates"], row["odds"], strict=True))
    assert list(may_be) == ["ended", "hung", "paused"]
    assert sum(may_be.values()) == pytest.approx(1)
    assert may_be["ended"] == row["confidence"] > may_be["hung"] > may_be["paused"]
    assert "fell silent after the end of a step of 4.0 s, and was silent for at least 30 s" in row["explanation"]


@pytest.mark.parametrize(("longest", "hung"), [(4000, 0.5), (1000, 0.2), (40, 0.01)])
def test_a_hang_is_the_likelier_the_longer_a_step_is_silent_by_itself(longest: float, hung: float) -> None:
    (row,) = told(silence(longest=longest))
    assert dict(zip(row["candidates"], row["odds"], strict=True))["hung"] == pytest.approx(hung, abs=0.005)


@pytest.mark.parametrize(("midway", "places", "hung"), [(True, 25, 0.93), (True, 1, 0.33), (False, 25, 0.33)])
def test_who_exchanges_data_in_every_layer_and_stops_within_a_step_hangs(
    midway: bool, places: int, hung: float
) -> None:
    """Half of the step is pauses, and the job is at one of them."""
    one = silence()
    where = dataclasses.replace(one.where, midway=midway, places=places, paused=0.5)
    (row,) = told(dataclasses.replace(one, in_mid_step=midway, where=where))
    assert dict(zip(row["candidates"], row["odds"], strict=True))["hung"] == pytest.approx(hung, abs=0.01)


def test_who_pauses_so_long_now_and_then_may_still_pause() -> None:
    usual = silence()
    uneven = tuple(round(PERIOD * factor) * MS for factor in [0.2, 0.5, 1, 2, 5] * 8)
    (row,) = told(dataclasses.replace(usual, where=dataclasses.replace(usual.where, lengths_ns=uneven)))
    assert dict(zip(row["candidates"], row["odds"], strict=True))["paused"] > 0.9


def test_who_went_on_has_paused_and_the_row_says_for_how_long() -> None:
    (row,) = told(silence(back=True))
    assert (row["kind"], row["steps"]) == ("cross_step", 1)
    assert row["lost_s"] == pytest.approx(28)
    assert "was silent for 30.0 s until it went on" in row["explanation"]


def test_a_pause_that_nothing_else_shows_is_told_with_the_chance_that_the_collector_stopped() -> None:
    (row,) = told(silence(back=True, alone=True, in_place=SURE))
    assert (row["kind"], row["steps"], row["candidates"]) == ("cross_step", 1, None)
    assert "it paused (90%), or the collector stopped (10%)" in row["explanation"]
    assert told(silence(back=True, alone=True, in_place=SURE - 0.01)) == []
    mid_step = {
        "in_mid_step": True,
        "where": dataclasses.replace(silence().where, midway=True, even=False, may_end=False),
    }
    assert told(silence(back=True, alone=True, **mid_step)) == []


@pytest.mark.parametrize(
    ("ago", "written", "sure"),
    [(PERIOD + 1, 1.0, 1.0), (PERIOD - 1, 1.0, EVEN_ODDS), (PERIOD + 1, 0.9, EVEN_ODDS), (None, 0.0, EVEN_ODDS)],
    ids=["saved before", "only now", "a log", "nothing"],
)
def test_who_wrote_to_storage_first_has_saved_a_checkpoint(ago: float | None, written: float, sure: float) -> None:
    """Nobody knows of the first one that is seen whether the job saves like that each time."""
    rest = silence(back=True, saved=10**9)
    at = [] if ago is None else [("j", WINDOW.start_ns + round((SINCE - ago) * MS), round(written * CHECKPOINT_BYTES))]
    storage = pl.DataFrame(at, STORAGE_SCHEMA, orient="row")
    (row,) = between_steps.find(dataclasses.replace(evidence(rest), storage=storage), DEFAULT).to_dicts()
    assert (row["kind"], row["confidence"]) == ("checkpoint_stall", sure)
    assert "after its members began to write 1,000 MB to storage" in row["explanation"]
    assert (FIRST_SAVE in row["explanation"]) == (sure < 1)


@pytest.mark.parametrize(("ago", "kind"), [(PERIOD - 1000, "checkpoint_stall"), (PERIOD + 1000, "ended")])
def test_who_was_writing_less_than_a_step_ago_still_saves(ago: float, kind: str) -> None:
    (row,) = told(silence(saved=10**9, wrote_ns=WINDOW.start_ns + round((50_000 - ago) * MS)))
    assert row["kind"] == kind
    assert ("and was still writing" in row["explanation"]) == (kind == "checkpoint_stall")


@pytest.mark.parametrize(("before", "saved", "rows"), [(14_900, 0, 1), (15_100, 0, 0), (15_100, 10**9, 0)])
def test_a_pause_is_told_if_it_takes_twice_as_long_as_those_before(before: float, saved: int, rows: int) -> None:
    """It takes 30 s, and a checkpoint is a pause as well."""
    told_of = evidence(silence(back=True, saved=saved))
    back_ns = WINDOW.start_ns - 60_000 * MS
    known = pl.DataFrame([("j", back_ns - round(before * MS), back_ns)], schema=PAUSES_SCHEMA, orient="row")
    assert between_steps.find(dataclasses.replace(told_of, pauses=known), DEFAULT).height == rows


def test_who_began_anew_had_ended() -> None:
    (row,) = told(silence(back=True, restarted=True))
    assert row["kind"] == "ended"
    assert list(dict(zip(row["candidates"], row["odds"], strict=True))) == ["ended", "hung"]
    assert "for 30 s until it began anew" in row["explanation"]


def test_in_mid_step_with_nothing_else_seen_the_collector_may_have_stopped() -> None:
    """Where members are at different points; else the job may have ended, and the capture with it."""
    one = silence(alone=True, in_mid_step=True)
    assert told(one) == []
    (row,) = told(
        dataclasses.replace(one, where=dataclasses.replace(one.where, midway=True, even=False, may_end=False))
    )
    may_be = dict(zip(row["candidates"], row["odds"], strict=True))
    assert (row["kind"], list(may_be), row["confidence"]) == ("ended", ["hung", "unseen", "paused"], 0)
    assert may_be["unseen"] == may_be["hung"] == pytest.approx(0.5, abs=0.001)
    assert "No other flow was seen since. " in row["explanation"]
    assert "the collector stopped" in row["explanation"]


@pytest.mark.parametrize("changed", [{"alone": True}, {"is_news": False}])
def test_what_was_told_or_may_be_the_collectors_silence_is_not_told(changed: dict[str, Any]) -> None:
    assert told(silence(**changed)) == []
