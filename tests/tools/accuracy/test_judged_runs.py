"""Which faults of a capture somebody is asked to tell."""

from __future__ import annotations

import polars as pl
import pytest

from accuracy.runs.judged_runs import judgeable
from llmprism_tasks.reports.evaluation.pairs import SETTLED_STEPS


@pytest.mark.parametrize(
    ("pause", "left"),
    [(("jobA", 1000, 1010), 0), (("jobB", 1000, 1010), 1), (("jobA", 1000, 1011), 1), (None, 1)],
    ids=["by habit", "another job's", "another time", "no habit"],
)
def test_nobody_is_asked_to_tell_checkpoints_by_habit(pause: tuple[str, int, int] | None, left: int) -> None:
    fault = {
        "kind": "checkpoint_stall",
        "job": "jobA",
        "start_ns": 1000,
        "end_ns": 1010,
        "severity": 1.0,
        "effect": 1.0,
    }
    pauses = pl.DataFrame([pause] if pause else [], schema=["job", "start_ns", "end_ns"], orient="row")
    pauses = pauses.cast({"job": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64})
    steps = pl.DataFrame({"job": "jobA", "end_ns": range(SETTLED_STEPS)})
    assert judgeable(pl.DataFrame([fault]), steps, pauses).height == left
