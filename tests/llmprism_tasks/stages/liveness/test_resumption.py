"""A job that stood still goes on where it stood; one that worked while the collector stopped goes on elsewhere."""

from __future__ import annotations

import random

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, every, flows, messages, ring, settings, visible

from llmprism_tasks.stages.liveness.quiet_times import Gap
from llmprism_tasks.stages.liveness.resumption import Resumption, resumption
from llmprism_tasks.stages.traffic import nic_pairs

NICS = "abcd"
STEP = 2000
LAYERS = 10
"""Bursts of a step, one after another: a step is silent for a tenth of itself before the first of them."""
CUT = 20_000
"""When the step begins in which the job falls silent, in ms."""


def trains(until: float, *, quiet: float = 0.1, size: int = MB) -> list[Row]:
    """Return a job's records: each burst of a step is larger than the one before it."""
    apart = STEP * (1 - quiet) / LAYERS
    return [
        row
        for layer in range(LAYERS)
        for row in ring(
            NICS,
            every(STEP, count=int(until // STEP) + 1, start=layer * apart),
            length=0.9 * apart,
            size=(layer + 4) * size,
        )
        if row[0] < until
    ]


def stood(rows: list[Row], at: float, lasts: float) -> list[Row]:
    """Return the records of a job that stands still at a time; what is under way then is over before."""
    return [row if row[0] < at else (row[0] + lasts, row[1] + lasts, *row[2:]) for row in rows]


def unseen(rows: list[Row], at: float, lasts: float) -> list[Row]:
    """Return the records that a collector sees that stops at a time."""
    return [row for row in rows if not at <= row[0] < at + lasts]


def came_back(rows: list[Row], at: float) -> Resumption | None:
    """Return how the job came back from its silence at a time."""
    table = visible(flows([row for row in rows if row[0] < 60_000]), WINDOW)
    members = pl.DataFrame({"addr": list(NICS), "job_id": "j"})
    bulk = nic_pairs.named(nic_pairs.bulk(nic_pairs.inside_jobs(table, members), settings().traffic))
    begins, ends = (bulk[name].to_numpy() for name in ("flow_start_ns", "flow_end_ns"))
    at_ns = WINDOW.start_ns + round(at * MS)
    since_ns, later = int(ends[begins < at_ns].max()), begins[begins >= at_ns]
    return resumption(bulk, Gap("j", since_ns, int(later.min()), round(0.1 * STEP * MS)), WINDOW, settings())


@pytest.mark.parametrize("share", [0.15, 0.5, 0.85])
def test_who_stood_still_goes_on_where_it_stood(share: float) -> None:
    at = CUT + share * STEP
    found = came_back(stood(trains(44_000), at, 15_000), at)
    assert found is not None
    assert found.in_place > 0.85
    assert found.shown_ns == pytest.approx(WINDOW.start_ns + (CUT + STEP + 15_000) * MS, abs=0.2 * STEP * MS)


def test_a_record_may_have_more_bytes_than_an_integer_of_32_bits_holds() -> None:
    at = CUT + 0.5 * STEP
    found = came_back(stood(trains(44_000, size=1000 * MB), at, 15_000), at)
    assert found is not None
    assert found.in_place > 0.85


def test_a_copy_beside_the_job_is_no_part_of_its_steps() -> None:
    """It goes from one member to another, and each step but that of the silence has another part of it."""
    at = CUT + 0.5 * STEP
    begins = random.Random(1).sample([at for at in range(0, 44_000, 100) if at // STEP != CUT // STEP], 120)
    copy = messages("c", "a", sorted(begins), 20 * MB)
    found = came_back(stood([*trains(44_000), *copy], at, 15_000), at)
    assert found is not None
    assert found.in_place > 0.85


@pytest.mark.parametrize("beyond", [0.25, 0.5, 0.75])
def test_who_worked_unseen_goes_on_elsewhere(beyond: float) -> None:
    at = CUT + 0.3 * STEP
    found = came_back(unseen(trains(60_000), at, (7 + beyond) * STEP), at)
    assert found is not None
    assert found.in_place == 0


def test_the_longer_a_step_is_silent_the_likelier_a_collector_is_back_there_by_chance() -> None:
    at = CUT - 1
    (much, little) = (came_back(stood(trains(44_000, quiet=quiet), at, 15_000), at) for quiet in (0.6, 0.1))
    assert much is not None
    assert little is not None
    assert much.in_place == pytest.approx(1 / 1.6, abs=0.05)
    assert little.in_place > 0.8


def test_nothing_is_known_until_the_step_is_over() -> None:
    at = CUT + 0.5 * STEP
    rows = stood(trains(44_000), at, 15_000)
    assert came_back([row for row in rows if row[0] < CUT + 15_000 + 0.8 * STEP], at) is None
