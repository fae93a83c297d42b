"""Platforms by how their jobs are parallel beyond data and pipelines over rings."""

from __future__ import annotations

from accuracy.families.scenario_draw import Content, Draw


def experts(seed: int) -> Content:
    """Two mixtures of experts, one along its rails, one with a pipeline as well or a rank on every GPU."""
    draw = Draw("experts", seed)
    wide: Content = {"tp": 8, "pp": 1, "ep": draw.one_of(2, 4), "experts": 8, "moe_every": 2, "peer_channels": 1}
    deep: Content = {"tp": 4, "pp": 2, "ep": draw.one_of(2, 4), "experts": 8, "moe_every": 4, "peer_channels": 1}
    fine: Content = {"tp": 1, "pp": 1, "ep": 8, "experts": 32, "experts_per_token": 4, "expert_hidden": 1408}
    fine |= {"moe_every": 4, "peer_channels": 1, "model": "1b"}
    imbalance = {"router_imbalance": draw.one_of(0.0, 0.2, 0.4), "layers": 8}
    jobs = [
        draw.dense("wide", draw.one_of(4, 8), (4, 6), **wide, **imbalance, micro_batches=draw.one_of(1, 2), model="7b"),
        draw.dense("deep", 4, (4, 6), **deep, layers=16, micro_batches=2, model="3b"),
        draw.dense("fine", 2, (4, 6), **fine, **imbalance, micro_batches=1),
    ]
    return {"jobs": jobs, "fabric": draw.fabric()}


def context_parallel(seed: int) -> Content:
    """Rings of keys and values across hosts, with a pipeline and without, and inside hosts."""
    draw = Draw("context_parallel", seed)
    keys: Content = {"key_value_ratio": 0.25, "peer_channels": 1}
    cp = draw.one_of(2, 4)
    jobs = [
        draw.dense(
            "long", 8, (7, 10), tp=8, pp=1, cp=cp, dp=8 // cp, layers=8, sequence=131_072, micro_batches=1, **keys
        ),
        draw.dense("deep", 8, (7, 10), tp=8, cp=2, pp=2, dp=2, layers=8, sequence=32_768, micro_batches=4, **keys),
        draw.dense("inside", 4, (5, 8), tp=4, cp=2, pp=1, dp=4, sequence=16_384, micro_batches=4, **keys),
    ]
    return {"jobs": jobs, "fabric": draw.fabric()}


def fully_sharded(seed: int) -> Content:
    """FSDP2 over all ranks, over halves of them (HSDP), and with gradients that are accumulated."""
    draw = Draw("fully_sharded", seed)
    kept: Content = {"tp": 1, "pp": 1, "sharding": "full", "vocabulary": draw.one_of(32_000, 128_000)}
    layers = draw.one_of(16, 24)
    jobs = [
        draw.dense("base", 3, (6, 9), **kept, layers=layers, key_value_ratio=0.25, micro_batches=1),
        draw.dense(
            "tuned", 2, (6, 9), **kept, layers=16, micro_batches=2, reduce_every_micro_batch="no", gradients="bf16"
        ),
        draw.dense("copies", 4, (6, 9), **kept, layers=layers, shard_ranks=16, micro_batches=1),
    ]
    return {"jobs": jobs, "fabric": draw.fabric()}


def trees(seed: int) -> Content:
    """All-reduce along double binary trees, a pair of them per rail, in three sizes, once beside a pipeline.

    All have tp of 8: a host that is a leaf of both trees would leave NICs of other ranks silent, whom nobody can find.
    """
    draw = Draw("trees", seed)
    tree: Content = {"algorithm": "tree", "optimizer": "replicated"}
    jobs = [
        draw.dense("rails", draw.one_of(5, 6, 8), tp=8, pp=1, bucket_parameters=200_000_000, **tree),
        draw.dense("small", draw.one_of(3, 4), tp=8, pp=1, model="1b", gradients="bf16", **tree),
        draw.dense("pipes", 8, tp=8, pp=2, bucket_parameters=250_000_000, **tree),
    ]
    return {"jobs": jobs, "fabric": draw.fabric()}


def interleaved(seed: int) -> Content:
    """Interleaved pipelines of two and four stages, and parameters gathered during the next forward pass."""
    draw = Draw("interleaved", seed)
    gather = {"overlap_param_gather": draw.one_of("yes", "no")}
    jobs = [
        draw.dense(
            "four", 8, (6, 9), tp=8, pp=4, chunks=2, peer_channels=1, model="22b", layers=48, micro_batches=8, **gather
        ),
        draw.dense(
            "two", 4, (5, 8), tp=8, pp=2, chunks=draw.one_of(2, 4), peer_channels=1, micro_batches=draw.one_of(4, 6)
        ),
        draw.dense("plain", 4, tp=8, pp=1, overlap_param_gather="yes", bucket_parameters=150_000_000),
    ]
    return {"jobs": jobs, "fabric": draw.fabric()}


def tied_embeddings(seed: int) -> Content:
    """First and last stage share a matrix and reduce its gradients: with two stages on the pipeline's own pairs."""
    draw = Draw("tied_embeddings", seed)
    tied: Content = {"embeddings": "tied", "gradient_sync": draw.one_of("overlap", "after")}
    jobs = [
        draw.dense("deep", 8, tp=8, pp=4, vocabulary=64_000, micro_batches=8, **tied),
        draw.dense("short", draw.one_of(4, 6), tp=8, pp=2, vocabulary=128_000, optimizer="replicated", **tied),
    ]
    return {"jobs": jobs, "fabric": draw.fabric()}


def relayed(seed: int) -> Content:
    """Ranks that talk across rails, directly or through another GPU's NIC (PXN)."""
    draw = Draw("relayed", seed)
    across: Content = {"tp": 4, "pp": draw.one_of(2, 4), "micro_batches": 8}
    jobs = [
        draw.dense("relayed", draw.one_of(6, 8), (4, 7), **across, relay="yes"),
        draw.dense("across", draw.one_of(6, 8), (4, 7), **across),
    ]
    return {"jobs": jobs, "fabric": draw.fabric()}
