"""Captured training whose layout shows in one way only: degrees and kinds of pairs are true in all windows."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import REAL

from accuracy.runs.scored_run import scored_run


@pytest.mark.parametrize(
    ("capture", "degrees"),
    [
        ("two_rings", {"tp": 2, "pp": 1, "dp": 3}),
        ("six_experts", {"tp": 1, "pp": 1, "dp": 6, "ep": 6}),
        ("four_stages_interleaved", {"tp": 1, "pp": 4, "dp": 1}),
        ("cp4_ring", {"tp": 1, "pp": 1, "dp": 1, "cp": 4}),
    ],
)
def test_degrees_and_kinds_are_the_true_ones(capture: str, degrees: dict[str, int], tmp_path: Path) -> None:
    """Two rings of equal bytes over the same hosts; tokens of two layers in records of several messages; a pipeline of
    four GPUs, each with two parts of the model, whose gradients leave no host; blocks that go against a ring of
    gradients."""
    run = scored_run(REAL / capture, "flows_coarse.parquet", tmp_path / "w.duckdb", validated=False)
    found = run.figures["all"]
    assert (found["precision"], found["recall"]) == (1.0, 1.0)
    assert found["layouts_right"] == found["layouts"] > 0
    laid = run.found["jobs"].drop_nulls("dp").select(list(degrees)).unique().rows(named=True)
    assert degrees in laid


def test_blocks_along_a_ring_of_gradients_are_no_replicas(tmp_path: Path) -> None:
    """Nobody knows whether such a ring gathers; it does not fill every step, so nobody says that all are replicas."""
    run = scored_run(REAL / "cp4_ring_same_way", "flows_coarse.parquet", tmp_path / "w.duckdb", validated=False)
    verdicts = run.figures["all"]["degrees"]
    assert {name: row["wrong"] for name, row in verdicts.items()} == dict.fromkeys(verdicts, 0)
