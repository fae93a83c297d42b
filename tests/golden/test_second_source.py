"""Jobs of the second source of traffic are read rightly: kinds that were misread once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from accuracy.runs.scored_run import scores_of
from accuracy.second_source.cases import CASES
from accuracy.second_source.folder import write
from llmprism_tasks.reports.evaluation.headline import headline

ONE_UNDER_WAY = 1
"""The step under way when a job ends may be told as one."""


@pytest.mark.parametrize(
    ("case", "seed"),
    [("uneven_ddp", 0), ("uneven_ddp", 1), ("sharded", 10), ("uneven_replicas", 0), ("long_pipeline", 1)],
)
def test_jobs_are_read_rightly(case: str, seed: int, tmp_path: Path) -> None:
    write(CASES[case](np.random.default_rng([seed, len(case)])), tmp_path, seed)
    found = headline(scores_of(tmp_path, "flows.parquet", "joint", tmp_path / "second.duckdb"))
    assert found["exact"] == found["windows"]
    assert (found["called_other"], found["precision"], found["recall"]) == (0, 1.0, 1.0)
    assert found["layouts_right"] == found["layouts"]
    assert found["steps_found"] >= 0.94 * found["steps"]
    assert found["steps_extra"] <= ONE_UNDER_WAY
    assert found["duration_error"]["p95"] <= 0.01
