"""Small simulated platforms, and what their records say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from llmprism_tasks.simulate import Scenario, Simulation, build_scenario, simulate

START_NS = 1_760_000_400 * 10**9


def one_job(*, faults: Sequence[dict[str, Any]] = (), **changes: Any) -> Scenario:
    """Return a scenario of one job, "it", on hosts of four GPUs; it has two hosts unless told otherwise."""
    job = {"name": "it", "hosts": [0, 1], "tp": 4, "layers": 4, "hidden": 1024, "micro_batches": 2, "forward_ms": 100}
    fabric = {"hosts": 32, "gpus_per_host": 4, "hosts_per_leaf": 2, "spines": 2}
    return build_scenario("one", {"fabric": fabric, "jobs": [job | changes], "faults": list(faults)})


def run(scenario: Scenario) -> Simulation:
    """Simulate a minute."""
    return simulate(scenario, minutes=1, seed=5, start_ns=START_NS)


def inside(made: Simulation) -> tuple[pl.DataFrame, int]:
    """Return the records of whole steps, and how many steps those are; scalars are left out."""
    steps = made.truth["truth_steps"]
    first, last = steps["end_ns"][0], steps["end_ns"][-1]
    bulk = pl.col("flow_start_ns").is_between(first, last, closed="left") & (pl.col("packets") > 10)
    return made.flows.filter(bulk), steps.height - 1


def payload_per_pair(made: Simulation, kind: str) -> pl.Series:
    """Return the payload bytes of each pair of a kind in a step, on average."""
    flows, steps = inside(made)
    pairs = made.truth["truth_pairs"].filter(kind=kind)
    sent = (pl.col("bytes") - 58 * pl.col("packets")).sum() / steps
    grouped = flows.join(pairs, on=["src_addr", "dst_addr"], how="semi").group_by("src_addr", "dst_addr")
    return grouped.agg(sent.alias("bytes")).sort("src_addr", "dst_addr")["bytes"]
