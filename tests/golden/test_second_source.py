"""Jobs of the second source of traffic are read rightly: kinds that were misread once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from accuracy.runs.scored_run import scores_of
from accuracy.second_source.cases import CASES
from accuracy.second_source.folder import Platform, nic, write
from accuracy.second_source.training import Training
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


def test_micro_batches_of_a_few_long_steps_are_no_steps(tmp_path: Path) -> None:
    """Four stages, no replicas: five steps of 46 s, each of sixteen micro-batches. They were told as 71 steps."""
    step, micro_batches = 46.0, 16
    job = Training(
        "jobA", "1f1b", tuple(nic(host, 0) for host in range(4)), 20.0, 295.0, pp=4, micro_batches=micro_batches,
        layers=8, layer_s=step / (micro_batches + 3) / 24, layer_bytes=3e8, bucket_bytes=6e8, activation_bytes=8e7,
        tail=0.06, unevenness=0.1, jitter=0.04,
    )  # fmt: skip
    write(Platform([job], hosts=4, gpus=2, inner=True, spines=2, lost=0.002, end_s=295.0), tmp_path, 1)
    found = headline(scores_of(tmp_path, "flows.parquet", "joint", tmp_path / "second.duckdb"))
    assert found["steps_found"] >= 3
    assert found["steps_extra"] == 0


def test_replicas_that_no_ring_reaches_are_part_of_their_job(tmp_path: Path) -> None:
    """Rings go through a host once: its other NICs only exchange micro-batches, with those of some other hosts."""
    write(CASES["interleaved"](np.random.default_rng([4, len("interleaved")])), tmp_path, 4)
    found = headline(scores_of(tmp_path, "flows.parquet", "joint", tmp_path / "second.duckdb"))
    assert found["exact"] == found["windows"]
    assert (found["steps_found"], found["steps_extra"]) == (found["steps"], 0)
