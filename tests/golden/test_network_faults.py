"""Simulated faults of the network, each told once, by its name: several at once, hidden ones, paths that all cross."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from accuracy.runs.scored_run import Scored, scored_run
from llmprism_tasks.simulate import build_scenario, simulate

START_NS = 1_760_000_400_000_000_000
ONSET_S = 70

JOB = {"model": "1b", "layers": 16, "hidden": 2048, "sequence": 2048, "micro_batches": 4, "forward_ms": 100}
SMALL = {"gpus_per_host": 4, "hosts_per_leaf": 4, "link_gbps": 50.0, "uplink_gbps": 200.0}
LEAVES = {"leaves": "top_of_rack"}


def told(folder: Path, fabric: dict[str, Any], jobs: list[dict[str, Any]], *faults: dict[str, Any]) -> Scored:
    """Return what is found in four minutes of a platform on which things go wrong in the second."""
    jobs = [JOB | {"name": f"job{number}"} | job for number, job in enumerate(jobs)]
    content = {"fabric": SMALL | fabric, "jobs": jobs, "faults": [{"start_s": ONSET_S} | fault for fault in faults]}
    made = simulate(build_scenario("network", content), minutes=4, seed=7, start_ns=START_NS)
    (folder / "truth").mkdir()
    made.flows.write_parquet(folder / "flows.parquet")
    made.topology.write_csv(folder / "topology.csv")
    for table, rows in made.truth.items():
        if table == "layouts":
            rows.write_csv(folder / "truth" / "layouts.csv")
        else:
            rows.write_parquet(folder / "truth" / f"{table}.parquet")
    return scored_run(folder, "flows.parquet", folder / "w.duckdb", validated=False)


def named(scored: Scored) -> set[tuple[str, str]]:
    """Return what the incidents are about; effects on jobs are told with their causes."""
    return {(one["kind"], one["subject"]) for one in scored.incidents if one["effect_of"] is None}


def test_faults_of_several_jobs_at_once_are_each_told_once(tmp_path: Path) -> None:
    """Two NICs that cost next to nothing, in a pipeline and in replicas, and a GPU that costs a third of the steps."""
    scored = told(
        tmp_path,
        {"hosts": 16, "spines": 2, "link_gbps": 200.0, "uplink_gbps": 800.0},
        [
            {"hosts": "0-7", "tp": 4, "pp": 2, "dp": 4},
            {"hosts": "8-11", "tp": 4, "dp": 4},
            {"hosts": "12-15", "tp": 2, "pp": 2, "dp": 4},
        ],
        {"kind": "slow_nic", "job": "job0", "rank": 9, "factor": 0.4},
        {"kind": "slow_gpu", "job": "job1", "rank": 6, "factor": 1.5},
        {"kind": "slow_nic", "job": "job2", "rank": 5, "factor": 0.3},
    )
    assert named(scored) == {("latent", "10.2.0.2"), ("slow_compute", "node0009"), ("latent", "10.2.0.13")}
    latent = scored.found["diagnoses"].filter(pl.col("kind") == "latent")
    assert latent["rank"].is_null().all()
    assert latent["window_start_ns"].min() == START_NS + 60 * 10**9, "in the window of the onset, or the next"


def test_an_uplink_that_all_rings_cross_is_told_with_what_cannot_be_told_apart(tmp_path: Path) -> None:
    scored = told(
        tmp_path,
        LEAVES | {"hosts": 8, "spines": 1, "uplink_gbps": 400.0},
        [{"hosts": "0-7", "tp": 4, "dp": 8, "gradient_sync": "after"}],
        {"kind": "degraded_link", "switch": "leaf-000", "neighbour": "spine-00", "factor": 0.125},
    )
    assert named(scored) == {("slow_network", "leaf-000 - spine-00")}
    devices = scored.found["diagnoses"].filter(pl.col("kind") == "slow_network")
    assert set(devices["candidates"][0]) == {"leaf-000 - spine-00", "leaf-001 - spine-00", "spine-00"}
    assert devices["odds"].list.sum().to_list() == pytest.approx([1.0] * devices.height)


def test_a_link_behind_the_groups_of_a_job_is_one_finding(tmp_path: Path) -> None:
    """Rings go round three leaves, so that two links of each spine can be told apart."""
    scored = told(
        tmp_path,
        LEAVES | {"hosts": 12, "spines": 2},
        [{"hosts": "0-11", "tp": 4, "dp": 12, "gradient_sync": "after", "channels": 2}],
        {"kind": "degraded_link", "switch": "leaf-001", "neighbour": "spine-01", "factor": 0.2},
    )
    assert named(scored) == {("degraded_link", "leaf-001 - spine-01")}
