"""The platforms that are analysed: three sizes, and three mixes of jobs that fill them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accuracy.families.scenario_draw import GPUS, MODELS, Content, Draw
from accuracy.families.whole_platform import HOSTS

SIZES = (2_880, 8_192, 32_768)
"""GPUs: the platform of the published system, and fleets of three and eleven times as many."""

PART_HOSTS = 512
"""Hosts whose traffic is simulated at once, or those of one job: a gigabyte of memory."""

LOOP_MINUTES = 3
"""After which the simulated jitter is drawn anew: a minute is cheaper to make out of a short loop."""

LAYOUTS = tuple((tp, pp) for tp in (2, 4, 8) for pp in (1, 2, 4, 8))


@dataclass(frozen=True)
class Mix:
    """Which jobs share a platform.

    Attributes
    ----------
    words : what they are
    hosts : of each job, over and over until the platform is full
    step_s : bounds of the time that a step computes
    fixed : keys of a job that are not drawn
    """

    words: str
    hosts: Sequence[int]
    step_s: tuple[float, float]
    fixed: Mapping[str, Any]


MIXES: Mapping[str, Mix] = {
    "tenants": Mix("jobs of 64 to 512 GPUs", HOSTS, (2.0, 5.0), {}),
    "large": Mix("jobs of 1,024 to 2,048 GPUs on four channels", (256, 128), (3.0, 6.0), {"channels": 4}),
    "small": Mix("jobs of 16 to 64 GPUs", (2, 4, 8, 4), (2.0, 5.0), {}),
}
"""By name. Steps and channels are such that each has some 500 flow records a minute from each GPU."""


def parts(mix: str, gpus: int) -> list[Content]:
    """Return a platform as scenarios that are simulated one after another, each with some of the jobs.

    All of them have the platform's whole fabric and hosts of their own: in the simulator tenants do not meet, so the
    records are those of one simulation, but for the seeds.
    """
    draw, kind, hosts = Draw(f"bench {mix}", 0), MIXES[mix], gpus // GPUS
    jobs = [_job(draw, f"{mix}{number:04d}", each, kind) for number, each in enumerate(_sizes(kind.hosts, hosts))]
    fabric = {"hosts": hosts, "hosts_per_leaf": 32, "spines": 16}
    collector = {"retransmitted": 0.0005}
    common = {"fabric": fabric, "collector": collector, "loop_minutes": LOOP_MINUTES}
    return [{"jobs": some, **common} for some in _grouped(jobs)]


def _sizes(pattern: Sequence[int], hosts: int) -> Iterator[int]:
    """Yield the jobs' hosts until there are none left; the last jobs take what remains."""
    left = hosts
    for each in itertools.cycle(pattern):
        if left == 0:
            return
        yield min(each, left)
        left -= min(each, left)


def _job(draw: Draw, name: str, hosts: int, mix: Mix) -> Content:
    """Draw a job; models grow with the stages that hold them, and optimizers are mostly distributed."""
    gpus = hosts * GPUS
    # At least two replicas, so that there is a data-parallel step to find.
    tp, pp = draw.one_of(*[(tp, pp) for tp, pp in LAYOUTS if gpus % (tp * pp) == 0 and gpus >= 2 * tp * pp])
    model = draw.one_of(*(["3b", "7b"] if tp * pp < 16 else list(MODELS)[2:]))
    layers, _ = MODELS[model]
    return draw.dense(
        name,
        hosts,
        mix.step_s,
        tp=tp,
        pp=pp,
        model=model,
        layers=layers - layers % pp,
        micro_batches=draw.one_of(2, 3) * max(pp, 2),
        optimizer=draw.one_of("distributed", "distributed", "replicated"),
        gradient_sync=draw.one_of("overlap", "overlap", "after"),
        **mix.fixed,
    )


def _grouped(jobs: Sequence[Content]) -> list[list[Content]]:
    """Group jobs in their order into parts of at most `PART_HOSTS` hosts."""
    groups: list[list[Content]] = []
    hosts = PART_HOSTS
    for job in jobs:
        hosts += len(job["hosts"])
        if hosts > PART_HOSTS:
            groups.append([])
            hosts = len(job["hosts"])
        groups[-1].append(job)
    return groups
