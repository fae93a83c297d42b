"""A topology that lacks half of a platform's NICs accuses no innocent, and every diagnosis says what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from accuracy.runs.scored_run import Scored, scored_run
from llmprism_tasks.simulate import build_scenario, simulate

START_NS = 1_760_000_400_000_000_000
JOB = {"name": "job", "model": "1b", "layers": 16, "hidden": 2048, "sequence": 2048, "micro_batches": 4}
FABRIC = {"hosts": 8, "gpus_per_host": 4, "hosts_per_leaf": 4, "spines": 2, "link_gbps": 50.0, "uplink_gbps": 200.0}

NIC = {"faults": [{"kind": "slow_nic", "job": "job", "rank": 9, "factor": 0.2, "start_s": 70}]}
SWITCH = {"faults": [{"kind": "degraded_switch", "switch": "leaf-000", "factor": 0.2, "start_s": 70}]}
HANG = {"restarts": [{"job": "job", "at_s": 100, "pause_s": 65, "stop": "hang"}]}


def found(folder: Path, trouble: dict[str, Any], listed: pl.Expr) -> Scored:
    """Return what is found in three minutes of a job over all hosts, where the topology lists some of them."""
    job = JOB | {"hosts": "0-7", "tp": 4, "pp": 2, "dp": 4, "forward_ms": 100}
    scenario = build_scenario("half", {"fabric": FABRIC, "jobs": [job], **trouble})
    made = simulate(scenario, minutes=3, seed=1, start_ns=START_NS)
    (folder / "truth").mkdir()
    made.flows.write_parquet(folder / "flows.parquet")
    made.topology.filter(listed).write_csv(folder / "topology.csv")
    for table, rows in made.truth.items():
        file = folder / "truth" / table
        rows.write_csv(file.with_suffix(".csv")) if table == "layouts" else rows.write_parquet(f"{file}.parquet")
    return scored_run(folder, "flows.parquet", folder / "w.duckdb", validated=False)


FIRST = pl.col("host") < "node0004"  # the hosts of the first leaf
LAST = ~FIRST
EVERY_OTHER = pl.col("host").str.tail(1).cast(pl.Int64) % 2 == 0


@pytest.mark.parametrize(
    ("trouble", "listed", "culprit"),
    [
        pytest.param(NIC, FIRST, "10.2.0.2", id="slow NIC, listed"),
        pytest.param(NIC, LAST, "", id="slow NIC, not listed"),
        pytest.param(SWITCH, FIRST, "leaf-000", id="switch, its hosts listed"),
        pytest.param(SWITCH, EVERY_OTHER, "leaf-000", id="switch, half of its hosts listed"),
        pytest.param(HANG, LAST, "node0000", id="hang"),
    ],
)
def test_nobody_is_paged_and_each_diagnosis_names_what_is_missing(
    tmp_path: Path, trouble: dict[str, Any], listed: pl.Expr, culprit: str
) -> None:
    scored = found(tmp_path, trouble, listed)
    diagnoses = scored.found["diagnoses"]
    assert diagnoses["explanation"].str.contains(r"The topology lacks \d+ NICs of this job").all()
    innocents = diagnoses.filter(pl.col("subject_type") != "job", pl.col("subject") != culprit)
    assert innocents["confidence"].max() is None or innocents["confidence"].max() <= 0.5
