"""A NIC that could not be reached for a while has flapped, if its job took longer for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import polars as pl
import pytest
from handmade import MS, WINDOW
from job_evidence import DEFAULT, history, without_rows, working

from llmprism_tasks.stages.diagnosis.evidence import FINDING_SCHEMA, RETRIES_SCHEMA, Evidence
from llmprism_tasks.stages.diagnosis.network import dead_path

NOTHING = without_rows(working([{"a": [500], "b": [500]}]))


def evidence(lengths: Sequence[float], *tries: tuple[str, str, float, float], current: int = 6) -> Evidence:
    """Return the evidence of a job with steps of these lengths, and tries from `a` to `b` between two times, in ms."""
    start_ns = WINDOW.start_ns
    rows = [("j", a, b, start_ns + int(since * MS), start_ns + int(until * MS)) for a, b, since, until in tries]
    retried = pl.DataFrame(rows, schema=RETRIES_SCHEMA, orient="row")
    return dataclasses.replace(NOTHING, history=history(lengths, current=current), retried=retried)


def found(lengths: Sequence[float], *tries: tuple[str, str, float, float], current: int = 6) -> pl.DataFrame:
    return dead_path.find(evidence(lengths, *tries, current=current), DEFAULT)


SLOW = [*[1000.0] * 10, 1000, 4000, *[1000.0] * 4]
"""The second step of the window, from 1 s to 5 s of it, took three seconds longer."""


def test_the_receiver_is_named_with_the_step_that_took_longer() -> None:
    row = found(SLOW, ("a", "b", 1200, 2500), ("a", "b", 1600, 4200), ("c", "b", 1300, 2600)).row(0, named=True)
    assert set(row) == set(FINDING_SCHEMA)
    assert (row["kind"], row["subject_type"], row["subject"]) == ("link_flap", "addr", "b")
    assert (row["steps"], row["lost_s"], row["peers"]) == (1, pytest.approx(3.0), ["a", "c"])
    assert row["severity"] == pytest.approx(3 / 6)
    assert (row["start_ns"], row["end_ns"]) == (WINDOW.start_ns + 1200 * MS, WINDOW.start_ns + 5000 * MS)
    assert "a, c sent one packet to b again and again for 3.0 s" in row["explanation"]
    assert "One step took 3.0 s longer" in row["explanation"]


@pytest.mark.parametrize(("longer", "told"), [(499, False), (501, True)])
def test_the_step_must_be_longer_by_half_of_the_time(longer: float, told: bool) -> None:
    """Nothing came back for a second."""
    lengths = [*[1000.0] * 11, 1000 + longer, *[1000.0] * 4]
    assert bool(found(lengths, ("a", "b", 1100, 2100)).height) == told


def test_what_was_told_in_the_window_before_is_not_told_again() -> None:
    assert found([*[1000.0] * 8, 4000, *[1000.0] * 6], ("a", "b", -3000, -1000)).is_empty()


def test_without_tries_nothing_is_told() -> None:
    assert found(SLOW).is_empty()
    assert found(SLOW).schema == pl.Schema(FINDING_SCHEMA)
