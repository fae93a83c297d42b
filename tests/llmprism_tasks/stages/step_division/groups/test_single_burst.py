"""A ring of equal bytes, seen once and over, ends a step; nothing else does that is seen once."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
import pytest
from handmade import MB, MS, WINDOW, Row, burst, flows, messages, ring, settings

from llmprism_tasks.stages.step_division.joint import job_steps

DEFAULT = settings().rhythm
EDGE_MS = 60_000


def ends_ms(*parts: Iterable[Row], until_ms: float = EDGE_MS) -> list[float]:
    """Return the ends of the steps of all records as one job, as far as a window's end lets see them."""
    seen = flows(*parts).filter(pl.col("flow_start_ns") < WINDOW.start_ns + until_ms * MS)
    table = seen.with_columns(job_id=pl.lit("j"))
    numbered = job_steps.steps_of_jobs(table, DEFAULT, until_ns=WINDOW.start_ns + round(until_ms * MS)).numbered
    ends = numbered.group_by("step").agg(pl.col("flow_end_ns").max()).sort("step")["flow_end_ns"]
    return [(end - WINDOW.start_ns) / MS for end in ends]


def buckets(begin: float, count: int = 4) -> list[Row]:
    """Return gradients in buckets of one size, 480 ms apart."""
    return ring("abcd", [begin + 480 * i for i in range(count)], length=300, parts=1)


def test_a_ring_that_is_seen_once_ends_a_step() -> None:
    assert ends_ms(ring("abcd", [20_000], length=900)) == [20_900]


def test_equal_buckets_of_a_first_burst_are_one_step() -> None:
    assert ends_ms(buckets(50_000)) == [50_000 + 3 * 480 + 300]


@pytest.mark.parametrize(("quiet", "count"), [(880, 0), (920, 1)])
def test_a_burst_is_over_when_it_has_been_quiet_for_long(quiet: float, count: int) -> None:
    """Five times the 180 ms between its buckets."""
    begin = EDGE_MS - quiet - (3 * 480 + 300)
    assert len(ends_ms(buckets(begin))) == count


def test_from_the_second_on_the_rhythm_tells_the_steps() -> None:
    assert ends_ms(ring("abcd", [10_000, 40_000], length=900)) == [10_900, 40_900]


def test_a_pipeline_goes_on_beside_the_first_synchronisation() -> None:
    """Its micro-batches repeat, but most bytes are gradients."""
    times = [500.0 * i for i in range(118)]
    up = [row for pair in ("ab", "cd") for row in messages(*pair, times, 2 * MB)]
    down = [row for pair in ("ba", "dc") for row in messages(*pair, [t + 40 for t in times], 2 * MB)]
    synchronised = [row for pair in ("ac", "bd") for row in ring(pair, [30_000], length=900, size=900 * MB)]
    assert ends_ms(up, down, synchronised) == [30_900]


@pytest.mark.parametrize(
    "rows",
    [
        [row for pair in ("ab", "ac", "bd") for row in burst(*pair, 20_000)],
        [row for src, dst in zip("abc", "bcd", strict=True) for row in burst(src, dst, 20_000)],
        [row for src in "abcde" for dst in "abcde" if src != dst for row in burst(src, dst, 20_000)],
        [row for pair, n in (("ab", 80), ("bc", 60), ("cd", 45), ("da", 30)) for row in burst(*pair, 0, size=n * MB)],
    ],
    ids=["broadcast along a tree", "broadcast along a chain", "shuffle", "unequal bytes"],
)
def test_other_things_that_come_once_end_no_step(rows: list[Row]) -> None:
    assert ends_ms(rows) == []


@pytest.mark.parametrize(("others", "count"), [(2, 1), (3, 0)])
def test_most_nics_take_part(others: int, count: int) -> None:
    """Four of six, or of seven."""
    rest = [row for i in range(1, others) for row in messages(f"y{i - 1}", f"y{i}", [3_000 * i, 11_000 * i], MB)]
    assert len(ends_ms(ring("abcd", [40_000]), rest)) == count
