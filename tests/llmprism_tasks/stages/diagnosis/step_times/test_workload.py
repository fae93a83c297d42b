"""Steps that are longer because their batch has grown are no fault."""

from __future__ import annotations

import dataclasses

import pytest
from handmade import MB
from job_evidence import DEFAULT, kinds, shuffled, with_flows, working

from llmprism_tasks.stages.diagnosis.evidence import Evidence
from llmprism_tasks.stages.diagnosis.step_times import slow_run
from llmprism_tasks.stages.diagnosis.step_times.workload import without_heavier

BRIEF = dataclasses.replace(DEFAULT, least_lasting_s=0)
QUICK, SLOW, LATE = 12, 8, 400
NICS = "abcd"


def becoming(*, before: int, after: int, senders: str = NICS) -> Evidence:
    """Return a ring whose steps become 1.4 times as long, and whose members send some megabytes to a stage beside, more
    or less of them from then on."""
    ready = {addr: [500.0] * QUICK + [500.0 + LATE] * SLOW for addr in NICS}
    begins = [1000.0 * step if step < QUICK else QUICK * 1000 + (step - QUICK) * (1000 + LATE) for step in range(20)]
    sent = [
        (at + 100, at + 101, addr, f"{addr}2", (before if step < QUICK or addr not in senders else after) * MB)
        for step, at in enumerate(begins)
        for addr in NICS
    ]
    return with_flows(working([ready]), kinds(pp=sent))


@pytest.mark.parametrize(("after", "news"), [(10, 1), (11, 1), (12, 0), (15, 0), (7, 1)])
def test_a_batch_that_has_grown_by_half_of_what_steps_are_longer_explains_it(after: int, news: int) -> None:
    evidence = becoming(before=10, after=after)
    assert slow_run.find(evidence, BRIEF).height == news
    assert slow_run.find(shuffled(evidence, 1), BRIEF).height == news


@pytest.mark.parametrize(("senders", "news"), [("a", 1), ("abc", 0)])
def test_most_members_send_more_then(senders: str, news: int) -> None:
    assert slow_run.find(becoming(before=10, after=15, senders=senders), BRIEF).height == news


def test_of_no_slow_run_nothing_is_left() -> None:
    evidence = becoming(before=10, after=10)
    slower = slow_run.find(evidence, BRIEF)
    assert without_heavier(slower.clear(), evidence).is_empty()
