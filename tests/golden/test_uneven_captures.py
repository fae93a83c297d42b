"""Captured training that is short of breath, uneven, or long: jobs, layouts and steps are the true ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import REAL

from accuracy.runs.scored_run import scored_run

WARM_UP = {"twelve_micro_batches"}
"""Its ranks reduce gradients once before the first step that they log; this may be found as a step."""


@pytest.mark.parametrize("capture", ["short_steps", "uneven_steps", "twelve_micro_batches"])
def test_jobs_layouts_and_steps_are_the_true_ones(capture: str, tmp_path: Path) -> None:
    run = scored_run(REAL / capture, "flows_coarse.parquet", tmp_path / "w.duckdb", validated=False)
    found = run.figures["all"]
    assert found["exact"] == found["windows"] == 3
    assert (found["called_other"], found["precision"], found["recall"]) == (0, 1.0, 1.0)
    assert found["layouts_right"] == found["layouts"] > 0
    assert found["steps_found"] == found["steps"] > 0
    assert found["steps_extra"] <= (capture in WARM_UP)
    assert found["duration_error"]["median"] <= 0.01
    assert found["duration_error"]["p95"] <= 0.03
    assert found["false_diagnoses"] == 0
