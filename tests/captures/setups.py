"""What is captured: jobs, the traffic beside them, and the troubles, each at its second of the capture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import cluster

NIC_ADDRS = tuple(node.addr for node in cluster.NICS)
OUTSIDE = (cluster.STORAGE.addr, cluster.OUTSIDER.addr)


@dataclass(frozen=True)
class Job:
    """A training job. `addrs` are in the order of ranks: tensor-parallel ones are neighbours, then those of a stage."""

    name: str
    kind: Literal["ddp", "fsdp", "pipeline", "experts", "ring"]
    addrs: tuple[str, ...]
    seconds: float
    """How long it trains, about."""
    dp: int = 1
    """Ranks that share gradients: those of a ring, and those that hold experts, count."""
    pp: int = 1
    tp: int = 1
    """Ranks of one host that share each layer, over a link that no switch sees."""
    ep: int = 1
    """Ranks of which each holds an expert of a layer; a divisor of `dp`."""
    cp: int = 1
    """Ranks that share a sequence, in a ring; a divisor of `dp`."""
    virtual: int = 1
    """Pipeline stages on each rank; above 1 the schedule is interleaved."""
    layers: int = 8
    layer_s: float = 0.025
    """Accelerator time of a layer's forward pass."""
    micro_batches: int = 1
    tokens: int = 512
    """Length of a sequence, and of a micro-batch: an activation is so many times 1 KB."""
    direction: int = 1
    """Of a ring of K/V blocks: 1 is against gloo's own rings, -1 the same way round."""
    checkpoint_every: int = 0
    bucket_mb: float = 2.0
    """Of gradients that are reduced together."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    unevenness: float = 0.0
    """Sigma of a log-normal factor on the computing of a step, the same on all ranks: samples of different lengths."""
    jitter: float = 0.03
    """Standard deviation of an accelerator's time for a layer, as a ratio."""
    accumulate: int = 1
    """Batches whose gradients are added up before they are synchronised; of DDP only."""
    evaluate_every: int = 0
    evaluation_s: float = 3.0
    """After so many steps the ranks evaluate so long, each by itself."""
    start_s: float = 1.0
    seed: int = 1
    port: int = 29500


@dataclass(frozen=True)
class Traffic:
    """What is not training: a bulk copy from one node to another, or chatter among many."""

    kind: Literal["bulk_outside", "host_copy", "chatter"]
    src: str
    dst: tuple[str, ...]
    start_s: float
    seconds: float
    mbit: float = 0.0


@dataclass(frozen=True)
class Fault:
    """A trouble: a NIC, its leaf's link to the spine, or the storage at `severity` of a NIC's rate, a NIC that is as
    good as down, a rank that computes by `severity` slower or has that share of a core, stops, or is killed.

    After so many seconds all but the last are well again; of a job whose rank was killed all other ranks are then
    ended.
    """

    kind: Literal[
        "limited_nic", "limited_uplink", "link_flap", "slow_rank", "throttled_rank", "stopped_rank", "killed_rank",
        "slow_storage",
    ]  # fmt: skip
    job: str
    addr: str
    start_s: float
    seconds: float
    severity: float = 1.0


@dataclass(frozen=True)
class Scenario:
    jobs: tuple[Job, ...]
    traffic: tuple[Traffic, ...] = ()
    faults: tuple[Fault, ...] = ()
    seconds: float = 0.0
    """How long is captured at least: for silence to be seen as one, somebody else has to send."""


def nics(*places: str) -> tuple[str, ...]:
    """Return the addresses of NICs written as host and NIC: `nics("1.1", "3.1")`."""
    return tuple(f"10.0.{place}" for place in places)


def chatter(seconds: float) -> tuple[Traffic, ...]:
    """Return chatter among all NICs and the nodes outside the topology."""
    everyone = (*NIC_ADDRS, *OUTSIDE)
    return tuple(
        Traffic("chatter", src, tuple(dst for dst in everyone if dst != src), 0.5, seconds) for src in everyone
    )


FOUR_HOSTS = nics("1.1", "2.1", "3.1", "4.1")
OTHER_FOUR = nics("1.2", "2.2", "3.2", "4.2")

TWO_BY_TWO = Job("jobA", "pipeline", FOUR_HOSTS, 115, dp=2, pp=2, micro_batches=4, layers=4, layer_s=0.05)
CRASHING = Job("jobB", "ddp", FOUR_HOSTS, 400, dp=4, layers=6, layer_s=0.03, seed=2, start_s=40.0)

SCENARIOS: dict[str, Scenario] = {
    "fsdp4": Scenario((Job("jobA", "fsdp", nics("1.1", "1.2", "3.1", "3.2"), 115, dp=4, layers=3, layer_s=0.035),)),
    "pp4_only": Scenario((Job("jobA", "pipeline", FOUR_HOSTS, 115, pp=4, micro_batches=8, layer_s=0.03, tokens=1024),)),
    "pp2_only": Scenario(
        (Job("jobA", "pipeline", nics("1.1", "3.1"), 115, pp=2, micro_batches=4, layers=4, layer_s=0.04, tokens=1024),)
    ),
    "two_jobs": Scenario(
        (
            Job("jobA", "ddp", FOUR_HOSTS, 115, dp=4, layer_s=0.03),
            Job("jobB", "ddp", OTHER_FOUR, 115, dp=4, layer_s=0.03, seed=2, start_s=4.0),
        )
    ),
    "two_pipelines": Scenario(
        (TWO_BY_TWO, replace(TWO_BY_TWO, name="jobB", addrs=OTHER_FOUR, seed=2, start_s=4.0)),
    ),
    "interleaved": Scenario(
        (Job("jobA", "pipeline", FOUR_HOSTS, 115, dp=2, pp=2, virtual=2, micro_batches=4, layer_s=0.03),)
    ),
    "background": Scenario(
        (
            TWO_BY_TWO,
            Job("jobB", "ddp", nics("2.2", "4.2"), 115, dp=2, layers=4, layer_s=0.06, seed=2, start_s=5.0),
        ),
        traffic=(
            *chatter(120.0),
            Traffic("bulk_outside", FOUR_HOSTS[1], OUTSIDE[:1], 30.0, 50.0, 80.0),
            Traffic("bulk_outside", OUTSIDE[1], FOUR_HOSTS[:1], 55.0, 30.0, 60.0),
            Traffic("bulk_outside", "10.0.3.2", OUTSIDE[1:], 70.0, 20.0, 150.0),
            Traffic("host_copy", FOUR_HOSTS[2], ("10.0.4.2",), 80.0, 20.0, 100.0),
        ),
    ),
    "restart": Scenario(
        (
            Job("jobA", "ddp", nics("1.2", "3.2"), 145, dp=2, layers=6, layer_s=0.05),
            CRASHING,
            replace(
                CRASHING,
                name="jobB_again",
                addrs=(*FOUR_HOSTS[:3], "10.0.4.2"),
                seconds=45,
                start_s=100.0,
                port=29501,
            ),
        ),
        faults=(Fault("killed_rank", "jobB", "10.0.4.1", 80.0, 2.0),),
    ),
    "limited_nic": Scenario(
        (Job("jobA", "ddp", FOUR_HOSTS, 115, dp=4, layer_s=0.03),),
        faults=(Fault("limited_nic", "jobA", "10.0.3.1", 60.0, 40.0, 1 / 3),),
    ),
    "pipeline_limited_nic": Scenario(
        (TWO_BY_TWO,), faults=(Fault("limited_nic", "jobA", "10.0.3.1", 60.0, 40.0, 1 / 4),)
    ),
    "limited_uplink": Scenario(
        (Job("jobA", "ddp", FOUR_HOSTS, 115, dp=4, layer_s=0.03),),
        faults=(Fault("limited_uplink", "jobA", "10.0.1.1", 60.0, 40.0, 1 / 4),),
    ),
    "two_faults": Scenario(
        (replace(TWO_BY_TWO, addrs=(*FOUR_HOSTS, *OTHER_FOUR), seconds=130, dp=4),),
        faults=(
            Fault("slow_rank", "jobA", "10.0.2.1", 50.0, 60.0, 2.0),
            Fault("limited_nic", "jobA", "10.0.4.2", 70.0, 50.0, 1 / 4),
        ),
    ),
    "stopped_rank": Scenario(
        (Job("jobA", "ddp", FOUR_HOSTS, 115, dp=4, layer_s=0.03),),
        faults=(Fault("stopped_rank", "jobA", "10.0.2.1", 70.0, 20.0),),
    ),
    "checkpoint_stall": Scenario(
        (Job("jobA", "ddp", FOUR_HOSTS, 115, dp=4, layers=4, layer_s=0.05, checkpoint_every=20),)
    ),
    "pp4_slow_rank": Scenario(
        (Job("jobA", "pipeline", FOUR_HOSTS, 115, pp=4, micro_batches=8, layer_s=0.025),),
        faults=(Fault("slow_rank", "jobA", "10.0.3.1", 60.0, 40.0, 2.2),),
    ),
    "fsdp4_slow_rank": Scenario(
        (Job("jobA", "fsdp", FOUR_HOSTS, 115, dp=4, layers=3, layer_s=0.035),),
        faults=(Fault("slow_rank", "jobA", "10.0.2.1", 60.0, 40.0, 2.2),),
    ),
    "short_steps": Scenario(
        (Job("jobA", "ddp", FOUR_HOSTS, 115, dp=4, layers=4, layer_s=0.018, bucket_mb=1, optimizer="sgd"),)
    ),
    "uneven_steps": Scenario(
        (
            Job(
                "jobA",
                "ddp",
                FOUR_HOSTS,
                130,
                dp=4,
                layers=4,
                layer_s=0.025,
                unevenness=0.35,
                accumulate=4,
                evaluate_every=25,
            ),
        )
    ),
    "twelve_micro_batches": Scenario(
        (Job("jobA", "pipeline", FOUR_HOSTS, 150, dp=2, pp=2, micro_batches=12, layers=8, layer_s=0.044),)
    ),
    "bulk_between_members": Scenario(
        (
            Job("jobA", "ddp", FOUR_HOSTS, 125, dp=4, layers=6, layer_s=0.04),
            replace(TWO_BY_TWO, name="jobB", addrs=OTHER_FOUR, seconds=120, seed=2, start_s=4.0),
        ),
        traffic=(
            Traffic("host_copy", FOUR_HOSTS[0], (FOUR_HOSTS[2],), 25.0, 40.0, 120.0),
            Traffic("host_copy", OTHER_FOUR[1], (OTHER_FOUR[3],), 50.0, 45.0, 90.0),
            Traffic("host_copy", FOUR_HOSTS[1], (OTHER_FOUR[0],), 70.0, 40.0, 80.0),
        ),
    ),
    "two_jobs_two_faults": Scenario(
        (
            replace(TWO_BY_TWO, seconds=150),
            Job("jobB", "ddp", OTHER_FOUR, 150, dp=4, layers=6, layer_s=0.04, seed=2, start_s=4.0),
        ),
        faults=(
            Fault("slow_rank", "jobA", "10.0.2.1", 65.0, 45.0, 2.0),
            Fault("limited_nic", "jobB", "10.0.3.2", 75.0, 45.0, 1 / 7),
        ),
    ),
    "limited_to_a_fifth": Scenario(
        (Job("jobA", "ddp", FOUR_HOSTS, 150, dp=4, layers=6, layer_s=0.035),),
        faults=(Fault("limited_nic", "jobA", "10.0.2.1", 60.0, 50.0, 1 / 5),),
    ),
    "cp4_ring": Scenario((Job("jobA", "ring", FOUR_HOSTS, 115, dp=4, layers=4, layer_s=0.06, tokens=256, cp=4),)),
    "cp4_ring_same_way": Scenario(
        (Job("jobA", "ring", FOUR_HOSTS, 115, dp=4, layers=4, layer_s=0.06, tokens=256, cp=4, direction=-1),)
    ),
}
