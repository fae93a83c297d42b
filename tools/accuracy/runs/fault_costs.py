"""What a trouble costs, told by replay, against what it truly cost: the same job, seed by seed, without the fault."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from accuracy.families.registry import FIRST_PUBLISHED_SEED
from llmprism_tasks.contract import frames
from llmprism_tasks.contract.plan import STAGES
from llmprism_tasks.contract.windows import Window
from llmprism_tasks.execution.partitions.partition import Partition
from llmprism_tasks.execution.partitions.stage_runner import run_stages
from llmprism_tasks.settings import Settings
from llmprism_tasks.simulate import simulate
from llmprism_tasks.simulate.scenario.scenario_file import build_scenario
from llmprism_tasks.stages.diagnosis.cost.price import price
from llmprism_tasks.stages.diagnosis.evidence import Evidence, gather
from llmprism_tasks.stages.diagnosis.pauses import checkpoints, stalls
from llmprism_tasks.stages.partition_values import PartitionValues

START = Window(1_760_000_400_000_000_000, 60_000_000_000)
LAST = START.shifted(1)
"""The window that is priced."""

FAULT_S = 40
"""Seconds of health before the fault: some steps of each job's, which show what is usual."""

PUBLISHED_SEEDS = range(FIRST_PUBLISHED_SEED, FIRST_PUBLISHED_SEED + 3)
WITHIN = 0.05
"""Ratio of the true loss by which a price may be off."""

KINDS = {"slow_gpu": "slow_compute", "slow_stage": "pipeline_imbalance", "data_loader_stalls": "stalls"}
"""What a fault is diagnosed as, where that is called otherwise."""

ADDING_UP = {"stalls": stalls.find, "checkpoint_stall": checkpoints.find}
"""Who finds, and adds up, what comes now and then."""

JOBS: Mapping[str, Mapping[str, Any]] = {
    "replicas": {"gpus_per_host": 1, "hosts": "0-7", "tp": 1, "pp": 1, "dp": 8, "layers": 24, "micro_batches": 2},
    "pipelines": {"gpus_per_host": 1, "hosts": "0-15", "tp": 1, "pp": 4, "dp": 4, "layers": 16, "micro_batches": 8},
    "tensors": {"gpus_per_host": 8, "hosts": "0-3", "tp": 8, "pp": 2, "dp": 2, "layers": 16, "micro_batches": 8},
}
FAULTS: tuple[Mapping[str, Any], ...] = (
    *({"kind": "slow_gpu", "job": "priced", "rank": 1, "factor": factor} for factor in (1.1, 1.3, 2.0)),
    *({"kind": "degraded_switch", "switch": "leaf-000", "factor": 1 / factor} for factor in (1.1, 1.3, 2.0)),
    *({"kind": "slow_nic", "job": "priced", "rank": 1, "factor": 1 / factor} for factor in (2, 3)),
    {"kind": "degraded_switch", "switch": "spine-00", "factor": 1 / 3},
    {"kind": "degraded_link", "switch": "leaf-000", "neighbour": "spine-00", "factor": 1 / 3},
    {"kind": "link_flap", "job": "priced", "rank": 1, "factor": 1 / 20, "every_s": 15, "down_s": 5},
    {"kind": "slow_stage", "job": "priced", "pp_stage": 1, "factor": 1.3},
    {"kind": "checkpoint_stall", "job": "priced", "pause_s": 2.5},
    {"kind": "data_loader_stalls", "job": "priced", "steps": 3, "pause_s": 1.5},
)
SAVED_EVERY = {"replicas": 40, "pipelines": 10, "tensors": 12}
"""Steps from one checkpoint to the next: a quarter of a minute. What pauses after each few seconds saves nothing."""


def prices(
    names: Sequence[str] = tuple(JOBS), faults: Sequence[Mapping[str, Any]] = FAULTS, *, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each job and fault that strikes it: `job`, `fault`, `slower` (times; NULL for stalls),
    `true_gpu_s`, `share` (by which ratio the window's steps are longer), `lost_gpu_s`, `recoverable_gpu_s`, and
    `error`, the ratio by which the last is off (NULL where nothing is known, or was lost)."""
    for name in names:
        healthy = simulated(name, seed)
        for fault in faults:
            if fault.get("pp_stage", 0) >= JOBS[name]["pp"]:
                continue
            broken = simulated(name, seed, every(fault, name))
            told = priced(broken, fault)
            true = true_loss(broken, healthy)
            given_back, factor = told["recoverable_gpu_s"], fault.get("factor")
            yield {
                "job": name,
                "fault": fault["kind"],
                "slower": factor and max(factor, 1 / factor),
                "true_gpu_s": true,
                "share": true / (gpu_s(broken) - true),
                "lost_gpu_s": told["lost_gpu_s"],
                "recoverable_gpu_s": given_back,
                "error": None if given_back is None or not true else given_back / true - 1,
            }


def every(fault: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a fault with the steps from one stall to the next, which for checkpoints are a job's own."""
    return {**fault, "steps": SAVED_EVERY[name]} if fault["kind"] == "checkpoint_stall" else fault


def simulated(name: str, seed: int, *faults: Mapping[str, Any], since_s: float = FAULT_S) -> Any:
    """Simulate a job of `JOBS` for two minutes, with faults from a time on."""
    values = dict(JOBS[name])
    fabric = {"hosts": 16, "gpus_per_host": values.pop("gpus_per_host"), "hosts_per_leaf": 4, "spines": 2}
    job = {"name": "priced", "model": "1b", "hidden": 2048, "sequence": 2048, "forward_ms": 40, **values}
    content = {"fabric": fabric, "jobs": [job], "faults": [{**fault, "start_s": since_s} for fault in faults]}
    return simulate(build_scenario(name, content), minutes=2, seed=seed, start_ns=START.start_ns)


def true_loss(broken: Any, healthy: Any) -> float:
    """Return the GPU-seconds by which the steps that end in the second minute are longer than without the fault."""
    steps = broken.truth["truth_steps"].filter(pl.col("end_ns").is_between(LAST.start_ns, LAST.end_ns, closed="left"))
    same = steps.join(healthy.truth["truth_steps"], on=["job", "step"], suffix="_healthy")
    longer = (pl.col("end_ns") - pl.col("start_ns")) - (pl.col("end_ns_healthy") - pl.col("start_ns_healthy"))
    # As many GPUs as have a NIC that is seen: all of them, here.
    members: int = broken.truth["truth_jobs"].height
    return float(same.select(longer.sum()).item()) / 1e9 * members


def gpu_s(made: Any) -> float:
    """Return the GPU-seconds of the second minute."""
    gpus: int = made.truth["truth_jobs"].height
    return LAST.length_ns / 1e9 * gpus


def tables_of(made: Any, window: Window) -> dict[str, pl.DataFrame]:
    """Return the tables that a window's diagnosis is handed."""
    known = made.flows.with_columns(window_start_ns=pl.col("flow_start_ns") // window.length_ns * window.length_ns)
    tables: dict[str, pl.DataFrame] = {
        "flows": frames.conform(known.filter(pl.col("window_start_ns") <= window.start_ns), "flows"),
        "topology": made.topology,
    }
    partition = Partition(tables["flows"])
    return tables | run_stages(STAGES[:-1], partition, tables["topology"], window, Settings()).tables


def evidence_of(tables: Mapping[str, pl.DataFrame]) -> Evidence | None:
    """Return the evidence in the last minute's tables."""
    topology, jobs, members, pairs, steps = (
        tables[name] for name in ("topology", "jobs", "job_members", "pairs", "steps")
    )
    values = PartitionValues(tables["flows"], LAST, Settings())
    job_traffic, step_ends = values.job_traffic(members), values.step_ends(members, jobs, pairs)
    return gather(job_traffic, step_ends, topology, members, pairs, steps, LAST, Settings())


def priced(broken: Any, fault: Mapping[str, Any], *, severity: float = 0.0) -> dict[str, Any]:
    """Return the price that the second minute's diagnosis of the fault would have, were it as severe as that."""
    tables = tables_of(broken, LAST)
    evidence = evidence_of(tables)
    nothing = {"lost_gpu_s": None, "recoverable_gpu_s": None}
    if evidence is None:
        return nothing
    (blamed,) = broken.truth["truth_faults"].select("subject_type", "subject").rows(named=True)
    kind = KINDS.get(fault["kind"], fault["kind"])
    if kind in ADDING_UP:
        found = ADDING_UP[kind](evidence, Settings().diagnosis)["severity"]
        if found.is_empty():
            return nothing
        severity = found[0]
    row = {
        "job_id": tables["jobs"]["job_id"][0],
        "kind": kind,
        **blamed,
        "start_ns": LAST.start_ns,
        "end_ns": LAST.end_ns,
        "severity": severity,
        "lost_s": None,
    }
    return price(evidence, pl.DataFrame([row]), tables["jobs"]).row(0, named=True)
