"""Megatron jobs: tied embeddings, overlapped gathers, interleaved pipelines, and who relays for whom."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from small_platforms import inside, one_job, payload_per_pair, run

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.simulate.workload.message_sizes import tensors
from llmprism_tasks.simulate.workload.operations import Await, Compute, Launch, launched_at

PIPELINE = {"hosts": [0, 1, 2, 3], "pp": 4, "layers": 8}


@pytest.mark.parametrize(("gradients", "width"), [("fp32", 4), ("bf16", 2)])
def test_gradients_are_reduced_in_their_own_type(gradients: str, width: int) -> None:
    scenario = one_job(dp=2, gradients=gradients)
    parameters = sum(tensor.parameters for tensor in tensors(scenario.jobs[0], 0))
    sent = payload_per_pair(run(scenario), "dp")
    assert sent.to_numpy() == pytest.approx((width + 2) * parameters / 2, rel=1e-3)


def test_tied_embeddings_are_reduced_between_the_ends_of_the_pipeline_after_all_else() -> None:
    made = run(one_job(**PIPELINE, embeddings="tied"))
    flows, steps = inside(made)
    job = one_job(**PIPELINE, embeddings="tied").jobs[0]
    embedding = job.vocabulary * job.hidden // job.tp * job.gradient_bytes
    ends = [(f"10.{gpu}.0.{a}", f"10.{gpu}.0.{b}") for gpu in range(1, 5) for a, b in ((0, 3), (3, 0))]
    other = made.truth["truth_pairs"].filter(kind="other").select("src_addr", "dst_addr").rows()
    assert set(ends) <= set(other)
    assert payload_per_pair(made, "other").to_numpy() == pytest.approx(embedding, rel=1e-3)
    last = flows.filter(pl.col("dst_addr") == "10.1.0.3", pl.col("src_addr") == "10.1.0.0")
    ends_ns = made.truth["truth_steps"]["grad_end_ns"].to_list()
    assert last.height == 2 * steps
    for end in last["flow_end_ns"]:
        assert min(abs(end - each) for each in ends_ns) < 100_000


def test_with_two_stages_the_embedding_goes_over_the_pipelines_pairs() -> None:
    pairs = run(one_job(pp=2, embeddings="tied")).truth["truth_pairs"]
    kinds = pairs.group_by("src_addr", "dst_addr").agg(pl.col("kind").sort())["kind"]
    # The norm's ring takes two of the eight pairs between the stages, or two others.
    assert kinds.to_list().count(["other", "pp"]) == 8
    assert kinds.len() <= 10


@pytest.mark.parametrize(("pp", "pairs"), [(2, 2), (3, 6), (4, 8)])
def test_an_interleaved_pipeline_goes_round(pp: int, pairs: int) -> None:
    changes: dict[str, Any] = {"hosts": list(range(pp)), "pp": pp, "layers": 2 * pp, "chunks": 2, "micro_batches": pp}
    scenario = one_job(**changes)
    made = run(scenario)
    assert made.truth["truth_pairs"].filter(kind="pp").height == 4 * pairs
    job = scenario.jobs[0]
    flows, steps = inside(made)
    # Every boundary between virtual stages is crossed once forward and once back, on two queue pairs for each TP peer.
    size = job.sequence * job.hidden * 2 // job.tp
    total = (flows["bytes"] - 58 * flows["packets"]).sum() / steps
    assert total == pytest.approx(2 * (2 * pp - 1) * pp * size * job.tp, rel=2e-3)


def test_an_overlapped_gather_moves_the_same_bytes_in_the_next_step() -> None:
    changes: dict[str, Any] = {"dp": 2, "bucket_parameters": 4_000_000}
    early, late = (run(one_job(**changes, overlap_param_gather=value)) for value in ("no", "yes"))
    assert payload_per_pair(late, "dp").to_numpy() == pytest.approx(payload_per_pair(early, "dp").to_numpy(), rel=1e-6)
    for made, gathered in ((early, True), (late, False)):
        flows, _ = inside(made)
        step = made.truth["truth_steps"][2].row(0, named=True)
        between = flows.filter(pl.col("flow_end_ns").is_between(step["grad_end_ns"] + 100_000, step["end_ns"]))
        assert between.is_empty() != gathered


@pytest.mark.parametrize("relay", ["yes", "no"])
def test_a_relayed_message_keeps_to_the_receivers_rail(relay: str) -> None:
    # Stages of two ranks on hosts of four GPUs, three hosts: stage 1 lies across hosts, so neighbours change rails.
    scenario = one_job(hosts=[0, 1, 2], tp=2, dp=3, pp=2, relay=relay)
    made = run(scenario)
    pairs = made.truth["truth_pairs"].filter(kind="pp")
    rails = pairs.select(pl.col("src_addr", "dst_addr").str.split(".").list.get(1))
    same = (rails["src_addr"] == rails["dst_addr"]).all()
    assert same == (relay == "yes")
    keys = made.flows.select("src_addr", "dst_addr", "src_port", "switch_path").unique()
    assert keys.select("src_addr", "dst_addr", "src_port").is_unique().all()


@pytest.mark.parametrize(("relay", "senders"), [("yes", 1), ("no", 4)])
def test_ranks_that_are_relayed_to_a_gpu_share_its_connection(relay: str, senders: int) -> None:
    experts = {"tp": 1, "dp": 8, "ep": 8, "experts": 8, "sequence": 8192, "router_imbalance": 0.0}
    made = run(one_job(**experts, relay=relay, peer_channels=1, channels=4))
    flows = made.flows.join(made.truth["truth_pairs"].filter(kind="ep"), on=["src_addr", "dst_addr"], how="semi")
    queue_pairs = flows.group_by("dst_addr", "src_addr").agg(pl.col("src_port").n_unique())
    assert queue_pairs.group_by("dst_addr").len()["len"].to_list() == [senders] * 8
    one = 8192 * 2 // 8 * 1024 * 2  # tokens, experts of each, ranks, width, bf16
    routed = 4 * 4 * 2 * one  # there and back in both passes, layers, micro-batches
    # Some pairs carry gradients, too.
    assert payload_per_pair(made, "ep").min() == pytest.approx(4 // senders * routed, rel=1e-3)


def test_channels_and_queue_pairs_split_a_message_and_lose_nothing() -> None:
    plain, split = (run(one_job(dp=2, **changes)) for changes in ({}, {"channels": 3, "queue_pairs": 2}))
    assert payload_per_pair(split, "dp").to_numpy() == pytest.approx(payload_per_pair(plain, "dp").to_numpy(), rel=1e-4)
    ports = inside(split)[0].group_by("src_addr", "dst_addr").agg(pl.col("src_port").n_unique())
    assert set(ports["src_port"]) == {6}


def test_samples_that_are_not_padded_make_messages_of_many_sizes_and_steps_of_many_lengths() -> None:
    padded, uneven = (run(one_job(pp=2, micro_batches=4, sequence_spread=spread)) for spread in (0.0, 0.2))
    sizes = [inside(made)[0]["bytes"] - 58 * inside(made)[0]["packets"] for made in (padded, uneven)]
    assert sizes[0].n_unique() == 1
    assert sizes[1].n_unique() > 100
    assert sizes[1].mean() == pytest.approx(sizes[0].mean(), rel=0.03)
    assert sizes[1].std() / sizes[1].mean() == pytest.approx(0.2, rel=0.25)
    spread = [made.truth["truth_steps"]["end_ns"].diff().drop_nulls() for made in (padded, uneven)]
    assert spread[1].std() / spread[1].mean() > 5 * spread[0].std() / spread[0].mean()


def test_receivers_answer_every_chunk_the_other_way() -> None:
    unseen, seen = (run(one_job(hosts=[0, 1, 2], dp=3, clear_to_send=value)) for value in ("unseen", "seen"))
    onward = seen.truth["truth_pairs"].filter(kind="dp").select("src_addr", "dst_addr")
    back = onward.select(src_addr="dst_addr", dst_addr="src_addr")
    key = ["src_addr", "dst_addr"]
    forth, answers = (seen.flows.join(pairs, on=key, maintain_order="left") for pairs in (onward, back))
    assert forth.drop("switch_path").equals(unseen.flows.drop("switch_path"))
    others = seen.truth["truth_pairs"].filter(kind="other").select(key)
    assert set(others.iter_rows()) == set(back.iter_rows())
    assert (answers["bytes"] == (64 + 58) * answers["packets"]).all()
    # Every chunk of 512 KiB is 128 packets; the last one of a message may be smaller.
    assert answers["packets"].sum() == pytest.approx(forth["packets"].sum() / 128, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"cp": 2, "dp": 1, "sequence": 4097}, "cp that divides"),
        ({"dp": 2, "ep": 2}, "experts where"),
        ({"dp": 2, "ep": 2, "experts": 3}, "divides the experts"),
        ({"dp": 2, "ep": 4, "experts": 4}, "divides cp x dp"),
        ({"pp": 2, "chunks": 2, "micro_batches": 3}, "chunks"),
        ({"dp": 2, "chunks": 2}, "chunks"),
        ({"cp": 2, "sequence_spread": 0.1}, "different lengths"),
        ({"dp": 2, "shard_ranks": 2}, "shard_ranks"),
        ({"dp": 2, "optimizer": "replicated", "overlap_param_gather": "yes"}, "distributed"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], wanted: str) -> None:
    with pytest.raises(SettingsError, match=wanted):
        one_job(**changes)


def test_operations_are_put_where_their_share_of_the_computing_is_done() -> None:
    launch, wait = Launch("dp", "a"), Await("a")
    program = launched_at([Compute("f", 0, 0.25), wait, Compute("f", 0, 0.75)], [(0.5, [launch]), (1.0, [launch])])
    assert program == [
        Compute("f", 0, 0.25),
        wait,
        Compute("f", 0, 0.25),
        launch,
        Compute("f", 0, 0.5),
        launch,
    ]
