"""Rare steps in which somebody keeps all others waiting are stalls; where every step has one, lengths are uneven."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from handmade import MS
from job_evidence import DEFAULT, lengthened, shuffled, without_rows, working
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.pauses import stalls

NICS = "abcdefgh"


def stalling(
    by: Mapping[int, tuple[str, float]], steps: int = 12, whole_step: bool = True, differ: float = 0.0
) -> Evidence:
    """Return steps in some of which one NIC is ready so many ms later, and which are longer for it; what all others
    need may `differ` from step to step, by this ratio up and down."""
    ready = {addr: [400.0 * (1 + differ * (0, 1, -1)[step % 3]) for step in range(steps)] for addr in NICS}
    for step, (addr, more) in by.items():
        ready[addr][step] += more
    return lengthened(working([ready], paid=False), {step: more for step, (_, more) in by.items() if whole_step})


def found(evidence: Evidence, **changed: Any) -> pl.DataFrame:
    return stalls.find(evidence, dataclasses.replace(DEFAULT, **changed))


def named(evidence: Evidence, **changed: Any) -> list[tuple[str, str, str]]:
    return found(evidence, **changed).select("kind", "subject_type", "subject").rows()


JOB = [("stalls", "job", "j")]


def test_rare_stalls_of_other_ranks_are_the_job_s() -> None:
    rows = found(stalling({2: ("a", 500), 5: ("d", 500), 9: ("g", 500)}))
    assert rows.select("kind", "subject_type", "subject").rows() == JOB
    row = rows.row(0, named=True)
    # 1.5 of 13.5 seconds.
    assert row["severity"] == pytest.approx((1.5 / 13.5) / (12 / 13.5))
    assert row["confidence"] == 1
    assert "3 of 12 steps stall for 500 ms on average" in row["explanation"]


@pytest.mark.parametrize(("count", "steps", "rows"), [(9, 12, JOB), (3, 6, JOB), (4, 6, [])], ids=str)
def test_stalls_may_be_frequent_while_a_quarter_of_the_steps_and_three_show_what_is_usual(
    count: int, steps: int, rows: list[tuple[str, str, str]]
) -> None:
    by = {step: (NICS[step % 8], 500.0) for step in range(count)}
    assert named(stalling(by, steps=steps)) == rows


def test_stalls_of_one_host_are_its_own() -> None:
    """Three of four are some one's of eight by chance in one case of sixteen, all four in one of five hundred."""
    three = dict.fromkeys((2, 5, 9), ("d", 500.0))
    assert named(stalling(three | {10: ("d", 500)})) == [("stalls", "host", "host-d")]
    assert (
        "all other ranks wait for host host-d. Check" in found(stalling(three | {10: ("d", 500)}))["explanation"].item()
    )
    assert named(stalling(three | {10: ("a", 500)})) == JOB


@pytest.mark.parametrize(("whose", "subject"), [("d", "host-d"), ("a", "j")])
def test_shorter_delays_tell_whose_the_stalls_are(whose: str, subject: str) -> None:
    """Three stalls of one host of eight are chance in one case of sixty, six delays of it are not."""
    by = dict.fromkeys((2, 5, 9), ("d", 500.0)) | dict.fromkeys((3, 6, 10), (whose, 30.0))
    assert [row[2] for row in named(stalling(by))] == [subject]


@pytest.mark.parametrize(("whole", "who"), [(True, "host d"), (False, "host d (or the receiver of its first message)")])
def test_in_a_pipeline_nothing_shows_which_end_was_not_ready(whole: bool, who: str) -> None:
    assert stalls._host_words("d", pl.DataFrame({"whole": [whole, whole]})) == who


def test_all_well_is_silent() -> None:
    assert named(stalling({})) == []
    assert_frame_equal(found(without_rows(stalling({}))), pl.DataFrame(schema=FINDING_SCHEMA))


@pytest.mark.parametrize(("by", "rows"), [(160, []), (175, JOB)])
def test_stalls_that_cost_the_window_too_little_are_not_told(by: float, rows: list[tuple[str, str, str]]) -> None:
    """4 % of 12.5 seconds are half a second."""
    assert named(stalling({2: ("a", by), 5: ("d", by), 9: ("g", by)})) == rows


@pytest.mark.parametrize(("by", "rows"), [(90, []), (110, JOB)])
def test_a_pause_of_less_than_a_tenth_of_the_step_is_jitter(by: float, rows: list[tuple[str, str, str]]) -> None:
    assert named(stalling({2: ("a", by), 5: ("d", by), 9: ("g", by)}), least_effect=0.01) == rows


@pytest.mark.parametrize(("count", "rows"), [(2, []), (3, JOB)])
def test_two_stalls_are_chance(count: int, rows: list[tuple[str, str, str]]) -> None:
    assert named(stalling({step: (NICS[step], 500) for step in range(2, 2 + count)})) == rows


def test_long_steps_for_which_nobody_is_late_are_no_stalls() -> None:
    """Half of the excess is somebody's, or less: the others' is the network's, or a checkpoint's."""
    evidence = stalling({2: ("a", 500), 5: ("d", 500), 9: ("g", 500)})
    slowly = stalling({2: ("a", 200), 5: ("d", 200), 9: ("g", 200)}, whole_step=False)
    assert named(dataclasses.replace(slowly, steps=evidence.steps)) == []


@pytest.mark.parametrize(("usual", "rows"), [(0.06, JOB), (0.075, [])])
def test_stalls_are_later_than_any_sample_is_long(usual: float, rows: list[tuple[str, str, str]]) -> None:
    """Ten deviations of a tenth of 400 ms, where all others' differ by 6.7 %."""
    assert named(stalling({2: ("a", 400), 5: ("d", 400), 9: ("g", 400)}, differ=usual)) == rows


def every_step(by: float, *, whole_step: bool = True) -> Evidence:
    """Return steps in each of which another NIC is ready later, by 30 ms less or more, while samples differ by 10 %."""
    more = {step: (NICS[step % 8], by + 30 * (-1) ** step) for step in range(12)}
    return stalling(more, whole_step=whole_step, differ=0.1)


@pytest.mark.parametrize(("usual", "rows"), [(140, JOB), (160, [])])
def test_stalls_stand_apart_from_what_every_step_has(usual: float, rows: list[tuple[str, str, str]]) -> None:
    """Half of the 300 ms of a stall; samples of uneven length hold up steps by more or less."""
    often = {step: (NICS[step % 8], usual * (1 - 0.4 * (step % 2))) for step in range(12)}
    assert named(stalling(often | {2: ("a", 300), 5: ("d", 300), 9: ("g", 300)}), least_effect=0.01) == rows


@pytest.mark.parametrize(("by", "kinds"), [(240, []), (260, ["uneven_micro_batches"])])
def test_another_late_one_in_every_step_is_uneven(by: float, kinds: list[str]) -> None:
    """A fifth of 1250 ms is 250 ms."""
    assert [kind for kind, _, _ in named(every_step(by), least_uneven=0.2)] == kinds
    assert named(every_step(260)) == []


def test_lateness_that_no_step_pays_for_is_not_uneven() -> None:
    """Silences that stalls cut in two look uneven, while all steps take equally long."""
    assert named(every_step(300, whole_step=False), least_uneven=0.2) == []


@pytest.mark.parametrize(
    ("mean", "whose", "subject"), [(120, "d" * 12, "d"), (105, "d" * 12, None), (120, "abcdefghabcd", None)]
)
def test_who_waits_for_data_is_late_by_next_to_nothing_now_and_then(
    mean: float, whose: str, subject: str | None
) -> None:
    """Two thirds of the delays are shorter than a tenth of the step; the mean counts."""
    late = [mean * (0.1, 0.3, 2.6)[step % 3] * MS for step in range(12)]
    steps = pl.DataFrame({"host": list(whose), "behind_ns": late}).with_columns(
        hosts=8, length_ns=1000 * MS + pl.col("behind_ns"), first_ns=70 * MS + pl.col("behind_ns"), later_ns=150.0 * MS,
        first_excess=pl.col("behind_ns") / (70 * MS), later_excess=0.0, last_stage=False, whole=False,
        beyond_at_first=True, start_ns=pl.int_range(12) * 1000 * MS, end_ns=pl.int_range(1, 13) * 1000 * MS,
    )  # fmt: skip
    row = stalls._late_start_row("j", steps, DEFAULT)
    assert (row and (row["kind"], row["subject"])) == (subject and ("stalls", subject))


def test_one_that_is_always_late_is_no_stall_and_not_uneven() -> None:
    assert named(stalling(dict.fromkeys(range(12), ("d", 400)))) == []


def test_the_order_of_rows_does_not_matter() -> None:
    evidence = stalling({2: ("a", 500), 5: ("d", 500), 9: ("g", 500)})
    assert_frame_equal(found(shuffled(evidence, 3)), found(evidence))
