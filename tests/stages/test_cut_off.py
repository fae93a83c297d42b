"""Where a job stood when it fell silent: what a pipeline ends with is no beginning of a step."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import every, flows, messages, settings

from llmprism_tasks.stages.cut_off import cut_off

MB = 1_000_000
STEPS = 12
LAST = 1000 * STEPS


def midway(*last: tuple[str, str, int]) -> bool:
    """Twelve steps of a second in which `a` sends 8 MB to `b` and gets 8 MB back, and then what is told."""
    there, back = (messages(*ends, every(1000, count=STEPS, start=at), 8 * MB) for ends, at in (("ab", 0), ("ba", 300)))
    sent = flows(there, back, *(messages(src, dst, [LAST + 20 * at], size) for at, (src, dst, size) in enumerate(last)))
    bulk = sent.with_columns(job_id=pl.lit("j"))
    where = cut_off(bulk, int(bulk["flow_end_ns"].max()), settings())  # type: ignore[arg-type]
    assert where is not None
    return where.midway


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ([], False),
        ([("a", "b", 8 * MB)], False),
        ([("a", "b", 7_300_000)], False),
        ([("a", "b", 7_100_000)], True),
        ([("a", "b", 4 * MB)], True),
        ([("a", "b", 8 * MB), ("b", "a", 4 * MB)], True),
    ],
)
def test_a_whole_message_that_nobody_answers_may_be_the_last(last: list[tuple[str, str, int]], expected: bool) -> None:
    assert midway(*last) == expected
