"""Two simulated tenants with tensor, pipeline and data parallelism, compared with the simulator's own truth."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from accuracy.runs.scored_run import Scored, scored_run
from llmprism_tasks.simulate import write_scenario

START_NS = 1_760_000_400_000_000_000

DEMO_START_NS = 1_767_225_600_000_000_000
"""2026-01-01, where `llmprism simulate` begins."""

LEAST_STEPS, MEDIAN_ERROR = 0.98, 0.0005
"""Ratio of the steps that are found, and how exact the median of their durations is."""


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Scored:
    folder = tmp_path_factory.mktemp("small")
    write_scenario(folder, scenario="small", minutes=2, seed=11, start_ns=START_NS)
    return scored_run(folder, "flows", folder / "w.duckdb", validated=False)


def test_jobs_and_members_are_exactly_the_true_ones(scored: Scored) -> None:
    jobs = scored.scores.jobs
    assert jobs.height == 4
    assert jobs["exact"].all()
    assert jobs.group_by("job").agg(pl.col("job_id").n_unique())["job_id"].to_list() == [1, 1]
    assert scored.scores.invented.is_empty()


def test_degrees_are_right(scored: Scored) -> None:
    jobs = scored.figures["jobs"]
    assert {name: (job["layouts"], job["layouts_right"]) for name, job in jobs.items()} == {
        "pipeline": (2, 2),
        "replicas": (2, 2),
    }


def test_pairs_have_their_true_kind(scored: Scored) -> None:
    kinds = scored.figures["pairs"]
    assert set(kinds) >= {"dp", "pp"}
    assert {(kind["precision"], kind["recall"]) for kind in kinds.values()} == {(1.0, 1.0)}


def test_steps_are_found_and_durations_right(scored: Scored) -> None:
    for job in scored.figures["jobs"].values():
        assert job["step_recall"] >= LEAST_STEPS
        assert job["steps_extra"] == 0
        assert job["duration_error"]["median"] <= MEDIAN_ERROR


def test_nothing_is_wrong_with_healthy_tenants(scored: Scored) -> None:
    assert scored.found["diagnoses"].is_empty()


def test_the_demo_is_read_as_readme_shows(tmp_path: Path) -> None:
    write_scenario(tmp_path, scenario="demo", minutes=10, seed=0, start_ns=DEMO_START_NS)
    scored = scored_run(tmp_path, "flows", tmp_path / "w.duckdb", validated=False)
    for job in scored.figures["jobs"].values():
        assert (job["step_recall"], job["steps_extra"]) == (1.0, 0)
    found = scored.found["diagnoses"].group_by("kind", "subject").len("windows").sort("kind")
    assert found.rows() == [("degraded_switch", "leaf-018", 4), ("slow_compute", "node0006", 6)]


def test_pipelines_that_end_in_order_hang_nowhere(tmp_path: Path) -> None:
    """Of few micro-batches, of samples that differ in length, or of a single replica. A last step may lack a record."""
    write_scenario(tmp_path, scenario="ends_in_order", minutes=5, seed=3, start_ns=START_NS)
    found = scored_run(tmp_path, "flows", tmp_path / "w.duckdb", validated=False).found
    assert set(found["diagnoses"]["kind"]) <= {"ended"}
    assert set(found["diagnoses"]["candidates"].list.first()) <= {"ended"}
