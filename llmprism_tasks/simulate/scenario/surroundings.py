"""What a platform carries beside the steps of its jobs: storage, tenants that do not train, background traffic."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.settings.schema import number, text
from llmprism_tasks.simulate.scenario.sections import indices


@dataclass(frozen=True)
class Storage:
    """Servers outside the topology that hold data sets and checkpoints."""

    servers: int = number(4, unit="servers", low=1, high=1000, reason="addresses that jobs read from and write to")
    gbps: float = number(25.0, unit="Gbit/s", low=0.001, high=10_000, reason="what one NIC reads or writes at")


@dataclass(frozen=True)
class Habit:
    """What a job does beside its steps, and how its steps vary; by default nothing, and hardly."""

    job: str = text("", reason="the job")
    read_mb: float = number(
        0.0, unit="MB", low=0, high=1e6, reason="samples that each replica reads from storage in a step"
    )
    checkpoint_steps: int = number(
        0, unit="steps", low=0, high=10**6, reason="every how many steps it writes a checkpoint and waits; 0: never"
    )
    cost_spread: float = number(
        0.0,
        unit="ratio",
        low=0,
        high=1,
        reason="standard deviation of what micro-batches cost where sequences are packed to one length",
    )
    pauses: float = number(
        0.0, unit="per step", low=0, high=100, reason="how often some rank pauses, as for garbage collection"
    )
    pause_ms: float = number(0.0, unit="ms", low=0, high=1e6, reason="how long such a pause is")
    drift: float = number(
        0.0, unit="ratio", low=0, high=1, reason="how much longer computing takes every hundred steps"
    )


@dataclass(frozen=True)
class Tenant:
    """A tenant that does not train.

    `disaggregated` inference sends keys and values from the hosts that prefill (the first half) to those that decode;
    `experts` is inference of a MoE model, with all-to-all in each rail at irregular times; `shuffle` is a batch job
    whose hosts exchange partitions over TCP now and then.
    """

    name: str = text("", reason="the tenant's name in the truth")
    kind: str = text("disaggregated", choices=("disaggregated", "experts", "shuffle"), reason="what it does")
    hosts: tuple[int, ...] = indices("the hosts it runs on")
    gpus: tuple[int, ...] = indices("which GPUs of each host; all when empty")
    per_s: float = number(2.0, unit="per s", low=0.0001, high=1e4, reason="requests, iterations or shuffles")
    mb: float = number(50.0, unit="MB", low=0.0001, high=1e5, reason="median of what one pair of NICs exchanges in one")


@dataclass(frozen=True)
class Background:
    """Traffic that belongs to no tenant, or to the transport."""

    chatter_per_s: float = number(
        0.0, unit="flows/s", low=0, high=1e6, reason="small flows between any two NICs: ssh, metrics, health checks"
    )
    outside: float = number(0.2, unit="ratio", low=0, high=1, reason="chatter whose other end is not in the topology")
    chatter_roce: float = number(
        0.0, unit="ratio", low=0, high=1, reason="chatter that looks like training, over RoCE; the rest goes over TCP"
    )
    heartbeat_s: float = number(
        0.0, unit="s", low=0, high=3600, reason="every host reports to the first one this often; 0: never"
    )
    copies_per_minute: float = number(
        0.0, unit="copies/minute", low=0, high=1e4, reason="a host pulls weights from any other, once"
    )
    copy_gb: float = number(4.0, unit="GB", low=0.001, high=1e4, reason="median size of such a copy")
    ack_packets: int = number(
        0, unit="packets", low=0, high=10**9, reason="RoCE packets that one acknowledgement covers; 0: none is recorded"
    )
