"""What comes after the last whole step begins another one only if it is its pair's turn."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MB, MS, Row, every, flows, messages, settings

from llmprism_tasks.stages.liveness.progress.step_progress import step_progress_at
from llmprism_tasks.stages.liveness.progress.turn import in_turn

STEPS = 12
LAST = 1000 * STEPS
ORDER = [("a", "b", 6 * MB), ("b", "c", 6 * MB), ("c", "d", 6 * MB), ("d", "a", 6 * MB)]
"""Who sends in each step, one after another."""


def trained() -> list[list[Row]]:
    return [
        messages(src, dst, every(1000, count=STEPS, start=100 * at), size) for at, (src, dst, size) in enumerate(ORDER)
    ]


def kept(*begun: tuple[str, str, int]) -> list[str]:
    """Return who sends what is in turn, if these follow each other after the last step."""
    steps = flows(*trained()).with_columns(
        step=(pl.col("flow_start_ns") - pl.col("flow_start_ns").min()) // (1000 * MS)
    )
    rows = [(LAST + 100.0 * at, LAST + 100.0 * at + 1, *row) for at, row in enumerate(begun)]
    return in_turn(flows(rows), steps, settings().rhythm.same_size)["src_addr"].to_list()


@pytest.mark.parametrize(
    ("begun", "in_turn_"),
    [
        (ORDER, "abcd"),
        ([("d", "a", 20_000)], ""),
        ([("a", "b", 20_000), ("d", "a", 20_000)], "a"),
        ([("x", "y", 20_000)], "x"),
        ([("b", "c", 6 * MB), ("c", "d", 6 * MB), ("d", "a", 6 * MB)], "cd"),
        ([("a", "b", 3 * MB), ("b", "c", 6 * MB)], "ab"),
        ([("a", "b", 2 * MB), ("b", "c", 6 * MB)], "a"),
    ],
    ids=["a step", "a log", "two logs", "a stranger", "a record is lost", "half", "less than half"],
)
def test_half_of_what_comes_before_a_pair_in_each_step_must_have_been_sent(
    begun: list[tuple[str, str, int]], in_turn_: str
) -> None:
    assert kept(*begun) == list(in_turn_)


@pytest.mark.parametrize(
    ("last", "midway"), [((LAST + 50.0, LAST + 51.0, "d", "a", 20_000), False), ((LAST, LAST + 1, "a", "b", MB), True)]
)
def test_a_log_that_follows_the_last_step_begins_no_other(last: Row, midway: bool) -> None:
    bulk = flows(*trained(), [last]).with_columns(job_id=pl.lit("j"))
    where = step_progress_at(bulk, int(bulk["flow_end_ns"].max()), settings())  # type: ignore[arg-type]
    assert where is not None
    assert where.midway == midway
