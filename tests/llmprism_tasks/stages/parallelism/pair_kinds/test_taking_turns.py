"""Links of two stages take turns in every schedule, and whatever a collector merges; collectives do not."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, flows, settings

from llmprism_tasks.stages.parallelism.pair_kinds import taking_turns
from llmprism_tasks.stages.parallelism.pair_kinds.features import with_back
from llmprism_tasks.stages.step_division import periodicity
from llmprism_tasks.stages.traffic import nic_pairs

PERIOD, STEPS = 1000, 8
MESSAGE = 2 * MB


Times = Sequence[tuple[float, float, int]]


def sent(pair: str, times: Times) -> list[Row]:
    """Return records of a pair in each step: when they begin and end in it, ms, and their bytes."""
    return [
        (PERIOD * step + start, PERIOD * step + end, pair[0], pair[1], size)
        for step in range(STEPS)
        for start, end, size in times
    ]


def turns(*parts: list[Row]) -> dict[str, float]:
    """Return the vote of each pair that has one."""
    named = flows(*parts).with_columns(
        job_id=pl.lit("j"),
        step=(pl.col("flow_start_ns") - WINDOW.start_ns) // (PERIOD * MS),
        pair=pl.struct(periodicity.PAIR).rank("dense").cast(pl.Int32),
    )
    table = nic_pairs.in_order(named)
    pairs = with_back(nic_pairs.pairs_of(table, ["job_id", *periodicity.PAIR]))
    ends = [WINDOW.start_ns + PERIOD * MS * (step + 1) for step in range(STEPS)]
    job_steps = pl.DataFrame({"job_id": ["j"] * STEPS, "end_ns": ends})
    carried = table.group_by("pair").agg(bytes_per_step=pl.col("bytes").sum() / STEPS)
    links = pairs.drop_nulls("back").join(carried, on="pair")
    periods = pl.DataFrame({"job_id": ["j"], "period_ns": [float(PERIOD * MS)]})
    found = taking_turns.turns(table, links, job_steps, periods, settings("parallelism"))
    named_pairs = pairs.join(found, on="pair").select(pl.concat_str("src_addr", "dst_addr"), "turns")
    return dict(named_pairs.rows())


INTERLEAVED = (
    [(100 + 20 * i, 104 + 20 * i, MESSAGE) for i in range(20)],
    [(115 + 20 * i, 119 + 20 * i, MESSAGE) for i in range(19)] + [(560, 564, MESSAGE)],
)
"""Activations and gradients, both ways through the step: the first goes down, the last comes up."""

MERGED = (
    [(100, 404, 16 * MESSAGE), (440, 484, 3 * MESSAGE), (480, 484, MESSAGE)],
    [(115, 219, 6 * MESSAGE), (250, 479, 13 * MESSAGE), (560, 564, MESSAGE)],
)
"""The same, as a collector sees them that waits for long."""


@pytest.mark.parametrize(("down", "up"), [INTERLEAVED, MERGED])
def test_an_interleaved_pipeline_of_two_stages_takes_turns(down: Times, up: Times) -> None:
    assert turns(sent("ab", down), sent("ba", up)) == {"ab": 1.0, "ba": 1.0}


def test_both_directions_of_a_collective_begin_and_end_together() -> None:
    down = INTERLEAVED[0]
    assert turns(sent("ab", down), sent("ba", [(a + 2, b + 2, size) for a, b, size in down])) == {}


def test_a_rank_that_is_late_to_each_collective_begins_later_but_ends_with_the_others() -> None:
    down = INTERLEAVED[0]
    late = [(115, 122, MESSAGE), *down[1:]]
    assert turns(sent("ab", down), sent("ba", late)) == {}


@pytest.mark.parametrize(("ahead_ms", "told"), [(4, False), (6, True)])
def test_who_begins_first_is_ahead_by_more_than_clocks_of_switches_differ(ahead_ms: float, told: bool) -> None:
    down = INTERLEAVED[0]
    up = [(100 + ahead_ms, 104 + ahead_ms, MESSAGE), *INTERLEAVED[1][1:]]
    assert turns(sent("ab", down), sent("ba", up)) == ({"ab": 1.0, "ba": 1.0} if told else {})


def test_links_whose_directions_carry_other_numbers_of_messages_are_not_told() -> None:
    down, up = INTERLEAVED
    assert turns(sent("ab", down), sent("ba", up[-6:])) == {}


def test_a_pair_that_nothing_answers_is_not_told() -> None:
    assert turns(sent("ab", INTERLEAVED[0]), sent("bc", INTERLEAVED[1])) == {}


@pytest.mark.parametrize(("off", "known"), [(0.24, True), (0.26, False)])
def test_records_are_whole_numbers_of_messages(off: float, known: bool) -> None:
    """A fifth of the bytes is the message itself, the rest so far from a whole number of them."""
    odd = round((4 + off) * MESSAGE)
    times = [(100, 104, MESSAGE), (200, 220, odd), (400, 420, odd)]
    found = turns(sent("ab", times), sent("ba", [(a + 20, b + 20, size) for a, b, size in times]))
    assert found == ({"ab": 1.0, "ba": 1.0} if known else {})


def test_a_ring_that_goes_around_one_way_first_and_the_other_way_last_is_no_pipeline() -> None:
    """Its NICs have two neighbours each, with whom they exchange as much."""
    down, up = INTERLEAVED
    links = [pair for both in ("ab", "bc", "ca") for pair in (sent(both, down), sent(both[::-1], up))]
    assert turns(*links) == {}


@pytest.mark.parametrize(("more", "asked"), [(1.05, False), (1.3, True)])
def test_another_neighbour_counts_if_it_gets_about_as_much(more: float, asked: bool) -> None:
    down, up = INTERLEAVED
    other = [[(a, b, round(more * size)) for a, b, size in times] for times in (down, up)]
    found = turns(sent("ab", down), sent("ba", up), sent("ac", other[0]), sent("ca", other[1]))
    assert ("ab" in found) == asked


@pytest.mark.parametrize(("apart", "told"), [(11, False), (14, True)])
def test_one_burst_of_the_step_is_no_pipeline(apart: float, told: bool) -> None:
    """Twenty messages take 220 ms of a second, or 280."""
    times = [(100 + apart * i, 104 + apart * i, MESSAGE) for i in range(20)]
    found = turns(sent("ab", times), sent("ba", [(a + 10, b + 10, size) for a, b, size in times]))
    assert found == ({"ab": 1.0, "ba": 1.0} if told else {})


def test_one_message_each_way_may_be_a_rank_that_is_late() -> None:
    assert turns(sent("ab", [(100, 600, MESSAGE)]), sent("ba", [(200, 700, MESSAGE)])) == {}


def middle(*pairs: tuple[str, float, int]) -> set[str]:
    """Return the pairs (name, how often they take turns, message in bytes) that are in the middle."""
    rows = [("j", pair[0], pair[1], pipeline, 10.0 * size, float(size)) for pair, pipeline, size in pairs]
    columns = ["job_id", *periodicity.PAIR, "pipeline", "bytes_per_step", "common_size"]
    table = pl.DataFrame(rows, schema=columns, orient="row").with_row_index("pair")
    found = taking_turns.in_the_middle(table, settings("parallelism"))
    named = table.filter(pl.col("pair").is_in(found.implode()))
    return set(named.select(pl.concat_str(periodicity.PAIR)).to_series())


def test_where_a_pipeline_fed_from_both_ends_meets_its_stages_take_turns_with_their_other_neighbours() -> None:
    ends = [(pair, 1.0, MB) for pair in ("ab", "ba", "cd", "dc")]
    assert {"bc", "cb"} <= middle(*ends, ("bc", 0.0, MB), ("cb", 0.0, MB))
    assert not {"bc", "cb"} & middle(*ends, ("bc", 0.0, 2 * MB), ("cb", 0.0, 2 * MB))
    assert not {"bc", "cb"} & middle(*ends[:2], ("bc", 0.0, MB), ("cb", 0.0, MB))
    assert not {"bc", "cb"} & middle(*((pair, 0.0, size) for pair, _, size in ends), ("bc", 0.0, MB), ("cb", 0.0, MB))
