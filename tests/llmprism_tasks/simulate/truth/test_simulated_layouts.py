"""Any layout: whatever a job combines, its truth and its records agree."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_platforms import one_job, run

from llmprism_tasks.simulate import Scenario

YES = st.sampled_from(["yes", "no"])
DEGREE = st.sampled_from([1, 2, 4])


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a job of up to 64 GPUs on hosts of four, of parts that fit together."""
    tp, cp, pp, dp = draw(DEGREE), draw(st.sampled_from([1, 2])), draw(DEGREE), draw(st.sampled_from([1, 2, 3, 4]))
    dp *= 4 // math.gcd(tp * cp * pp * dp, 4)
    sharded = cp == pp == 1 and draw(st.booleans())
    ep = 1 if sharded else draw(st.sampled_from([degree for degree in (1, 2, 4) if cp * dp % degree == 0]))
    algorithm = "ring" if sharded else draw(st.sampled_from(["ring", "tree"]))
    optimizer = draw(st.sampled_from(["distributed", "replicated"])) if algorithm == "ring" else "replicated"
    job: dict[str, Any] = {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "dp": dp,
        "ep": ep,
        "experts": 0 if sharded else draw(st.sampled_from([4] if ep > 1 else [0, 4])),
        "chunks": draw(st.sampled_from([1, 2])) if pp > 1 else 1,
        "layers": 8,
        "micro_batches": 4,
        "forward_ms": 700,
        "embeddings": "untied" if sharded else draw(st.sampled_from(["tied", "untied"])),
        "sharding": "full" if sharded else "none",
        "shard_ranks": dp // 2 if sharded and dp % 2 == 0 and draw(st.booleans()) else 0,
        "gradient_sync": draw(st.sampled_from(["overlap", "after"])),
        "optimizer": optimizer,
        "overlap_param_gather": draw(YES) if optimizer == "distributed" else "no",
        "algorithm": algorithm,
        "channels": draw(DEGREE),
        "queue_pairs": draw(st.sampled_from([1, 2])),
        "relay": draw(YES),
        "sequence_spread": draw(st.sampled_from([0.0, 0.2])) if cp == ep == 1 else 0.0,
        "clear_to_send": draw(st.sampled_from(["seen", "unseen"])),
    }
    return one_job(**job, hosts=list(range(tp * cp * pp * dp // 4)))


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_every_pair_carries_its_kinds_and_steps_follow_each_other(scenario: Scenario) -> None:
    made = run(scenario)
    key = ["src_addr", "dst_addr"]
    pairs = made.truth["truth_pairs"]
    assert pairs.is_unique().all()
    assert set(pairs.select(key).iter_rows()) == set(made.flows.select(key).unique().iter_rows())
    steps = made.truth["truth_steps"]
    assert (steps["start_ns"][1:] == steps["end_ns"][:-1]).all()
    assert (steps["grad_end_ns"] > steps["start_ns"]).all()
    assert (steps["grad_end_ns"] < steps["end_ns"]).all()
    job = scenario.jobs[0]
    computing_ns = job.micro_batches * job.forward_ms * (1 + job.backward_ratio) * 1e6
    assert steps.select((pl.col("end_ns") - pl.col("start_ns")).mean()).item() > computing_ns * 0.97
