"""Who begins its steps late and works on as quickly as ever stood still; who computes slowly is slow again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import polars as pl
import pytest
from handmade import MB, Row
from job_evidence import DEFAULT, STEP, groups, history, kinds, shuffled, steps, without_rows, working
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.compute import slow_compute
from llmprism_tasks.stages.diagnosis.compute.later_work import at_first, later_work
from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.pauses import stalls

NICS = "abcdefgh"
FIRST, LATER, COUNT = 400.0, 200.0, 12
"""ms that each NIC works before a step's first exchange and before the second, and how many steps there are."""

Rows = list[tuple[str, str, str]]


def exchanging(
    who: Sequence[str],
    more: Sequence[float],
    later: Sequence[float] = (LATER,),
    *,
    first: Sequence[float] = (FIRST,),
    paid: bool = True,
) -> Evidence:
    """Return steps with two exchanges, in each of which one NIC is ready for the first so many ms later.

    Parameters
    ----------
    who, more, later, first : of each step, again and again: the NIC, by how much, ms between both exchanges and, of all
        other NICs, before the first
    paid : whether the steps are longer for it
    """
    late = [(who[i % len(who)], *(part[i % len(part)] for part in (more, later, first))) for i in range(COUNT)]
    lengths = [usual + by + then + 150 for _, by, then, usual in late]
    lengths = lengths if paid else [max(lengths)] * COUNT
    rows: list[Row] = []
    for begin, (slow, by, then, usual) in zip(accumulate(lengths, initial=0.0), late, strict=False):
        for src, dst in zip(NICS, NICS[1:] + NICS[0], strict=True):
            ready = begin + usual + by * (slow in (src, dst))
            again = begin + usual + by + 50 + then
            rows += [(ready, begin + usual + by + 50, src, dst, 8 * MB), (again, again + 50, src, dst, 8 * MB)]
    whole = working([dict.fromkeys(NICS, [FIRST] * COUNT)])
    return dataclasses.replace(
        whole, flows=kinds(dp=rows), steps=steps(NICS, COUNT, lengths=lengths), history=history(lengths)
    )


def tensor_parallel(first: Sequence[float], late: Sequence[str]) -> Evidence:
    """Return steps of four hosts with three ranks each, in lock step; those named (by their rail) begin the steps of
    another host each time after so many ms, and all others after 400."""
    rings = [
        {
            f"{rail}{at}": [one if rail in late and step % 4 == at else FIRST for step, one in enumerate(first)]
            for at in range(4)
        }
        for rail in "abc"
    ]
    return working(rings, hosts={addr: f"host-{addr[1]}" for ring in rings for addr in ring})


def piped(first: float, answer: float, usual_answer: float = 300.0) -> Evidence:
    """Return steps of four replicas of two stages, of which one sends its first activation after so many ms, not 200,
    and answers the first gradient after so many."""
    pp: list[Row] = []
    for step in range(COUNT):
        for src, dst in zip("abcd", "efgh", strict=True):
            sent = step * STEP + (first if src == "d" else 200.0)
            back = sent + 122
            again = back + 2 + (answer if src == "d" else usual_answer)
            forth, last = ((at, src, dst) for at in (sent, again)), again + 122
            both = (*forth, (back, dst, src), (last, dst, src))
            pp += [(at, at + 2, *ends, 8 * MB) for at, *ends in both]
    whole = working([{addr: [950.0] * COUNT for addr in NICS}])
    stages = pl.DataFrame([(addr, at // 4) for at, addr in enumerate(NICS)], schema=PLACES, orient="row")
    members = whole.members.drop("pp_stage").join(stages, on="addr")
    return dataclasses.replace(whole, flows=kinds(pp=pp), groups=groups("abcd", "efgh"), members=members)


PLACES = {"addr": pl.String, "pp_stage": pl.Int32}


def named(evidence: Evidence, **changed: Any) -> Rows:
    """Return what is told of slow computing and of stalls, which must not both be."""
    settings = dataclasses.replace(DEFAULT, **changed)
    rows = pl.concat([slow_compute.find(evidence, settings), stalls.find(evidence, settings)])
    return rows.select("kind", "subject_type", "subject").rows()


ANY, JOB, HOST = [*NICS], [("stalls", "job", "j")], [("stalls", "host", "host-d")]
UNEVEN = [("uneven_micro_batches", "job", "j")]
VARIED = (200.0, 800.0, 500.0, 400.0)


def mostly(by: float, often: int = 10) -> list[float]:
    """Return by how much somebody is late in each step: in so many of them, the first and the last among them."""
    return [by] * (often - 1) + [0.0] * (COUNT - often) + [by]


def test_one_host_that_begins_late_by_other_times_and_then_works_as_ever_stands_still() -> None:
    assert named(exchanging("d", VARIED)) == HOST
    row = stalls.find(exchanging("d", VARIED), DEFAULT).row(0, named=True)
    # 475 of 1225 ms.
    assert row["severity"] == pytest.approx((475 / 1225) / (750 / 1225))
    assert row["confidence"] == 1
    assert "In 12 of 12 steps host host-d begins late, by 475 ms on average, and then works as" in row["explanation"]


@pytest.mark.parametrize(("part", "rows"), [(0.45, HOST), (0.55, [])])
def test_what_makes_later_work_longer_as_well_is_no_stall(part: float, rows: Rows) -> None:
    """Half of what differs at the beginning."""
    typical = FIRST + 450  # median
    later = [LATER * (1 + part * ((FIRST + by) / typical - 1)) for by in VARIED]
    assert named(exchanging("d", VARIED, later)) == rows


def test_one_host_that_is_always_late_by_as_much_computes_slowly_as_far_as_anybody_can_tell() -> None:
    evidence = exchanging("d", (300.0, 305.0))
    assert named(evidence) == [("slow_compute", "addr", "d")]
    assert "and was not waiting for any NIC." in slow_compute.find(evidence, DEFAULT)["explanation"].item()


def test_one_host_whose_later_work_was_not_seen_holds_up_its_job_for_an_unknown_cause() -> None:
    evidence = exchanging("d", VARIED)
    once = evidence.flows.filter(pl.int_range(pl.len()).over("src_addr", "dst_addr") % 2 == 0)
    assert named(dataclasses.replace(evidence, flows=once)) == [("straggler", "host", "host-d")]


@pytest.mark.parametrize(("later", "kind"), [(122.0, "stalls"), (58.0, "straggler")])
def test_short_silences_may_be_the_optimizer_s(later: float, kind: str) -> None:
    """A tenth of 600 to 1200 ms; no lateness makes an optimizer longer."""
    assert named(exchanging("d", VARIED, (later,))) == [(kind, "host", "host-d")]


@pytest.mark.parametrize(("by", "rows"), [(0.06, JOB), (0.075, UNEVEN)])
def test_others_each_time_stand_still_where_nobody_else_is_ever_as_late(by: float, rows: Rows) -> None:
    """A stall of as much as most work is ten deviations of a tenth, which are differences of 6.7 %: samples of uneven
    length are hardly ever so long."""
    assert named(exchanging(ANY, mostly(FIRST), first=(FIRST, FIRST * (1 + by), FIRST * (1 - by)))) == rows


@pytest.mark.parametrize(("by", "rows"), [(80.0, []), (86.0, JOB)])
def test_a_beginning_late_by_less_than_a_tenth_of_the_step_is_jitter(by: float, rows: Rows) -> None:
    """A tenth of 833 ms."""
    assert named(exchanging(ANY, mostly(by)), least_lasting_s=5) == rows


@pytest.mark.parametrize(("often", "rows"), [(10, JOB), (2, [])])
def test_most_steps_begin_late(often: int, rows: Rows) -> None:
    assert named(exchanging(ANY, mostly(FIRST, often))) == rows


@pytest.mark.parametrize(("least", "rows"), [(12.9, JOB), (13.1, [])])
def test_what_is_over_soon_is_a_pause(least: float, rows: Rows) -> None:
    """Ten steps of 1150 ms and two of 750."""
    assert named(exchanging(ANY, mostly(FIRST)), least_lasting_s=least) == rows


@pytest.mark.parametrize("who", [ANY, "d"], ids=("any", "one"))
def test_lateness_that_no_step_pays_for_is_no_stall(who: Sequence[str]) -> None:
    assert named(exchanging(who, VARIED, paid=False)) == []


@pytest.mark.parametrize(("often", "paid", "rows"), [(11, True, JOB), (11, False, []), (12, True, [])])
def test_others_each_time_need_steps_that_show_what_they_cost(often: int, paid: bool, rows: Rows) -> None:
    """Whose first record is lost seems to begin late, by one micro-batch; at a twentieth of all, somebody always is."""
    assert named(exchanging(ANY, mostly(FIRST, often), paid=paid)) == rows


@pytest.mark.parametrize(("late", "rows"), [(("a", "b"), JOB), (("a",), [])])
def test_most_of_a_tensor_parallel_group_are_late_together(late: Sequence[str], rows: Rows) -> None:
    """Three ranks of each host: two of them are most."""
    assert named(tensor_parallel([FIRST + 400 * (at % 3 == 0) for at in range(COUNT)], late)) == rows


@pytest.mark.parametrize(("answer", "kind"), [(374.0, "stalls"), (376.0, "slow_compute")])
def test_in_a_pipeline_the_answer_to_the_first_gradient_tells_who_is_slow(answer: float, kind: str) -> None:
    """Half as much again on the first pass, so a quarter more on the answer."""
    assert named(piped(300.0, answer)) == [(kind, "addr", "d")]


def test_who_stands_still_once_a_step_loses_that_and_no_more() -> None:
    row = slow_compute.find(piped(300.0, 300.0), DEFAULT).row(0, named=True)
    assert row["severity"] == pytest.approx(0.1 / 0.9)
    assert "d on host-d begins its steps later than its peers (" in row["explanation"]
    assert "was not waiting for any NIC except perhaps the one that it sends to." in row["explanation"]


@pytest.mark.parametrize(("usual", "kind"), [(201.0, "stalls"), (199.0, "slow_compute")])
def test_what_leaves_sooner_than_a_pass_takes_is_no_answer(usual: float, kind: str) -> None:
    """As in GPipe, where activations leave when they may: of what was computed long ago nothing can be told."""
    assert named(piped(300.0, usual, usual)) == [(kind, "addr", "d")]


def test_the_order_of_rows_does_not_matter_and_no_rows_are_none() -> None:
    evidence = exchanging("d", VARIED)
    rows = at_first(evidence.members, shuffled(evidence, 3), DEFAULT).sort("addr")
    assert_frame_equal(rows, at_first(evidence.members, evidence, DEFAULT).sort("addr"))
    assert_frame_equal(
        rows.filter(pl.col("addr") == "d"), at_first(evidence.members.filter(pl.col("addr") == "d"), evidence, DEFAULT)
    )
    assert later_work(without_rows(evidence), DEFAULT).is_empty()
    assert named(without_rows(evidence)) == []
