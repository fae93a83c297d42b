"""Peers wait for a slow NIC; what they exchange while it computes shows that they do not."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MB, WINDOW
from job_evidence import STEP, kinds, with_flows, working

from llmprism_tasks.stages.diagnosis.compute.held_up import held_up
from llmprism_tasks.stages.diagnosis.evidence import Evidence

LATE = {"a": [500.0] * 10, "b": [800.0] * 10, "c": [500.0] * 10, "d": [500.0] * 10}
"""A ring whose members send 8 MB a step each; nothing moves over `b` before 800 ms."""


def ring_with(moved: int, *, begins: float = 100, sender: str = "c") -> Evidence:
    """Return the ring in which in each step two other members also exchange so many MB."""
    ring = working([LATE], paid=False)
    rows = [(STEP * at + begins, STEP * at + begins + 100, sender, "d", moved * MB) for at in range(1, 10)]
    return with_flows(ring, kinds(dp=rows))


def kept(evidence: Evidence, *, ringed: bool = True, by_past: bool = False) -> list[str]:
    slow = pl.DataFrame({
        "job_id": ["j"], "addr": ["b"], "component": evidence.work["component"][:1], "ringed": [ringed],
        "start_ns": [WINDOW.start_ns], "end_ns": [WINDOW.end_ns], "by_past": [by_past],
    })  # fmt: skip
    return held_up(slow, evidence)["addr"].to_list()


@pytest.mark.parametrize(("moved", "waits"), [(24, ["b"]), (28, [])])
def test_of_a_collective_others_move_half_at_most_without_one_of_them(moved: int, waits: list[str]) -> None:
    """The three others move 24 MB together with it in each of ten steps, and this in nine."""
    assert kept(ring_with(moved)) == waits


def test_what_goes_on_beside_the_nics_own_transfers_shows_nothing() -> None:
    assert kept(ring_with(1000, begins=900)) == ["b"]
    assert kept(ring_with(1000, begins=750)) == ["b"], "it is not over when the NIC begins"


def test_what_the_nic_sends_itself_shows_nothing() -> None:
    assert kept(ring_with(1000, sender="b")) == ["b"]


@pytest.mark.parametrize("which", [{"ringed": False}, {"by_past": True}])
def test_who_was_not_compared_by_gaps_between_collectives_is_kept(which: dict[str, bool]) -> None:
    assert kept(ring_with(1000), **which) == ["b"]


def test_of_nobody_nobody_is_kept() -> None:
    evidence = ring_with(28)
    nobody = pl.DataFrame(schema={"job_id": pl.String, "addr": pl.String, "component": pl.Int64, "ringed": pl.Boolean}
                          | {"start_ns": pl.Int64, "end_ns": pl.Int64, "by_past": pl.Boolean})  # fmt: skip
    assert held_up(nobody, evidence).is_empty()
