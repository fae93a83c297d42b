"""Messages that one NIC held name it, those of a ring its members; those of several or for a moment only nobody."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from llmprism_tasks.stages.diagnosis.pauses.held_transfers import held_nics

MS = 1_000_000
LOST_MS = 3000.0
Record = tuple[str, str, float, float]
"""Source, destination, start and end in the slow step, ms."""


def held(slow: Sequence[Record], lost_ms: float = LOST_MS) -> list[str]:
    """Return who held records of a slow step; usually each pair of a pipeline of four takes 5 ms, as each hop of a ring
    does that the second and third member form with two others."""
    pairs = [(src, dst) for src, dst in zip("abcbcd" + "bxcy", "bcdabc" + "xcyb", strict=True)]
    quick = [
        (src, dst, step * 1000.0 + at * 100, step * 1000.0 + at * 100 + 5)
        for step in range(5)
        for src, dst in pairs
        for at in range(4)
    ]
    rows = [("j", *row, True) for row in quick] + [("j", *row, False) for row in slow]
    frame = pl.DataFrame(rows, schema=["job_id", "src_addr", "dst_addr", "start", "end", "quick"], orient="row")
    return held_nics(
        frame.with_columns(
            flow_start_ns=(pl.col("start") * MS).cast(pl.Int64),
            flow_end_ns=(pl.col("end") * MS).cast(pl.Int64),
            bytes=pl.lit(1_000_000),
            slow=~pl.col("quick"),
            unit=pl.when(pl.any_horizontal(pl.col("src_addr", "dst_addr").is_in(["x", "y"])))
            .then(pl.lit("ring"))
            .otherwise(pl.concat_str("src_addr", "dst_addr")),
        ),
        lost_ms * MS,
    )


USUAL: list[Record] = [("a", "b", 9000, 9005), ("c", "d", 9000, 9005)]
BOTH_WAYS: list[Record] = [
    ("a", "b", 5000, 6000),
    ("b", "c", 5100, 6000),
    ("b", "a", 6000, 7000),
    ("c", "b", 7000, 8000),
]


def test_what_goes_through_one_nic_alone_names_it() -> None:
    assert held([*USUAL, *BOTH_WAYS]) == ["b"]


def test_of_one_pair_either_end_may_have_held_it() -> None:
    assert held([*USUAL, ("a", "b", 5000, 7500)]) == ["a", "b"]


@pytest.mark.parametrize(("also_ms", "told"), [(900.0, ["b"]), (1100.0, [])])
def test_others_hold_a_fifth_at_most(also_ms: float, told: list[str]) -> None:
    """3.9 s of what is held goes through `b`."""
    assert held([*USUAL, *BOTH_WAYS, ("c", "d", 5000, 5000 + also_ms)]) == told


@pytest.mark.parametrize(("lost_ms", "told"), [(5990.0, ["b"]), (6010.0, [])])
def test_transfers_are_held_for_most_of_what_the_step_lost(lost_ms: float, told: list[str]) -> None:
    """For 3 s, however many are held at once."""
    assert held([*USUAL, *BOTH_WAYS], lost_ms) == told


RING: list[Record] = [(src, dst, 5000.0, 8000.0) for src, dst in zip("bxcy", "xcyb", strict=True)]


def test_any_member_of_a_held_ring_may_have_held_it() -> None:
    assert held([*USUAL, *RING]) == ["b", "c", "x", "y"]


def test_a_member_that_held_more_than_its_ring_did_so() -> None:
    assert held([*USUAL, *RING, ("a", "b", 5000.0, 6000.0)]) == ["b"]


def test_a_ring_waits_for_the_member_that_is_not_held() -> None:
    assert held([*USUAL, *RING[:-1], ("y", "b", 7995.0, 8000.0)]) == []


def test_pairs_without_a_common_end_name_nobody() -> None:
    assert held([(src, dst, 5000.0, 8000.0) for src, dst in zip("abc", "bcd", strict=True)]) == []


def test_what_took_as_long_before_is_not_held() -> None:
    assert held(USUAL, lost_ms=1.0) == []
