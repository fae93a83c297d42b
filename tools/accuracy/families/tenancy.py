"""Platforms by who shares them: whole hosts, the same hosts, twins, tenants that do not train, and much else."""

from __future__ import annotations

from typing import Any

from accuracy.families.scenario_draw import Content, Draw


def plain(seed: int) -> Content:
    """Three tenants on whole hosts, rings within rails, gradient buckets during the backward pass."""
    draw = Draw("plain", seed)
    jobs = [
        draw.dense(
            "pipes",
            draw.one_of(4, 8),
            tp=8,
            pp=draw.one_of(2, 4),
            bucket_parameters=draw.one_of(100_000_000, 200_000_000),
        ),
        draw.dense(
            "replicas", draw.one_of(3, 4, 6), tp=8, pp=1, bucket_parameters=draw.one_of(100_000_000, 200_000_000)
        ),
        draw.dense("both", 4, tp=4, pp=2, model=draw.one_of("3b", "7b")),
    ]
    return {"jobs": jobs, "fabric": draw.fabric(spare=2)}


def same_hosts(seed: int) -> Content:
    """Two tenants on halves of the same hosts, one on every second host, chatter, and a collector without paths."""
    draw = Draw("same_hosts", seed)
    shared, mixed = draw.hosts(draw.one_of(4, 6)), draw.hosts(8)
    lower, upper = draw.shuffled(["0-3", "4-7"])
    jobs = [
        draw.dense("lower", shared, (5, 8), gpus=lower, tp=4, pp=2),
        draw.dense("upper", shared, (5, 8), gpus=upper, tp=4, pp=1, bucket_parameters=100_000_000),
        draw.dense("even", mixed[::2], (5, 8), tp=8),
        draw.dense("odd", mixed[1::2], (5, 8), tp=8, pp=1),
    ]
    return {
        "jobs": jobs,
        "background": _noise(draw),
        "collector": {"pathless": 1},
        "fabric": draw.fabric(),
    }


def twins(seed: int) -> Content:
    """Two jobs of one layout and model on the same hosts, and two more on hosts next to each other."""
    draw = Draw("twins", seed)
    shared = draw.hosts(draw.one_of(4, 6))
    left = draw.dense("left", shared, (4, 7), gpus="0-3", tp=4, pp=2)
    near = draw.dense("near", draw.one_of(4, 6), (4, 7), tp=8, pp=1)
    jobs = [
        left,
        left | {"name": "right", "gpus": "4-7"},
        near,
        near | {"name": "next", "hosts": draw.hosts(len(near["hosts"]))},
    ]
    return {"jobs": jobs, "background": _noise(draw), "collector": {"pathless": 1}, "fabric": draw.fabric()}


def _noise(draw: Draw) -> Content:
    return {
        "chatter_per_s": draw.between(20, 80),
        "chatter_roce": draw.one_of(0.1, 0.3),
        "heartbeat_s": draw.one_of(0, 5),
        "copies_per_minute": draw.one_of(1, 3),
        "ack_packets": draw.one_of(0, 1_000_000),
    }


def other_tenants(seed: int) -> Content:
    """Two jobs with data sets and checkpoints at storage, beside inference, experts' inference and a shuffle."""
    draw = Draw("other_tenants", seed)
    jobs = [draw.dense("pipes", 4, (5, 8), tp=8, pp=2), draw.dense("replicas", draw.one_of(3, 4), (5, 8), tp=8, pp=1)]
    tenants: list[Content] = [
        {"name": kind, "kind": kind, "hosts": draw.hosts(4), "per_s": per_s, "mb": mb}
        for kind, per_s, mb in (
            ("disaggregated", draw.between(2, 5), draw.between(30, 80)),
            ("experts", draw.between(3, 6), draw.between(1, 4)),
            ("shuffle", draw.between(0.1, 0.3), draw.between(20, 60)),
        )
    ]
    habits: list[Content] = [
        {"job": job["name"], "read_mb": draw.between(20, 120), "checkpoint_steps": draw.one_of(10, 15, 25)}
        for job in jobs
    ]
    return {
        "jobs": jobs,
        "tenants": tenants,
        "habits": habits,
        "storage": {"servers": 8, "gbps": 20},
        "background": _noise(draw),
        "fabric": draw.fabric(),
    }


def narrow(seed: int) -> Content:
    """Pipeline stages only, replicas only, two hosts only, and one host that nobody can see."""
    draw = Draw("narrow", seed)
    some: list[tuple[str, int, dict[str, Any]]] = [
        ("stages", 4, {"tp": 8, "pp": 4, "dp": 1, "micro_batches": draw.one_of(8, 16)}),
        ("replicas", draw.one_of(4, 6), {"tp": 8, "pp": 1}),
        ("two_replicas", 2, {"tp": 8, "pp": 1, "dp": 2}),
        ("two_stages", 2, {"tp": 8, "pp": 2, "dp": 1, "micro_batches": 8}),
        ("unseen", 1, {"tp": 8, "pp": 1, "dp": 1}),
        ("singles", 2, {"tp": 1, "pp": 1, "dp": 16, "model": "1b"}),
    ]
    jobs = [draw.dense(name, hosts, **fixed) for name, hosts, fixed in some]
    return {"jobs": jobs, "fabric": draw.fabric()}
