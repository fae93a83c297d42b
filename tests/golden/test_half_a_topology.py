"""A topology that lacks half of a platform's NICs accuses no innocent, and every diagnosis says what is missing."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from accuracy.runs.scored_run import Scored, scored_run
from llmprism_tasks.simulate import Simulation, build_scenario, simulate

START_NS = 1_760_000_400_000_000_000
JOB = {"name": "job", "model": "1b", "layers": 16, "hidden": 2048, "sequence": 2048, "micro_batches": 4}
FABRIC = {"hosts": 8, "gpus_per_host": 4, "hosts_per_leaf": 4, "spines": 2, "link_gbps": 50.0, "uplink_gbps": 200.0}

TROUBLES: dict[str, dict[str, Any]] = {
    "slow NIC": {"faults": [{"kind": "slow_nic", "job": "job", "rank": 9, "factor": 0.2, "start_s": 70}]},
    "switch": {"faults": [{"kind": "degraded_switch", "switch": "leaf-000", "factor": 0.2, "start_s": 70}]},
    "hang": {"restarts": [{"job": "job", "at_s": 100, "pause_s": 65, "stop": "hang"}]},
}


@cache
def simulated(trouble: str) -> Simulation:
    """Return three minutes of a job over all hosts."""
    job = JOB | {"hosts": "0-7", "tp": 4, "pp": 2, "dp": 4, "forward_ms": 100}
    scenario = build_scenario("half", {"fabric": FABRIC, "jobs": [job], **TROUBLES[trouble]})
    return simulate(scenario, minutes=3, seed=1, start_ns=START_NS)


def found(folder: Path, trouble: str, listed: pl.Expr) -> Scored:
    """Return what is found of a trouble where the topology lists some of the hosts."""
    made = simulated(trouble)
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
        pytest.param("slow NIC", FIRST, "10.2.0.2", id="slow NIC, listed"),
        pytest.param("slow NIC", LAST, "", id="slow NIC, not listed"),
        pytest.param("switch", FIRST, "leaf-000", id="switch, its hosts listed"),
        pytest.param("switch", EVERY_OTHER, "leaf-000", id="switch, half of its hosts listed"),
        pytest.param("hang", LAST, "node0000", id="hang"),
    ],
)
def test_nobody_is_paged_and_each_diagnosis_names_what_is_missing(
    tmp_path: Path, trouble: str, listed: pl.Expr, culprit: str
) -> None:
    scored = found(tmp_path, trouble, listed)
    diagnoses = scored.found["diagnoses"]
    assert diagnoses["explanation"].str.contains(r"The topology lacks \d+ NICs of this job").all()
    innocents = diagnoses.filter(pl.col("subject_type") != "job", pl.col("subject") != culprit)
    assert innocents["confidence"].max() is None or innocents["confidence"].max() <= 0.5
