"""HTA reads what is written for it, and divides a captured run as `step_breakdown` does; `make test-hta` runs this.

HTA pins libraries of its own, so it runs in the environment whose Python `HTA_PYTHON` names.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import polars as pl
import pytest
from places import REAL

from llmprism_tasks.contract.windows import ALL_TIME
from llmprism_tasks.execution.analyze import analyze
from llmprism_tasks.reports.timeline import files
from llmprism_tasks.settings.load import load
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse

WITHIN = 0.02
"""Ratio of the steps' time; HTA cuts times to microseconds and has no step of its own before the first kernel."""

BREAKDOWN = """
import json, sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
print(json.dumps(analysis.get_temporal_breakdown(visualize=False).to_dict("records")))
"""


@pytest.mark.parametrize("capture", ["dp2pp4_healthy", "dp4pp2_slow_rank", "ddp4_healthy", "fsdp4", "interleaved"])
def test_hta_divides_a_captured_run_as_step_breakdown_does(capture: str, tmp_path: Path) -> None:
    places = {
        "places.flows": str(REAL / capture / "flows.parquet"),
        "places.topology": str(REAL / capture / "topology.csv"),
        "places.warehouse": str(tmp_path / "w.duckdb"),
    }
    analyze(load(overrides=places, environment={}))
    warehouse = open_warehouse(Warehouse(places["places.warehouse"], lock_wait_s=10))
    (job,) = store.query(warehouse, "SELECT DISTINCT job_id FROM jobs")["job_id"]
    lanes = files.lanes_to_show(warehouse, job, start_ns=0)
    files.write(lanes, "kineto", tmp_path / "ranks")
    ran = subprocess.run(
        [os.environ["HTA_PYTHON"], "-c", BREAKDOWN, str(tmp_path / "ranks")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    of_hta = json.loads(ran.stdout.splitlines()[-1])
    told = store.read(warehouse, "step_breakdown", ALL_TIME).group_by("addr").agg(pl.selectors.ends_with("_ns").sum())
    for row in of_hta:
        (own,) = told.filter(addr=lanes.nics["addr"][row["rank"]]).iter_rows(named=True)
        idle_ns = own["bubble_ns"] + own["waiting_ns"] + own["unexplained_ns"]
        parts = {"compute": own["compute_ns"], "non_compute": own["communication_ns"], "idle": idle_ns}
        for part, ns in parts.items():
            assert row[f"{part}_time(us)"] * 1000 == pytest.approx(ns, abs=WITHIN * own["step_ns"]), (own["addr"], part)
    assert len(of_hta) == told.height
