"""Context parallelism: what goes round the rings, and who takes part."""

from __future__ import annotations

import polars as pl
import pytest
from small_platforms import inside, one_job, payload_per_pair, run

from llmprism_tasks.simulate.workload.message_sizes import PARAMETER_BYTES, key_value_bytes, tensors

FOUR = {"hosts": [0, 1, 2, 3], "cp": 4, "key_value_ratio": 0.5, "sequence": 16_384}


def test_keys_and_values_go_round_once_forward_and_twice_back() -> None:
    scenario = one_job(**FOUR)
    (job,) = scenario.jobs
    made = run(scenario)
    parameters = sum(tensor.parameters for tensor in tensors(job, 0))
    hops = (job.cp - 1) + 2 * (job.cp - 1)
    # A quarter of the keys and values of half as many heads as there are queries, and TP has divided those by four.
    block = 2 * job.sequence // job.cp * job.hidden // 2 // job.tp * PARAMETER_BYTES
    assert 2 * key_value_bytes(job, lanes=2) == block
    gradients = (job.gradient_bytes + PARAMETER_BYTES) * parameters * (job.cp - 1) / job.cp
    expected = job.layers * job.micro_batches * hops * block + gradients
    assert payload_per_pair(made, "cp").to_numpy() == pytest.approx(expected, rel=1e-3)


def test_a_pair_of_the_ring_has_a_row_for_each_kind() -> None:
    pairs = run(one_job(**FOUR)).truth["truth_pairs"]
    kinds = pairs.group_by("src_addr", "dst_addr").agg(pl.col("kind").sort())["kind"]
    assert kinds.len() == 16
    assert set(map(tuple, kinds)) == {("cp", "dp")}


def test_a_backward_hop_carries_gradients_too_but_the_first_and_the_last() -> None:
    scenario = one_job(**FOUR, optimizer="replicated", gradient_sync="after")
    flows, steps = inside(run(scenario))
    one = key_value_bytes(scenario.jobs[0], lanes=2)
    sizes = flows.with_columns(payload=pl.col("bytes") - 58 * pl.col("packets")).group_by("payload").len()
    rounds = steps * scenario.jobs[0].layers * scenario.jobs[0].micro_batches * 16 * 2
    assert sizes.filter(payload=one)["len"].item() == pytest.approx(rounds * (3 + 2), rel=0.02)
    assert sizes.filter(payload=2 * one)["len"].item() == pytest.approx(rounds * 2, rel=0.02)


def test_rings_inside_a_host_are_not_seen() -> None:
    made = run(one_job(tp=2, cp=2, dp=2))
    assert set(made.truth["truth_pairs"]["kind"]) == {"dp"}
    assert made.truth["layouts"].select("dp", "cp", "tp").row(0) == (2, 2, 2)
