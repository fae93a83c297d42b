"""What leads a group to where its steps meet, and which bursts that fall together are a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from handmade import MB, MS, settings

from llmprism_tasks.stages.step_division.alignment import line_up, whole_steps

DEFAULT = settings().rhythm
PERIOD = 1000
STEPS = 10

Burst = tuple[int, float, float, int]
"""Pair, start and end in ms, bytes."""


def described(streams: Sequence[Sequence[Burst]], size_class: int) -> pl.DataFrame:
    """Return the streams of sizes of pairs, or of whole pairs (-1)."""
    return pl.DataFrame({"pair": [stream[0][0] for stream in streams]}).with_columns(
        group=pl.lit("g"),
        size_class=pl.lit(size_class),
        period_ns=pl.lit(float(PERIOD * MS)),
        threshold_ns=pl.lit(100.0 * MS),
        clarity=pl.lit(9.0),
    )


def lined_up(streams: Sequence[Sequence[Burst]], *, size_class: int = 0, data_from: int = -PERIOD) -> pl.DataFrame:
    """Return the bursts of streams with the beats they make; the data begin at `data_from` ms."""
    rows = [
        (number, round(start * MS), round(end * MS), size)
        for number, stream in enumerate(streams)
        for _, start, end, size in stream
    ]
    bursts = pl.DataFrame(rows, schema=["stream", "start_ns", "end_ns", "bytes"], orient="row")
    bursts = bursts.with_columns(window_start_ns=pl.lit(data_from * MS))
    return line_up(bursts, described(streams, size_class), DEFAULT)


def steps_of(streams: Sequence[Sequence[Burst]], *, size_class: int = 0, data_from: int = -PERIOD) -> pl.DataFrame:
    """Return the steps of the beats that the bursts of streams make."""
    table = lined_up(streams, size_class=size_class, data_from=data_from)
    return whole_steps(table, described(streams, size_class), DEFAULT)


def once_a_step(pair: int, at: float, *, lasts: float = 1, size: int = MB, count: int = STEPS) -> list[Burst]:
    return [(pair, PERIOD * step + at, PERIOD * step + at + lasts, size) for step in range(count)]


def last_ends(table: pl.DataFrame) -> set[int]:
    """Return when the last burst of each beat ends, in ms after a step's beginning."""
    return set(table.group_by("beat").agg(pl.col("end_ns").max())["end_ns"] // MS % PERIOD)


def test_what_bursts_more_often_than_once_a_period_does_not_mark_where_steps_meet() -> None:
    """Another size is there twice in half of the steps."""
    often = [sorted([*once_a_step(pair, 500, lasts=3), *once_a_step(pair, 600, lasts=3)[::2]]) for pair in range(4)]
    assert last_ends(lined_up([*often, *(once_a_step(pair, 900) for pair in range(4))])) == {901}


def in_steps(sizes: Mapping[int, Sequence[int]]) -> list[int]:
    """Return how many beats each step has, of four sizes that carry 1, 1, 1 and 7 MB but for the steps given."""
    streams = [
        [
            (pair, PERIOD * step + 900, PERIOD * step + 901, size)
            for step in range(STEPS)
            if (size := sizes.get(step, (MB, MB, MB, 7 * MB))[pair])
        ]
        for pair in range(4)
    ]
    return steps_of(streams).group_by("step", maintain_order=True).len()["len"].to_list()


@pytest.mark.parametrize(
    ("few", "found"),
    [
        ((MB, MB, MB, MB), [1] * 10),
        ((MB, MB, 0, MB), [1] * 10),
        ((MB // 2, MB // 2, MB // 2, 7 * MB // 2), [1] * 4 + [2] + [1] * 4),
    ],
    ids=["one size has few bytes", "two come again", "all have half of their bytes"],
)
def test_two_beats_are_parts_of_a_step_if_their_streams_have_part_of_what_is_usual(
    few: Sequence[int], found: list[int]
) -> None:
    assert in_steps({4: few, 5: few}) == found


@pytest.mark.parametrize(
    ("sizes", "steps"), [((MB, MB, 0, 3 * MB), 10), ((MB, MB, 0, 2 * MB), 9)], ids=["three fifths", "less"]
)
def test_a_beat_of_too_few_streams_is_no_step(sizes: Sequence[int], steps: int) -> None:
    """The last one: of four streams two are whole, one is missing, and one has three sevenths of its bytes, or two."""
    assert len(in_steps({STEPS - 1: sizes})) == steps


@pytest.mark.parametrize(
    ("data_from", "first_end", "size", "steps"),
    [
        (0, 901, MB, STEPS),
        (-1000, 901, MB, STEPS - 1),
        (0, 701, MB, STEPS - 1),
        (0, 901, MB // 2, STEPS - 1),
    ],
    ids=["cut off", "the data began a step before", "sooner than a period before the next", "half of the bytes"],
)
def test_the_end_of_a_step_that_began_before_the_data_is_a_step(
    data_from: int, first_end: int, size: int, steps: int
) -> None:
    """Of four pairs, only one is seen in the first step."""
    seen = [(0, first_end - 1, first_end, size), *once_a_step(0, 900)[1:]]
    streams = [seen, *(once_a_step(pair, 900)[1:] for pair in (1, 2, 3))]
    assert steps_of(streams, size_class=-1, data_from=data_from)["step"].n_unique() == steps


def of_two_paces(paces: Sequence[float], early: float) -> list[list[Burst]]:
    """Return two pairs of which one ends with each step of these lengths, the other by a ratio of the step earlier."""
    ends = [sum(paces[: step + 1]) for step in range(len(paces))]
    late = [(0, end - 1, end, MB) for end in ends]
    return [late, [(1, end - early * pace - 1, end - early * pace, MB) for end, pace in zip(ends, paces, strict=True)]]


@pytest.mark.parametrize("paces", [[300] * 8 + [PERIOD] * 12, [PERIOD] * 12 + [3200] * 8], ids=["shorter", "longer"])
def test_delays_are_ratios_of_the_pace_that_steps_have_there(paces: list[float]) -> None:
    """Stages that end by a third of a step apart, before somebody became slow and since."""
    table = lined_up(of_two_paces(paces, 0.33), size_class=-1)
    assert table.group_by("beat").len()["len"].to_list() == [2] * 20


@pytest.mark.parametrize(
    ("other", "pace"),
    [(660, 660), (670, PERIOD), (1490, PERIOD), (1510, 1510)],
    ids=["far off", "not", "not", "far off"],
)
def test_a_pace_is_another_that_is_half_as_long_again(other: float, pace: float) -> None:
    table = lined_up(of_two_paces([other] * 8 + [PERIOD] * 12, 0.33), size_class=-1)
    assert table.sort("end_ns")["pace_ns"][0] == pace * MS


@pytest.mark.parametrize("at", [0, STEPS // 2, STEPS - 1], ids=["first", "midst", "last"])
def test_two_bursts_that_end_at_one_moment_have_the_pace_of_the_group(at: int) -> None:
    """A record was sent twice. No time lies between the two, so that a delay would be no number of turns."""
    twice = once_a_step(0, 900)
    twice.insert(at, twice[at])
    table = lined_up([twice, once_a_step(1, 500)], size_class=-1)
    assert set(table["pace_ns"]) == {PERIOD * MS}


@pytest.mark.parametrize("size_class", [-1, 0], ids=["pairs", "sizes"])
def test_half_of_a_job_s_pairs_that_come_apart_from_the_other_half_are_no_step(size_class: int) -> None:
    """Two rings end together in six steps, and half a step apart in twelve, since one of them is slow."""
    ends = [(PERIOD * step, PERIOD * step) for step in range(6)]
    ends += [(6000 + 2000 * step, 7000 + 2000 * step) for step in range(12)]
    streams = [[(pair, end[pair] - 1, end[pair], MB) for end in ends] for pair in (0, 1)]
    assert steps_of(streams, size_class=size_class)["step"].n_unique() == 18
