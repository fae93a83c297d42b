"""When no flow of a job was under way, and which of these times are long for it."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MS, WINDOW, every, flows, messages, settings

from llmprism_tasks.stages.liveness.quiet_times import long_gaps, quiet_times

MB = 1_000_000


def job(*ends: float) -> pl.DataFrame:
    """Return a message a second for twenty seconds, and one at each further time, ms."""
    return flows(messages("a", "b", [*every(1000, count=20), *ends], MB)).with_columns(job_id=pl.lit("j"))


def test_a_quiet_time_ends_with_the_next_flow_and_the_last_one_not_at_all() -> None:
    last, back = (WINDOW.start_ns + at * MS for at in (19_001, 30_000))
    found = quiet_times(job(30_000))
    assert found.tail(2).select("since_ns", "back_ns").rows() == [(last, back), (back + MS, None)]


@pytest.mark.parametrize(("back", "count"), [(26_900, 0), (27_100, 1)])
def test_one_that_is_over_is_long_from_four_fifths_of_a_restart(back: float, count: int) -> None:
    gaps = [
        gap
        for gap in long_gaps(job(back, *every(1000, count=32, start=back + 1000)), WINDOW, settings())
        if gap.back_ns
    ]
    assert len(gaps) == count
    assert all(gap.is_longest for gap in gaps)


@pytest.mark.parametrize(("last", "count"), [(49_500, 0), (48_500, 1)])
def test_one_that_is_not_over_is_long_from_a_restart_beyond_the_longest(last: float, count: int) -> None:
    """The job was silent for a second at most."""
    steady = job(*every(1000, count=round((last - 20_000) / 1000) + 1, start=20_000))
    assert sum(gap.back_ns is None for gap in long_gaps(steady, WINDOW, settings())) == count
