"""A stage that is longest in all replicas, step after step, is told; what is ordinary at a pipeline's end is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from handmade import MB, MS, Row
from job_evidence import DEFAULT, STEP, groups, kinds, with_flows, without_rows, working
from polars.testing import assert_frame_equal

from llmprism_tasks.stages.diagnosis.compute import pipeline_imbalance
from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence

STAGES = ("ae", "bf", "cg", "dh")
"""NICs of four stages with two replicas each."""


def staged(
    *forward: Sequence[float], steps: int = 5, messages: int = 3, backward: float = 2, answer: float | None = None
) -> Evidence:
    """Return steps of two replicas, of which each stage takes so many ms forward, the last one backward, too.

    Parameters
    ----------
    backward : how many times as long others take backward
    answer : when the first stage sends another activation, ms after the first gradient; never if None
    """
    pp: list[Row] = []
    for step in range(steps):
        for first, second, third, last, times in zip(*STAGES, zip(*forward, strict=True), strict=True):
            back = [backward * times[2], backward * times[1]]
            at = step * STEP + 30.0
            ways = ((first, second), (second, third), (third, last), (last, third), (third, second), (second, first))
            for (src, dst), spent in zip(ways, [*times, *back], strict=True):
                at += spent
                # As in 1F1B, the last stage gets a third micro-batch when it has answered the first.
                waits = [50 * i + (times[-1] if dst == last and i >= 2 else 0) for i in range(messages)]
                pp += [(at + wait, at + wait + 2, src, dst, 8 * MB) for wait in waits]
                at += 2
            # The gradient of what the first stage sends then comes in the same step.
            again = ((first, second, answer), (second, first, answer + 40)) if answer else ()
            pp += [(at + after, at + after + 2, src, dst, 8 * MB) for src, dst, after in again]
    whole = working([{addr: [950.0] * steps for addr in "abcdefgh"}])
    places = [(addr, place) for place, addrs in enumerate(STAGES) for addr in addrs]
    stages = pl.DataFrame(places, schema={"addr": pl.String, "pp_stage": pl.Int32}, orient="row")
    return dataclasses.replace(
        whole,
        flows=kinds(pp=pp),
        groups=groups(*STAGES),
        members=whole.members.drop("pp_stage").join(stages, on="addr"),
    )


def evenly(middle: float = 40, last: float = 120, **changed: Any) -> Evidence:
    return staged((40, 40), (40, 40), (middle, middle), (last, last), **changed)


def named(evidence: Evidence, **changed: Any) -> list[str]:
    return pipeline_imbalance.find(evidence, dataclasses.replace(DEFAULT, **changed))["subject"].to_list()


def test_the_longest_stage_is_told_with_what_it_costs() -> None:
    rows = pipeline_imbalance.find(evenly(middle=60), DEFAULT)
    row = rows.row(0, named=True)
    assert rows.schema == pl.Schema(FINDING_SCHEMA)
    assert (row["kind"], row["subject_type"], row["subject"]) == ("pipeline_imbalance", "pp_stage", "2")
    assert row["peers"] == ["1", "3"]
    assert row["confidence"] == 1
    # Three messages each way, each a pass and a half of 60 ms, of which a third is too much.
    assert row["severity"] == pytest.approx(0.18 / 0.82)
    assert "Stage 2 takes 1.50 times as long" in row["explanation"]


def test_without_replicas_a_step_may_begin_amid_its_micro_batches() -> None:
    alone = evenly(middle=60)
    assert named(dataclasses.replace(alone, groups=alone.groups.clear())) == []


def test_even_stages_are_silent() -> None:
    assert named(evenly()) == []


@pytest.mark.parametrize(("middle", "names"), [(45.9, []), (46.1, ["2"])])
def test_a_layer_more_or_less_is_ordinary(middle: float, names: list[str]) -> None:
    """15 % of 40 ms are 46 ms."""
    assert named(evenly(middle=middle), least_effect=0.01) == names


@pytest.mark.parametrize(("last", "names"), [(149, []), (151, ["3"])])
def test_the_last_stage_may_be_longer(last: float, names: list[str]) -> None:
    """25 % of 120 ms are 150 ms."""
    assert named(evenly(last=last), least_effect=0.01) == names


@pytest.mark.parametrize(("messages", "names"), [(1, []), (2, ["2"])])
def test_what_costs_too_little_is_not_told(messages: int, names: list[str]) -> None:
    """13 ms more in each of three or six forward passes' worth, of a step of a second."""
    assert named(evenly(middle=53, messages=messages), least_effect=0.05) == names


@pytest.mark.parametrize(("steps", "names"), [(2, []), (3, ["2"])])
def test_two_steps_are_chance(steps: int, names: list[str]) -> None:
    assert named(evenly(middle=60, steps=steps)) == names


def test_a_stage_that_is_slow_in_one_replica_is_no_imbalance() -> None:
    assert named(staged((40, 40), (40, 40), (60, 40), (120, 120))) == []


@pytest.mark.parametrize(("backward", "names"), [(2, ["3"]), (3, [])])
def test_who_computes_activations_again_takes_longer_in_all_stages(backward: float, names: list[str]) -> None:
    assert named(evenly(last=180, backward=backward)) == names


@pytest.mark.parametrize(("last", "names"), [(199, []), (201, ["3"])])
def test_interleaved_stages_may_compute_activations_again(last: float, names: list[str]) -> None:
    """Their passes backward are not seen: two thirds more than 120 ms are 200 ms."""
    evidence = evenly(last=last)
    rows = [(step * STEP + 900, step * STEP + 902, "d", "a", 8 * MB) for step in range(5)]
    assert named(with_flows(evidence, kinds(pp=rows)), least_effect=0.01) == names


@pytest.mark.parametrize(("answer", "names"), [(137, []), (139, ["0"])])
def test_the_first_stage_is_judged_by_its_answer_to_the_first_gradient(answer: float, names: list[str]) -> None:
    """15 % of 120 ms are 138 ms."""
    found = pipeline_imbalance.find(evenly(answer=answer), dataclasses.replace(DEFAULT, least_effect=0.01))
    assert found["subject"].to_list() == names
    assert all("as any other of the 4 measured stages" in told for told in found["explanation"])


@pytest.mark.parametrize(("answer", "names"), [(178, []), (183, ["0"])])
def test_where_micro_batches_are_uneven_the_first_stage_waits_for_the_longest(answer: float, names: list[str]) -> None:
    """Passes of 120 and 132 ms are 4.8 % off their middle, a robust deviation of 7 %: 35 and 15 % more are 180 ms."""
    uneven = staged((40, 40), (40, 44), (40, 44), (120, 132), answer=answer)
    assert named(uneven, least_effect=0.01) == names


@pytest.mark.parametrize(("answer", "names"), [(287, ["0"]), (288, [])])
def test_no_stage_works_for_longer_than_its_step(answer: float, names: list[str]) -> None:
    """Four passes, and 15 % that they may differ by, in a step of a second: 287.5 ms."""
    assert named(evenly(answer=answer)) == names


def test_the_first_stage_is_not_blamed_where_it_waits_for_the_slowest() -> None:
    assert named(evenly(last=180, answer=181)) == ["3"]


@pytest.mark.parametrize(("answer", "names"), [(205, []), (209, ["0"])])
def test_the_first_stage_is_not_blamed_where_it_waits_for_a_slow_replica(answer: float, names: list[str]) -> None:
    """15 % more than the 180 ms of one replica of the last stage are 207 ms."""
    slow = staged((40, 40), (40, 40), (40, 40), (120, 180), answer=answer)
    assert named(slow, least_effect=0.01) == names


def test_the_first_stage_is_not_judged_for_it_begins_with_the_optimizer_and_the_next_samples() -> None:
    assert named(staged((90, 90), (40, 40), (40, 40), (120, 120))) == []


def test_steps_that_are_cut_within_the_first_micro_batch_of_a_stage_are_not_compared() -> None:
    """The last stage's inputs came before: it is not known when its work begins, nor that of those that wait for it."""
    evidence = evenly(middle=60)
    cut = evidence.flows.filter(~pl.col("dst_addr").is_in(list(STAGES[3])))
    assert named(evidence) == ["2"]
    assert named(dataclasses.replace(evidence, flows=cut)) == []


@pytest.mark.parametrize(("later", "middle", "names"), [(0, 60, ["2"]), (250, 40, [])])
def test_steps_that_are_cut_amid_the_passes_of_a_stage_are_not_compared(
    later: float, middle: float, names: list[str]
) -> None:
    """With fewer micro-batches than stages the longest silence of a pair may lie before its first backward pass: a
    gradient comes first in such a step, and that pass of 80 ms was counted twice, once as the forward pass."""
    evidence = evenly(middle=middle)
    moved = pl.col("addr").is_in(list(STAGES[1])) * round(later * MS)
    steps = evidence.steps.with_columns(pl.col("start_ns", "end_ns") + moved)
    assert named(dataclasses.replace(evidence, steps=steps)) == names


@pytest.mark.parametrize(("ready", "names"), [(114, ["2"]), (115, [])])
def test_a_stage_whose_next_one_still_synchronised_may_have_waited_for_it(ready: float, names: list[str]) -> None:
    """The third stage's input comes after 114 ms of each step; one of the fourth is done with the last step."""
    evidence = evenly(middle=60)
    late = pl.when(pl.col("addr") == "h").then(round(ready * MS)).otherwise(0)
    steps = evidence.steps.with_columns(start_ns=pl.col("start_ns") + late)
    assert named(dataclasses.replace(evidence, steps=steps)) == names


@pytest.mark.parametrize(("waiting", "names"), [(3, ["2"]), (4, [])])
def test_an_imbalance_shows_in_most_steps(waiting: int, names: list[str]) -> None:
    """In the first of eight steps the third stage may wait for the fourth, so that nobody knows how long it works."""
    evidence = evenly(middle=60, steps=8)
    late = pl.when(pl.col("addr") == "h", pl.col("step_index") < waiting).then(115 * MS).otherwise(0)
    steps = evidence.steps.with_columns(start_ns=pl.col("start_ns") + late)
    assert named(dataclasses.replace(evidence, steps=steps)) == names


def test_stages_that_are_not_known_are_not_compared() -> None:
    evidence = evenly(middle=60)
    unknown = evidence.members.with_columns(pp_stage=pl.lit(None, pl.Int32))
    assert named(dataclasses.replace(evidence, members=unknown)) == []
    assert_frame_equal(pipeline_imbalance.find(without_rows(evidence), DEFAULT), pl.DataFrame(schema=FINDING_SCHEMA))
