"""The published method on a captured run, through the command: it ends well, and is right where the paper says so."""

from __future__ import annotations

import polars as pl
import pytest
from places import REAL

from llmprism_tasks.cli import main
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse

CAPTURE = REAL / "ddp4_healthy"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    place = str(tmp_path_factory.mktemp("published") / "w.duckdb")
    places = ["--flows", str(CAPTURE / "flows.parquet"), "--topology", str(CAPTURE / "topology.csv")]
    changes = ["--set", "method.name=published", "--set", "window.length_s=120"]
    assert main(["analyze", *places, "--warehouse", place, *changes]) == 0
    return open_warehouse(Warehouse(place, lock_wait_s=10))


def test_jobs_and_rings_are_exact(warehouse: Warehouse) -> None:
    members = store.query(warehouse, "SELECT DISTINCT job_id, addr FROM job_members")
    assert set(members["addr"]) == set(pl.read_parquet(CAPTURE / "truth" / "truth_jobs.parquet")["addr"])
    assert members["job_id"].n_unique() == 1
    rings = pl.read_parquet(CAPTURE / "truth" / "truth_pairs.parquet").select("src_addr", "dst_addr").unique()
    found = store.query(warehouse, "SELECT DISTINCT src_addr, dst_addr FROM pairs WHERE kind = 'dp'")
    assert rings.join(found, on=["src_addr", "dst_addr"], how="anti").is_empty()


def test_nearly_all_steps_are_found(warehouse: Warehouse) -> None:
    true = pl.read_parquet(CAPTURE / "truth" / "truth_steps.parquet").select("step", true_ns="end_ns").sort("true_ns")
    found = store.query(warehouse, "SELECT end_ns FROM steps WHERE addr IS NULL ORDER BY end_ns")
    near = true.join_asof(found, left_on="true_ns", right_on="end_ns", strategy="nearest")
    quarter_ns = true["true_ns"].diff().median() / 4
    assert near.filter((pl.col("end_ns") - pl.col("true_ns")).abs() < quarter_ns).height >= 0.95 * true.height
    assert found.height <= 1.1 * true.height
