"""What surrounds the jobs of a scenario: how long they are there, other traffic, and the collector that sees it all."""

from __future__ import annotations

from dataclasses import dataclass

from llmprism_tasks.settings.schema import number, text
from llmprism_tasks.simulate.sections import NEVER, indices


@dataclass(frozen=True)
class Collector:
    """How packets become flow records."""

    idle_timeout_ms: float = number(
        1.0, unit="ms", low=0, high=1e4, reason="silence of a queue pair that ends a record"
    )
    active_timeout_s: float = number(
        0.0, unit="s", low=0, high=3600, reason="a record this long is exported and goes on as another; 0: never"
    )
    sampled: int = number(
        1, unit="packets", low=1, high=10**6, reason="one packet in so many is counted, and scaled up"
    )
    retransmitted: float = number(0.0, unit="ratio", low=0, high=1, reason="records with packets sent twice")
    lost: float = number(0.0, unit="ratio", low=0, high=1, reason="records that never arrive")
    doubled: float = number(0.0, unit="ratio", low=0, high=1, reason="records that arrive twice")
    doubled_us: float = number(
        0.0, unit="us", low=0, high=1e6, reason="the copy's times are off by up to this, as another switch's would be"
    )
    skew_us: float = number(0.0, unit="us", low=0, high=1e6, reason="standard deviation of the switches' clocks")
    seen_by: str = text(
        "leaf",
        choices=("leaf", "any"),
        reason="who exports a queue pair's records: its first leaf, or any switch on its path",
    )
    clock_us: float = number(0.0, unit="us", low=0, high=1e6, reason="times are cut to multiples of this; 0: to 1 ns")
    disorder_ms: float = number(
        0.0, unit="ms", low=0, high=60_000, reason="rows come up to this later than their start would place them"
    )
    pathless: float = number(
        0.0, unit="ratio", low=0, high=1, reason="records whose switch_path the collector does not know"
    )


@dataclass(frozen=True)
class Life:
    """When a job is there; jobs without a `[[lives]]` of theirs run before, during and after the data."""

    job: str = text("", reason="the job")
    start_s: float = number(
        0.0, unit="s", low=0, high=NEVER, reason="when its first process comes up, after the run's start; 0: before it"
    )
    end_s: float = number(NEVER, unit="s", low=0, high=NEVER, reason="it stops with the step that is under way then")


@dataclass(frozen=True)
class Restart:
    """A job stops and comes back, on other hosts or with more replicas; several may follow each other."""

    job: str = text("", reason="the job")
    at_s: float = number(60.0, unit="s", low=0, high=NEVER, reason="when it stops, after the run's start")
    pause_s: float = number(10.0, unit="s", low=0, high=NEVER, reason="until its first process comes up again")
    stop: str = text(
        "crash",
        choices=("crash", "hang", "in_order"),
        reason="crash: all at once; hang: one rank for good, the others when they wait for it, and the job keeps its "
        "GPUs; in_order: with the step that is under way",
    )
    rank: int = number(0, unit="rank", low=0, high=10**6, reason="who hangs, in the middle of a backward pass")
    hosts: tuple[int, ...] = indices("the hosts it comes back on; the same when empty")
    dp: int = number(0, unit="replicas", low=0, high=4096, reason="data-parallel degree from then on; 0: the same")


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
