"""Platforms on which something goes wrong, or nothing: what, to jobs of what size and layout, and when, is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from accuracy.families.collectors import DAMAGE
from accuracy.families.scenario_draw import GPUS, MODELS, Content, Draw

MINUTES = 5
ONSET_S = (125.0, 165.0)
"""When it begins: in the third minute, when a job's usual course is known; two minutes and more of it are left."""

HOSTS = (8, 16, 32, 64)
"""Of the job in trouble: 64 to 512 GPUs; `large` troubles have 2,048."""

LAYOUTS: tuple[Content, ...] = (
    {"tp": 8, "pp": 1},
    {"tp": 4, "pp": 1},
    {"tp": 8, "pp": 2},
    {"tp": 8, "pp": 4},
    {"tp": 4, "pp": 4},
    {"tp": 8, "pp": 4, "chunks": 2, "peer_channels": 1, "micro_batches": 8, "model": "22b", "layers": 48},
)

HEALTHY_HOSTS = (8, 8, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2)
"""Of the jobs with which nothing is wrong: 384 GPUs in all."""

PLATFORM_HOSTS = (64, 48, 32, *[16] * 5, *[8] * 4, *[4] * 8, *[2] * 16)
EXCHANGING_HOSTS = (4, 8, 8, 8, 2, 4, 4, 2)
"""Of those on a platform of 2,880 GPUs: a few large ones and many small ones, as tenants are."""

EXCHANGING: tuple[Content, ...] = (
    {"tp": 1, "pp": 1, "sharding": "full", "layers": 16, "key_value_ratio": 0.25, "vocabulary": 32_000},
    {"tp": 1, "pp": 1, "sharding": "full", "layers": 24, "shard_ranks": 16, "vocabulary": 128_000},
    {"tp": 8, "pp": 1, "cp": 2, "layers": 8, "sequence": 65_536, "key_value_ratio": 0.25, "peer_channels": 1},
    {"tp": 8, "pp": 1, "ep": 2, "experts": 8, "moe_every": 2, "peer_channels": 1, "layers": 8, "model": "7b"},
)
"""Parameters, blocks of context or experts' tokens that cross the network in every layer: nobody works alone."""


Fault = Callable[[Draw, Content], Content]
"""Draws a fault of a job: its keys but `start_s`."""


def trouble(name: str, fault: Fault, fabric: Content | None = None, **fixed: Any) -> Callable[[int], Content]:
    """Return what draws a platform of two jobs, the first of which meets a fault while the other is well.

    Parameters
    ----------
    fabric : keys of the fabric that are not drawn
    fixed : keys of the job in trouble that are not drawn, or `hosts`
    """

    def content(seed: int) -> Content:
        draw = Draw(name, seed)
        # Seeds go through the sizes in turn, so that a few of them have all.
        hosts = fixed.get("hosts", HOSTS[seed % len(HOSTS)])
        layout = draw.one_of(*LAYOUTS) | {key: value for key, value in fixed.items() if key != "hosts"}
        job = draw.dense("ill", hosts, (3.0, 6.0), **layout)
        well = draw.dense("well", 4, tp=8)
        begins = {"start_s": draw.between(*ONSET_S)}
        made = {"jobs": [job, well], "fabric": draw.fabric() | (fabric or {})}
        return made | {"faults": [begins | fault(draw, made)], "collector": {"retransmitted": 0.0005}}

    return content


def _ranks(job: Content) -> int:
    return len(job["hosts"]) * GPUS


def slow_gpu(factor: float) -> Fault:
    """Draw a rank whose computing takes `factor` times as long."""

    def fault(draw: Draw, made: Content) -> Content:
        rank = int(draw.rng.integers(_ranks(made["jobs"][0])))
        return {"kind": "slow_gpu", "job": "ill", "rank": rank, "factor": factor}

    return fault


def slow_nic(factor: float) -> Fault:
    """Draw a rank whose NIC has `factor` of its rate."""

    def fault(draw: Draw, made: Content) -> Content:
        return slow_gpu(1.0)(draw, made) | {"kind": "slow_nic", "factor": factor}

    return fault


def flapping(draw: Draw, made: Content) -> Content:
    """Draw a NIC whose link is down for six seconds again and again."""
    return slow_nic(0.05)(draw, made) | {"kind": "link_flap", "every_s": draw.between(15, 25), "down_s": 6.0}


def _leaf(draw: Draw, made: Content) -> str:
    """Return a leaf that the job's rails use: its first hosts' pod comes first, one leaf per GPU."""
    pods = -(-len(made["jobs"][0]["hosts"]) // made["fabric"]["hosts_per_leaf"])
    return f"leaf-{int(draw.rng.integers(pods * GPUS)):03d}"


def _spine(draw: Draw, made: Content) -> str:
    return f"spine-{int(draw.rng.integers(made['fabric']['spines'])):02d}"


def degraded_leaf(draw: Draw, made: Content) -> Content:
    """Draw a leaf of the job's rails that has a quarter or two fifths of its rate."""
    return {"kind": "degraded_switch", "switch": _leaf(draw, made), "factor": draw.one_of(0.25, 0.4)}


def degraded_spine(draw: Draw, made: Content) -> Content:
    """Draw a spine that has a quarter or two fifths of its rate."""
    return {"kind": "degraded_switch", "switch": _spine(draw, made), "factor": draw.one_of(0.25, 0.4)}


def degraded_link(draw: Draw, made: Content) -> Content:
    """Draw a link between a leaf and a spine that has a quarter or two fifths of its rate."""
    return degraded_leaf(draw, made) | {"kind": "degraded_link", "neighbour": _spine(draw, made)}


def collision(draw: Draw, made: Content) -> Content:
    """Draw a link that the job's flows share with others."""
    return degraded_link(draw, made) | {"kind": "ecmp_collision", "factor": draw.one_of(0.3, 0.5)}


def checkpoint_stall(draw: Draw, made: Content) -> Content:
    """Draw a job that stands still for seconds each few steps."""
    del made
    return {"kind": "checkpoint_stall", "job": "ill", "steps": draw.one_of(4, 6), "pause_s": draw.between(4, 8)}


def frequent_checkpoints(draw: Draw, made: Content) -> Content:
    """Draw a job that has stood still for many seconds each few steps from its beginning on."""
    del made
    fault = {"kind": "checkpoint_stall", "job": "ill", "start_s": 0.0}
    return fault | {"steps": draw.one_of(6, 8, 10), "pause_s": draw.between(7, 20)}


def data_loader_stalls(draw: Draw, made: Content) -> Content:
    """Draw a job that waits for its samples for a second or two each few steps."""
    del made
    return {"kind": "data_loader_stalls", "job": "ill", "steps": draw.one_of(2, 3), "pause_s": draw.between(1, 2)}


def slow_stage(draw: Draw, made: Content) -> Content:
    """Draw a pipeline stage that has been slower than the others from the beginning on."""
    stage = int(draw.rng.integers(made["jobs"][0]["pp"]))
    return {"kind": "slow_stage", "job": "ill", "pp_stage": stage, "factor": draw.one_of(1.3, 1.5), "start_s": 0.0}


def far_slower(seed: int) -> Content:
    """A small job of short steps becomes far slower: a GPU two to four times, or a NIC three to six times.

    Each of its GPUs, or each two of them, has a NIC and a host of its own, so that few others tell of who is slow.
    """
    draw = Draw("far_slower", seed)
    layout = draw.one_of({"tp": 1, "pp": 1}, {"tp": 2, "pp": 1}, {"tp": 1, "pp": 2}, {"tp": 1, "pp": 4})
    hosts = draw.hosts(draw.one_of(8, 12, 16))
    micro_batches = draw.one_of(1, 2) if layout["pp"] == 1 else 2 * layout["pp"]
    layers, hidden = MODELS["1b"]
    job = {"name": "ill", "model": "1b", "layers": layers, "hidden": hidden, "hosts": hosts, "gradient_sync": "after"}
    job |= layout | {"dp": len(hosts) // layout["pp"], "micro_batches": micro_batches, "channels": draw.one_of(1, 2)}
    job["forward_ms"] = draw.forward_ms(job, draw.between(0.5, 2.0))
    kind, factor = draw.one_of(("slow_gpu", draw.between(2, 4)), ("slow_nic", 1 / draw.between(3, 6)))
    fault = {"kind": kind, "job": "ill", "rank": int(draw.rng.integers(len(hosts) * layout["tp"])), "factor": factor}
    fabric = {"hosts": len(hosts), "gpus_per_host": layout["tp"], "hosts_per_leaf": 4, "spines": 2}
    return {
        "jobs": [job],
        "fabric": fabric | {"link_gbps": 50.0, "uplink_gbps": 200.0},
        "faults": [fault | {"start_s": draw.between(*ONSET_S)}],
    }


def hang(seed: int) -> Content:
    """A job hangs until the data end; the other goes on."""
    draw = Draw("hang", seed)
    job = draw.dense("ill", HOSTS[seed % len(HOSTS)], (3.0, 6.0), **draw.one_of(*LAYOUTS))
    well = draw.dense("well", 4, tp=8)
    restart = {"job": "ill", "at_s": draw.between(*ONSET_S), "pause_s": 600.0, "stop": "hang"}
    return {"jobs": [job, well], "fabric": draw.fabric(), "restarts": [restart]}


def exchanging(name: str, fault: Fault, fabric: Content | None = None) -> Callable[[int], Content]:
    """Return what draws one job whose ranks exchange in every layer, and that meets a fault."""

    def content(seed: int) -> Content:
        draw = Draw(name, seed)
        which = seed % len(EXCHANGING)
        job = _exchanging_job(draw, "ill", draw.one_of(2, 4) if which == 0 else draw.one_of(4, 8), which)
        begins = {"start_s": draw.between(*ONSET_S)}
        made = {"jobs": [job], "fabric": draw.fabric() | (fabric or {})}
        return made | {"faults": [begins | fault(draw, made)], "collector": {"retransmitted": 0.0005}}

    return content


def _exchanging_job(draw: Draw, name: str, hosts: int, which: int) -> Content:
    job = draw.dense(name, hosts, (5.0, 9.0), **EXCHANGING[which % len(EXCHANGING)], micro_batches=1)
    return job | {"dp": job["dp"] // job.get("cp", 1)}


def healthy(seed: int, job_hosts: Sequence[int] = HEALTHY_HOSTS, exchanging_hosts: Sequence[int] = ()) -> Content:
    """Jobs with nothing wrong: uneven samples and costs, checkpoints, pauses, and some that come, go or move.

    Parameters
    ----------
    job_hosts : of each dense job, a dozen or several
    exchanging_hosts : of each job that exchanges in every layer
    """
    draw = Draw("healthy", seed)
    dozens = len(job_hosts) // len(HEALTHY_LAYOUTS)
    jobs = [
        draw.dense(f"job{at:02d}", hosts, (2.5, 8.0), **(layout | _uneven(draw, at)))
        for at, (hosts, layout) in enumerate(zip(job_hosts, draw.shuffled(HEALTHY_LAYOUTS * dozens), strict=True))
    ]
    names = iter(draw.shuffled([job["name"] for job in jobs]))
    starts, stops, moves = (list(islice(names, some * dozens)) for some in (2, 2, 1))
    habits = [habit for _ in range(dozens) for habit in _habits(draw, names)]
    deep = [_exchanging_job(draw, f"deep{at}", hosts, at) for at, hosts in enumerate(exchanging_hosts)]
    jobs += deep
    habits += _habits(draw, iter(job["name"] for job in deep), checkpoint_steps=12) if deep else []
    lives = [{"job": name, "start_s": draw.between(60, 300)} for name in starts]
    lives += [{"job": name, "end_s": draw.between(300, 540)} for name in stops]
    restarts = [
        {"job": name, "at_s": draw.between(200, 400), "pause_s": draw.between(20, 60), "stop": "in_order"}
        for name in moves
    ]
    return {
        "jobs": jobs,
        "fabric": draw.fabric(),
        "habits": habits,
        "lives": lives,
        "restarts": restarts,
        "collector": {"retransmitted": 0.0005},
    }


def _habits(draw: Draw, names: Iterator[str], checkpoint_steps: int = 40) -> list[Content]:
    return [
        {"job": next(names), "cost_spread": draw.between(0.05, 0.2)},
        {"job": next(names), "pauses": 0.05, "pause_ms": draw.between(100, 400)},
        {"job": next(names), "checkpoint_steps": checkpoint_steps, "read_mb": 50.0},
        {"job": next(names), "drift": 0.02},
    ]


def _uneven(draw: Draw, at: int) -> Content:
    return {"sequence_spread": draw.between(0.05, 0.2)} if at % 4 == 0 else {}


def healthy_damaged(seed: int) -> Content:
    """The same as `healthy` before a collector that loses, doubles, disorders and mistimes records."""
    return healthy(seed) | {"collector": DAMAGE}


def healthy_platform(seed: int) -> Content:
    """The same on 2,880 GPUs, and jobs that exchange in every layer besides."""
    return healthy(seed, PLATFORM_HOSTS, EXCHANGING_HOSTS)


HEALTHY_MINUTES = 10
HEALTHY_LAYOUTS: tuple[Content, ...] = tuple({"tp": tp, "pp": pp} for tp in (4, 8) for pp in (1, 1, 1, 2, 2, 2))

CROSSING: Content = {"gradient_sync": "after", "channels": 8}
"""Gradients that no computing hides, over as many queue pairs as hit most uplinks: so that a switch matters."""

NARROW: Content = {"link_gbps": 50.0, "uplink_gbps": 200.0, "hosts_per_leaf": 4}
"""A network so slow that a part of it that is slower still shows in the steps, and pods enough to tell links apart."""

TROUBLES: Mapping[str, tuple[str, Callable[[int], Content]]] = {
    "slow_gpu_1.1": ("A GPU computes 1.1 times as long.", trouble("slow_gpu_1.1", slow_gpu(1.1))),
    "slow_gpu_1.3": ("A GPU computes 1.3 times as long.", trouble("slow_gpu_1.3", slow_gpu(1.3))),
    "slow_gpu_2": ("A GPU computes twice as long.", trouble("slow_gpu_2", slow_gpu(2.0))),
    "uneven_gpu": (
        "A GPU computes 1.5 times as long, while samples differ in length by a fifth.",
        trouble("uneven_gpu", slow_gpu(1.5), sequence_spread=0.2),
    ),
    "slow_gpu_of_2048": (
        "One of 2,048 GPUs computes 1.3 times as long.",
        trouble("slow_gpu_of_2048", slow_gpu(1.3), hosts=256),
    ),
    "slow_nic_half": (
        "A NIC has half of its rate; gradients wait for the backward pass.",
        trouble("slow_nic_half", slow_nic(1 / 2), NARROW, gradient_sync="after"),
    ),
    "slow_nic_third": ("A NIC has a third of its rate.", trouble("slow_nic_third", slow_nic(1 / 3), NARROW)),
    "degraded_leaf": (
        "A leaf switch has a quarter to two fifths of its rate.",
        trouble("degraded_leaf", degraded_leaf, NARROW, **CROSSING),
    ),
    "degraded_spine": ("A spine switch has.", trouble("degraded_spine", degraded_spine, NARROW, **CROSSING)),
    "degraded_link": (
        "One link between a leaf and a spine has, both ways.",
        trouble("degraded_link", degraded_link, NARROW, **CROSSING),
    ),
    "collision": (
        "What crosses one link one way has a third or half of its rate, as where two tenants meet.",
        trouble("collision", collision, NARROW, **CROSSING),
    ),
    "link_flap": (
        "A NIC's link is all but gone for six seconds, three or four times a minute.",
        trouble("link_flap", flapping, NARROW, gradient_sync="after"),
    ),
    "checkpoint_stall": (
        "Every fourth or sixth step waits for a checkpoint, for 4 to 8 s.",
        trouble("checkpoint_stall", checkpoint_stall),
    ),
    "frequent_checkpoints": (
        "From the beginning on every sixth to tenth step waits for 7 to 20 s, in jobs that only reduce gradients.",
        trouble("frequent_checkpoints", frequent_checkpoints, tp=8, pp=1, chunks=1),
    ),
    "data_loader_stalls": (
        "In every second or third step one rank, another each time, waits for 1 to 2 s.",
        trouble("data_loader_stalls", data_loader_stalls),
    ),
    "slow_stage": (
        "One of four pipeline stages takes 1.3 or 1.5 times as long, all the time.",
        trouble("slow_stage", slow_stage, tp=8, pp=4, micro_batches=8),
    ),
    "far_slower": (
        "A small job of short steps becomes up to five times as slow, by a GPU (x2 to x4) or a NIC (1/3 to 1/6).",
        far_slower,
    ),
    "exchanging_gpu": (
        "Parameters, experts or context are exchanged in every layer; a GPU computes 1.5 times as long.",
        exchanging("exchanging_gpu", slow_gpu(1.5)),
    ),
    "exchanging_nic": (
        "The same; a NIC has an eighth of its rate.",
        exchanging("exchanging_nic", slow_nic(1 / 8), NARROW),
    ),
    "exchanging_stalls": (
        "The same; in every second or third step one rank, another each time, waits for 1 to 2 s.",
        exchanging("exchanging_stalls", data_loader_stalls),
    ),
    "hang": ("A job hangs until the data end.", hang),
}
"""By name, in the order of the page: what goes wrong, and what draws it."""
