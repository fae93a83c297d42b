"""Faults and feeds of jobs that are neither dense nor plain: what is slow shows where arithmetic says it must."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from small_platforms import START_NS, inside, one_job, run

from llmprism_tasks.contract.windows import Window
from llmprism_tasks.simulate import Simulation, simulate, simulate_minute

MINUTE_NS = 60 * 10**9
SHARDED = {"tp": 1, "dp": 8, "sharding": "full", "channels": 4, "micro_batches": 1, "forward_ms": 400}
EXPERTS = {"hosts": [0, 1, 2], "dp": 3, "ep": 3, "experts": 6, "sequence": 3 * 1024}
CONTEXT = {"hosts": [0, 1, 2], "cp": 3, "sequence": 3 * 8192}
INTERLEAVED = {"hosts": [0, 1], "pp": 2, "chunks": 2, "embeddings": "tied"}


def step_s(made: Simulation) -> float:
    return float(made.truth["truth_steps"]["end_ns"].diff().drop_nulls().mean()) / 1e9


@pytest.mark.parametrize("job", [SHARDED, EXPERTS, CONTEXT, INTERLEAVED])
def test_a_slow_gpu_holds_up_the_whole_job(job: dict[str, Any]) -> None:
    fault = {"kind": "slow_gpu", "job": "it", "rank": 5, "factor": 1.4}
    healthy, slow = (run(one_job(faults=faults, **job)) for faults in ([], [fault]))
    settings = one_job(**job).jobs[0]
    computing = settings.micro_batches * settings.forward_ms / 1e3 * (1 + settings.backward_ratio)
    assert step_s(slow) - step_s(healthy) == pytest.approx(0.4 * computing, rel=0.15)
    (true,) = slow.truth["truth_faults"].to_dicts()
    assert true["subject"] == "10.2.0.1"
    assert len(true["accept"]) == 1 + settings.tp


def test_ranks_that_wait_for_a_slow_gpu_push_early_into_every_gather() -> None:
    fault = {"kind": "slow_gpu", "job": "it", "rank": 0, "factor": 1.4}
    made = run(one_job(faults=[fault], **(SHARDED | {"hosts": [0, 1, 2], "dp": 12})))
    steps = made.truth["truth_steps"].height
    early = made.flows.filter(pl.col("bytes") == (4 << 20) + 1024 * 58)
    # The hop into the slow rank cannot push: a rendezvous needs both. All four channels reach it in another host order.
    assert early.height > 4 * steps
    assert "10.1.0.0" not in set(early["src_addr"]) | set(early["dst_addr"])


@pytest.mark.parametrize(("job", "kind"), [(EXPERTS, "ep"), (CONTEXT, "cp"), (SHARDED, "dp")])
def test_a_degraded_leaf_slows_what_crosses_it(job: dict[str, Any], kind: str) -> None:
    fault = {"kind": "degraded_switch", "switch": "leaf-001", "factor": 0.25}
    made = run(one_job(faults=[fault], **job))
    flows, _ = inside(made)
    carried = flows.join(made.truth["truth_pairs"].filter(kind=kind), on=["src_addr", "dst_addr"], how="semi")
    bulk = carried.filter(pl.col("packets") > 100).with_columns(
        bps=pl.col("bytes") * 8e9 / (pl.col("flow_end_ns") - pl.col("flow_start_ns")),
        crosses=pl.col("switch_path").list.contains("leaf-001"),
    )
    median = dict(bulk.group_by("crosses").agg(pl.col("bps").median()).iter_rows())
    assert 0.2 < median[True] / median[False] < 0.45


@pytest.mark.parametrize("job", [SHARDED, EXPERTS, INTERLEAVED, {"pp": 2, "sequence_spread": 0.2}])
def test_a_feed_is_the_same_whichever_minutes_are_asked_for(job: dict[str, Any]) -> None:
    scenario = one_job(**job)
    windows = [Window(START_NS, MINUTE_NS).shifted(minute) for minute in range(2)]
    minutes = [simulate_minute(scenario, window=window, seed=3) for window in windows]
    assert pl.concat(minutes).equals(simulate_minute(scenario, window=Window(START_NS, 2 * MINUTE_NS), seed=3))
    assert not minutes[0].is_empty()


@pytest.mark.parametrize("job", [SHARDED, EXPERTS, CONTEXT, INTERLEAVED])
def test_a_longer_run_begins_like_a_shorter_one(job: dict[str, Any]) -> None:
    short, long = (simulate(one_job(**job), minutes=minutes, seed=3, start_ns=START_NS).flows for minutes in (1, 2))
    same = long.filter(pl.col("flow_start_ns") < START_NS + MINUTE_NS)
    assert np.array_equal(short["flow_start_ns"].to_numpy(), same["flow_start_ns"].to_numpy())
    assert short["bytes"].equals(same["bytes"])
