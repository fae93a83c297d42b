"""Whom all others wait for when they have begun a step begins it late."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest
from handmade import MB, Row
from job_evidence import DEFAULT, kinds, shuffled, with_flows, without_rows, working

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.pauses import late_host
from llmprism_tasks.stages.diagnosis.step_times import slow_run

SETTINGS = dataclasses.replace(DEFAULT, least_lasting_s=0)
NICS = "abcdef"
QUICK, SLOW, LATE = 12, 8, 300


def beginning(missing: str, *, usually: str = "", slow: int = SLOW, nics: str = NICS) -> Evidence:
    """Return a ring all of whose members move their data 300 ms later in its last steps.

    Before, 30 ms after a step's start, each sends a part: but for those that are missing in so many slow steps, and for
    those of `usually` in all other steps.
    """
    ready = [500.0] * QUICK + [500.0 + LATE] * SLOW
    evidence = working([dict.fromkeys(nics, ready)])
    rows: list[Row] = []
    begin = 0.0
    for step, at in enumerate(ready):
        without = missing if QUICK <= step < QUICK + slow else usually
        rows += [
            (begin + 30, begin + 31, addr, nics[(place + 1) % len(nics)], MB)
            for place, addr in enumerate(nics)
            if addr not in without
        ]
        begin += 500 + at
    return with_flows(evidence, kinds(dp=rows))


def found(evidence: Evidence) -> pl.DataFrame:
    return late_host.find(slow_run.find(evidence, SETTINGS), evidence, SETTINGS)


def test_who_begins_late_is_named_with_what_it_costs() -> None:
    rows = found(beginning("c"))
    assert rows.schema == pl.Schema(FINDING_SCHEMA)
    row = rows.row(0, named=True)
    assert (row["kind"], row["subject_type"], row["subject"], row["confidence"]) == ("stalls", "host", "host-c", 1)
    assert "In 8 of 8 slow steps host host-c begins late: all others had begun and waited" in row["explanation"]
    assert "for 769 ms on average" in row["explanation"]
    assert found(shuffled(beginning("c"), seed=1)).equals(rows)


@pytest.mark.parametrize(("missing", "hosts"), [("bc", ["host-c"]), ("bd", []), ("bcd", []), ("", [])])
def test_who_sends_to_it_cannot_begin_either(missing: str, hosts: list[str]) -> None:
    """Of two that are no neighbours, nobody knows which is late; of three, half of the ring has not begun."""
    assert found(beginning(missing))["subject"].to_list() == hosts


@pytest.mark.parametrize(("missing", "hosts"), [("bc", ["host-c"]), ("bcd", [])])
def test_no_more_may_be_missing_than_the_late_one_and_who_sends_to_it(missing: str, hosts: list[str]) -> None:
    assert found(beginning(missing, nics="abcdefgh"))["subject"].to_list() == hosts


@pytest.mark.parametrize(
    ("nics", "missing", "hosts"),
    [("ab", "b", []), ("abc", "c", ["host-c"]), ("abc", "bc", []), ("abcd", "bc", ["host-c"])],
)
def test_half_of_three_and_more_hosts_have_begun(nics: str, missing: str, hosts: list[str]) -> None:
    assert found(beginning(missing, nics=nics))["subject"].to_list() == hosts


@pytest.mark.parametrize(("slow", "hosts"), [(5, []), (6, ["host-c"])])
def test_it_is_late_in_most_slow_steps(slow: int, hosts: list[str]) -> None:
    assert found(beginning("c", slow=slow))["subject"].to_list() == hosts


def test_who_begins_later_in_quick_steps_too_is_not_late() -> None:
    assert found(beginning("c", usually="c")).is_empty()


def test_a_job_that_is_no_slower_has_no_late_host() -> None:
    nothing = without_rows(beginning("c"))
    assert late_host.find(slow_run.find(nothing, SETTINGS), nothing, SETTINGS).is_empty()
