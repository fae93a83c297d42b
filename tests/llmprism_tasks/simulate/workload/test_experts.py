"""Expert parallelism: what a router sends where, and who reduces which gradients."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from small_platforms import inside, one_job, payload_per_pair, run

from llmprism_tasks.simulate.network.rank_layout import groups
from llmprism_tasks.simulate.workload.message_sizes import PARAMETER_BYTES, micro_batch_tokens, tensors

THREE = {"hosts": [0, 1, 2], "dp": 3, "ep": 3, "experts": 6, "peer_channels": 1, "sequence": 3 * 1024}


def test_without_imbalance_all_messages_are_of_one_size() -> None:
    scenario = one_job(**THREE, router_imbalance=0.0)
    (job,) = scenario.jobs
    flows, steps = inside(run(scenario))
    one = micro_batch_tokens(job) * job.experts_per_token // 3 * job.hidden * PARAMETER_BYTES
    counts = flows.filter(pl.col("bytes") - 58 * pl.col("packets") == one).group_by("src_addr", "dst_addr").len()
    # There and back, forward and backward, in each layer and micro-batch.
    assert counts.height == 3 * 2 * 4
    assert set(counts["len"]) == {4 * job.layers * job.micro_batches * steps}


def test_a_router_sends_whole_tokens_and_all_of_them_come_back() -> None:
    scenario = one_job(**THREE, router_imbalance=0.5)
    (job,) = scenario.jobs
    made = run(scenario)
    flows, _ = inside(made)
    onward = made.truth["truth_pairs"].filter(kind="dp").select("src_addr", "dst_addr")
    only = flows.join(onward, on=["src_addr", "dst_addr"], how="anti")
    payload = (only["bytes"] - 58 * only["packets"]).to_numpy()
    assert (payload % (job.hidden * PARAMETER_BYTES) == 0).all()
    assert len(set(payload)) > 100
    # The ring of the dense parameters goes one way; without it both directions carry the same.
    sent = payload_per_pair(made, "ep")
    pairs = made.truth["truth_pairs"].filter(kind="ep").sort("src_addr", "dst_addr").with_columns(sent=sent)
    both = pairs.join(pairs, left_on=["src_addr", "dst_addr"], right_on=["dst_addr", "src_addr"], suffix="_back")
    ahead = both.join(onward, on=["src_addr", "dst_addr"], how="semi")
    dense = sum(tensor.parameters for tensor in tensors(job, 0) if not tensor.expert)
    ring = (job.gradient_bytes + PARAMETER_BYTES) * dense * 2 / 3
    assert (ahead["sent"] - ahead["sent_back"]).to_numpy() == pytest.approx(ring, rel=1e-3)


def test_what_is_popular_stays_popular() -> None:
    made = run(one_job(**THREE, router_imbalance=0.5))
    flows, _ = inside(made)
    onward = made.truth["truth_pairs"].filter(kind="dp").select("src_addr", "dst_addr")
    only = flows.join(onward, on=["src_addr", "dst_addr"], how="anti").with_columns(
        late=pl.col("flow_start_ns") > pl.col("flow_start_ns").median()
    )
    mean = only.group_by("src_addr", "dst_addr", "late").agg(pl.col("bytes").mean())
    both = mean.filter("late").join(mean.filter(~pl.col("late")), on=["src_addr", "dst_addr"])
    assert both.select(pl.corr("bytes", "bytes_right")).item() > 0.9
    assert both["bytes"].max() > 1.1 * both["bytes"].min()


def test_experts_are_reduced_by_those_that_hold_the_same_ones() -> None:
    (job,) = one_job(hosts=[0, 1, 2, 3], cp=2, dp=2, ep=2, experts=4).jobs
    assert groups(job, "ep").tolist() == [[0, 1], [2, 3]]
    assert groups(job, "expert_dp").tolist() == [[0, 2], [1, 3]]
    assert groups(job, "dp").tolist() == [[0, 1, 2, 3]]
    made = run(one_job(hosts=[0, 1, 2, 3], dp=4, ep=2, experts=4, layers=2))
    pairs = made.truth["truth_pairs"].filter(pl.col("src_addr").str.starts_with("10.1."))
    found = {(row["src_addr"][-1], row["dst_addr"][-1], row["kind"]) for row in pairs.iter_rows(named=True)}
    ring = {("0", "1", "dp"), ("1", "2", "dp"), ("2", "3", "dp"), ("3", "0", "dp")}
    same = {(a, b, "dp") for a, b in ("02", "20", "13", "31")}
    routed = {(a, b, "ep") for a, b in ("01", "10", "23", "32")}
    assert found == ring | same | routed


def test_popular_experts_keep_all_waiting() -> None:
    even, uneven = (run(one_job(**THREE, router_imbalance=value)) for value in (0.0, 1.0))
    mean = [
        made.truth["truth_steps"].select((pl.col("end_ns") - pl.col("start_ns")).mean()).item()
        for made in (even, uneven)
    ]
    assert mean[1] > 1.1 * mean[0]


def test_experts_of_one_rank_are_dense() -> None:
    made = run(one_job(dp=2, experts=4))
    assert set(made.truth["truth_pairs"]["kind"]) == {"dp"}
    (job,) = one_job(dp=2, experts=4).jobs
    parameters = sum(tensor.parameters for tensor in tensors(job, 0))
    assert np.unique(payload_per_pair(made, "dp").to_numpy()) == pytest.approx(6 * parameters / 2, rel=1e-3)
