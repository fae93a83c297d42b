"""Which steps of a job were over when it fell silent."""

from __future__ import annotations

import polars as pl
import pytest
from handmade import MB, MS, settings

from llmprism_tasks.stages.liveness.progress.whole_steps import ended_together, whole_steps

STEPS = 12


@pytest.mark.parametrize(("again", "expected"), [("", STEPS - 1), ("ab", STEPS - 1), ("abc", STEPS)])
def test_a_step_after_which_most_nics_send_again_is_over_whatever_it_lacks(again: str, expected: int) -> None:
    """In the last step of a ring of four, the small part of one is missing."""
    ends = pl.DataFrame({"step": range(STEPS)}).with_columns(end_ns=pl.col("step") * 1000 * MS)
    parts = pl.DataFrame({"addr": list("abcd"), "bytes": [8 * MB, 8 * MB, 8 * MB, MB]})
    endpoints = ends.join(parts, how="cross").filter((pl.col("step") < STEPS - 1) | (pl.col("addr") != "d"))
    begun = pl.DataFrame(
        {"src_addr": list(again), "flow_start_ns": 1000 * MS * STEPS}, schema_overrides={"src_addr": pl.String}
    )
    whole = whole_steps(endpoints, begun, settings())
    assert whole is not None
    assert whole.height == expected


@pytest.mark.parametrize(
    ("late_ms", "moved", "before_ms", "end_ms"),
    [(400, 110, 20, 20), (400, 110, 250, 400), (30, 110, 20, 30), (400, 100, 20, 400)],
    ids=["a begun step", "no lock step", "in lock step", "later without more bytes"],
)
def test_the_beginning_of_another_step_does_not_end_the_last_one(
    late_ms: int, moved: int, before_ms: int, end_ms: int
) -> None:
    """Two of four NICs seem to end the last step later than the others, which end it up to 20 ms apart."""
    ends = {step: [0, 20, 0, before_ms] for step in range(5)} | {5: [0, 20, late_ms, late_ms]}
    rows = [
        (addr, step, 1000 * step + after, moved * MB if (step, after) == (5, late_ms) else 100 * MB)
        for step, afters in ends.items()
        for addr, after in zip("abcd", afters, strict=True)
    ]
    endpoints = pl.DataFrame(rows, ["addr", "step", "end_ns", "bytes"], orient="row")
    job_steps = endpoints.group_by("step").agg(pl.col("end_ns").max()).sort("step")
    nics, steps = ended_together(endpoints, job_steps, settings())
    assert steps["end_ns"].to_list() == [*job_steps["end_ns"][:-1], 5000 + end_ms]
    assert nics.filter(step=5)["end_ns"].max() == 5000 + end_ms
