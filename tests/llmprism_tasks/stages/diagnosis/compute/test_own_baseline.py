"""Where half of a job is slow, peers tell nothing: its own quick steps do, and hops that begin at one moment."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import polars as pl
import pytest
from handmade import MB, Row
from job_evidence import DEFAULT, shuffled, without_rows, working
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.compute import slow_compute
from llmprism_tasks.stages.diagnosis.compute.own_baseline import against_past, lone_against_past, quick_steps
from llmprism_tasks.stages.diagnosis.evidence import Evidence

SETTINGS = dataclasses.replace(DEFAULT, least_lasting_s=0)

STEPS, ONSET = 16, 8
"""Steps of a second each, and the first slow one."""


def named(evidence: Evidence) -> list[str]:
    found = slow_compute.find(evidence, SETTINGS)
    assert set(found["kind"]) <= {"slow_compute"}
    return sorted(found["subject"])


def ring(late: Mapping[str, float], members: str = "abcd", onset: int = ONSET, jitter: float = 7) -> Evidence:
    """Return a ring whose members are ready after half a second, give or take; some are later from a step on, in ms."""
    ready = {
        addr: [
            500 + jitter * ((7 * i + 5 * step) % 3 - 1) + late.get(addr, 0) * (step >= onset) for step in range(STEPS)
        ]
        for i, addr in enumerate(members)
    }
    return working([ready])


@pytest.mark.parametrize("pair", ["ab", "ac", "bc", "bd"])
@pytest.mark.parametrize("second", [300, 200])
def test_two_of_four_replicas_are_named(pair: str, second: float) -> None:
    """Side by side; of two opposite ones the later one, for whoever is between them begins with it. If they are late by
    the same, they look like four late ones."""
    opposite = pair in ("ac", "bd")
    names = ([] if second == 300 else [pair[0]]) if opposite else list(pair)
    assert named(ring({pair[0]: 300, pair[1]: second})) == names


@pytest.mark.parametrize(("others", "names"), [(0, ["b"]), (260, ["b"]), (280, []), (290, [])])
def test_where_all_are_late_alike_the_last_of_them_is_not_to_blame(others: float, names: list[str]) -> None:
    """Up to 4 % of 800 ms later than all others: a host may be that much slower for ever."""
    assert named(ring(dict.fromkeys("acd", others) | {"b": 300})) == names


def test_they_are_compared_with_what_they_used_to() -> None:
    row = slow_compute.find(ring({"a": 300, "c": 200}), SETTINGS).row(0, named=True)
    assert (row["subject"], row["peers"]) == ("a", None)
    assert "1.60 times as long as it used to" in row["explanation"]


def lone(stages: int, more: Mapping[int, float], *, piped: bool = True) -> list[float | None]:
    """Return the excess of each stage without replicas in the last of six steps, whose samples are half longer.

    Parameters
    ----------
    more : how many times as long as its samples make it a stage takes in that step
    """
    work = pl.DataFrame(
        {"job_id": "j", "addr": str(stage), "step_index": step, "current": step == 5, "excess": None,
         "pace": (1.0 + stage) * (1.0 if step < 5 else 1.5 * more.get(stage, 1.0)),
         "last_stage": False if piped else None}
        for stage in range(stages) for step in range(6)
    ).cast({"excess": pl.Float64, "last_stage": pl.Boolean})  # fmt: skip
    return [round(value, 9) for value in lone_against_past(work).filter("current").sort("addr")["excess"]]


def test_what_most_stages_take_longer_is_the_samples() -> None:
    assert lone(4, {}) == [0, 0, 0, 0]
    assert lone(4, {2: 1.4}) == pytest.approx([0, 0, 0.4, 0])
    assert lone(3, {2: 1.4}) == pytest.approx([0, 0, 0.4])
    assert lone(4, {1: 1.4, 2: 1.4}) == pytest.approx([0, 0.4, 0.4, 0])


def test_of_two_stages_or_outside_pipelines_nobody_can_tell_what_the_samples_are() -> None:
    """All NICs of a ring are silent alike, whichever of them computes."""
    assert lone(2, {1: 1.4}) == pytest.approx([0.5, 1.1])
    assert lone(4, {1: 1.4}, piped=False) == pytest.approx([0.5, 1.1, 0.5, 0.5])


def test_without_a_past_nobody_can_tell() -> None:
    assert named(ring({"a": 300, "c": 300}, onset=0)) == []


def test_of_two_that_are_late_at_the_very_same_moments_nobody_can_tell() -> None:
    """The other two may be as well: all hops begin together either way."""
    assert named(ring({"a": 300, "c": 300}, jitter=0)) == []


def test_of_two_hosts_nobody_can_tell() -> None:
    assert named(ring({"a": 300}, "ab")) == named(ring({"a": 300, "b": 200}, "ab")) == []


def test_more_work_for_all_is_nobody_s_fault() -> None:
    assert named(ring(dict.fromkeys("abcd", 300.0))) == []


@pytest.mark.parametrize(("late", "compared"), [("a", False), ("ab", True)])
def test_peers_tell_as_long_as_most_of_them_work_as_they_used_to(late: str, compared: bool) -> None:
    evidence = ring(dict.fromkeys(late, 300.0))
    assert against_past(evidence, SETTINGS).is_empty() != compared
    assert named(evidence) == list(late)


@pytest.mark.parametrize(("members", "compared"), [("abcd", True), ("abcde", False), ("abcdef", False)])
def test_more_than_four_replicas_are_peers_enough(members: str, compared: bool) -> None:
    """Half of them, or more, are late."""
    evidence = ring(dict.fromkeys("abc" if len(members) > 4 else "ab", 300.0), members)
    assert against_past(evidence, SETTINGS).is_empty() != compared


def test_quick_steps_are_those_before_it_began() -> None:
    steps = quick_steps(ring({"a": 300, "c": 200}), SETTINGS)
    assert sorted(steps["step_index"].unique()) == list(range(ONSET))
    assert quick_steps(ring({}), SETTINGS).is_empty()


def stages(first: tuple[float, float], last: tuple[float, float], onset: int = ONSET) -> Evidence:
    """Return two replicas of two stages that take so many times as long as 100 and 200 ms from a step on."""
    pp: list[Row] = []
    spent = []
    for step in range(STEPS):
        slow = (first, last) if step >= onset else ((1, 1), (1, 1))
        begin = sum(spent)
        times = [(100 * slow[0][i], 200 * slow[1][i]) for i in range(2)]
        for (one, other), (forward, both) in zip(("ac", "bd"), times, strict=True):
            came = begin + forward + 2 + both
            pp += [(begin + forward, begin + forward + 2, one, other, 8 * MB), (came, came + 2, other, one, 8 * MB)]
        spent.append(1000 + 2 * (max(sum(each) for each in times) - 300))
    ready = [{addr: [length - 200 for length in spent] for addr in stage} for stage in ("ab", "cd")]
    return working(ready, pp=pp)


@pytest.mark.parametrize(
    ("first", "last", "names"),
    [
        ((1.5, 1), (1, 1.5), ["a", "d"]),
        ((1, 1.5), (1.5, 1), ["b", "c"]),
        ((1, 1), (1, 1), []),
        ((1.5, 1.5), (1, 1), []),
        ((1.6, 1.2), (1, 1), ["a"]),
    ],
)
def test_one_replica_of_each_stage_is_named_and_what_a_stage_has_in_common_is_not(
    first: tuple[float, float], last: tuple[float, float], names: list[str]
) -> None:
    assert named(stages(first, last)) == names


def test_no_evidence_no_rows() -> None:
    evidence = ring({"a": 300, "c": 200})
    none = against_past(without_rows(evidence), SETTINGS)
    assert none.is_empty()
    assert none.schema == against_past(evidence, SETTINGS).schema


def test_rows_may_come_in_any_order() -> None:
    evidence = ring({"a": 300, "c": 200})
    expected = slow_compute.find(evidence, SETTINGS)
    for seed in range(6):
        assert_frame_equal(slow_compute.find(shuffled(evidence, seed), SETTINGS), expected)
