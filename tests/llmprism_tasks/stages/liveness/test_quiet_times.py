"""When no flow of a job was under way, which of these times are long for it, and which are the collector's."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from handmade import MS, WINDOW, every, flows, messages, settings

from llmprism_tasks.numerics.robust import Integers
from llmprism_tasks.stages.liveness.quiet_times import are_of_collector, long_gaps, quiet_times

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


S = 1000 * MS
STEP_S = 4
SILENT = (40, 51)
"""A job with steps of 4 s sends nothing for 11 s."""


def others(*silences: tuple[float, float]) -> Integers:
    """Return when others begin a flow, every half a second but in some silences, ns."""
    begun = np.arange(0, 100, 0.5)
    for since, until in silences:
        begun = begun[(begun <= since) | (begun >= until)]
    return (begun * S).astype(np.int64)


def collectors(begun: Integers, *silences: tuple[float, float]) -> list[bool]:
    since, until = (np.array([silence[end] * S for silence in silences or [SILENT]], np.int64) for end in (0, 1))
    return are_of_collector(begun, since, until, STEP_S * S).tolist()


def test_a_silence_in_which_all_others_fell_silent_is_the_collectors() -> None:
    assert collectors(others((41, 49))) == [True]


def test_who_goes_on_shows_that_the_collector_works() -> None:
    assert collectors(others()) == [False]


@pytest.mark.parametrize(
    ("silence", "of_collector"),
    [
        ((44, 49), True),
        ((44.5, 49), False),
        ((36, 49), True),
        ((35.5, 49), False),
        ((41, 47), True),
        ((41, 46.5), False),
    ],
)
def test_others_stop_within_a_step_of_the_job_and_are_back_no_more_than_a_step_before_it(
    silence: tuple[float, float], of_collector: bool
) -> None:
    assert collectors(others(silence)) == [of_collector]


@pytest.mark.parametrize(("usual", "of_collector"), [(7.5, True), (8, False)])
def test_others_must_be_silent_for_longer_than_at_any_other_time(usual: float, of_collector: bool) -> None:
    assert collectors(others((41, 49), (70, 70 + usual))) == [of_collector]


def test_long_silences_of_the_job_are_not_compared_with_each_other() -> None:
    assert collectors(others((41, 49), (70, 79)), SILENT, (69, 80)) == [True, True]


@pytest.mark.parametrize("flows_of_others", [0, 1])
def test_a_job_that_is_alone_shows_nothing_of_the_collector(flows_of_others: int) -> None:
    assert collectors(np.arange(flows_of_others) * S) == [False]
