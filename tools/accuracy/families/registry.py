"""The families: what each breaks of what is published, how a seed draws one, and what is expected of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from accuracy.families import collectors, tenancy
from accuracy.families import fault_families as troubles
from accuracy.families import parallel_layouts as parallelisms
from accuracy.families import time_variation as courses
from accuracy.families.scenario_draw import Content
from accuracy.families.whole_platform import platform

DEVELOPMENT_SEEDS = range(10)
"""Seeds for building the method with; never published."""

FIRST_PUBLISHED_SEED = 4100
"""Seeds from here on are published, of every source; nothing was built with them. It rises when some were looked at."""

FIRST_PUBLISHED_CAPTURE = 1635
"""The same of captures, which are drawn by seeds of their own."""


class Bound(NamedTuple):
    """What a figure must reach: at least, or at most."""

    figure: str
    bound: float
    at_most: bool = False

    def met(self, value: float | None) -> bool:
        """Say whether a value is inside; a figure of nothing misses nothing."""
        return value is None or (value <= self.bound if self.at_most else value >= self.bound)


def _at_least(bound: float, *figures: str) -> tuple[Bound, ...]:
    return tuple(Bound(figure, bound) for figure in figures)


def _at_most(bound: float, *figures: str) -> tuple[Bound, ...]:
    return tuple(Bound(figure, bound, at_most=True) for figure in figures)


KINDS = ("dp_precision", "dp_recall", "pp_precision", "pp_recall")
OTHER_KINDS = ("ep_precision", "ep_recall", "cp_precision", "cp_recall")
NOTHING_INVENTED = _at_most(0, "invented", "called_other")

WHOLE_PLATFORM = (
    *_at_least(1, "exact", *KINDS, "layouts"),
    *_at_most(0.0005, "error_median"),
    *_at_most(0.003, "error_p95"),
)
SHARED = (*_at_least(0.99, "exact", *KINDS), *NOTHING_INVENTED)
DAMAGED = (*_at_least(0.99, "exact"), *_at_least(0.98, *KINDS), *_at_most(0.01, "error_p95"))
OTHER_PARALLELISM = (
    *_at_least(1, "exact"),
    *_at_least(0.97, *KINDS),
    *_at_least(0.98, "steps_found"),
    *_at_most(0, "called_pp"),
)
COURSES = (*_at_least(0.98, "steps_found"), *_at_most(0, "steps_extra", "changed_ids"))
CAPTURED = (
    *_at_least(0.98, "exact", "steps_found", *KINDS, *OTHER_KINDS),
    *_at_most(0.03, "extra_ratio"),
    *_at_most(0, "degrees_wrong"),
    *_at_most(0.01, "error_median"),
    *_at_most(0.03, "error_p95"),
)
"""What captures of real training are held to."""

CULPRITS = _at_least(0.98, "detected") + _at_least(0.95, "first_right") + _at_least(0.9, "kind_right")
"""What is wanted where something is wrong; see `tallies.culprits`."""


@dataclass(frozen=True)
class Family:
    """Platforms that are alike in what they break of what is published.

    Attributes
    ----------
    breaks : the assumption, in a sentence
    content : draws a scenario from a seed
    bounds : what is expected of the joint method
    minutes : how long one is
    published : how many seeds are published
    methods : those that are measured
    """

    breaks: str
    content: Callable[[int], Content]
    bounds: tuple[Bound, ...] = ()
    minutes: int = 3
    published: int = 4
    methods: tuple[str, ...] = ("joint", "published")

    @property
    def seeds(self) -> range:
        """The seeds whose figures are published."""
        return range(FIRST_PUBLISHED_SEED, FIRST_PUBLISHED_SEED + self.published)


FAMILIES: Mapping[str, Family] = {
    "platform": Family(
        "Nothing, but there are 2,880 GPUs and twelve jobs of twelve layouts, some with all gradients in one burst.",
        platform,
        WHOLE_PLATFORM,
        minutes=2,
        methods=("joint",),
        published=2,  # of a dozen jobs each
    ),
    "plain": Family("Nothing: rings within rails and overlapped gradient buckets.", tenancy.plain, WHOLE_PLATFORM),
    "same_hosts": Family(
        "A host has one tenant: two jobs share hosts, among chatter and copies of weights, without switch paths.",
        tenancy.same_hosts,
        SHARED,
    ),
    "twins": Family(
        "Jobs differ: two of one layout run on the same hosts and two next to each other, without switch paths.",
        tenancy.twins,
        SHARED,
    ),
    "other_tenants": Family(
        "Everybody trains: inference, a shuffle, storage reads and checkpoints surround the jobs.",
        tenancy.other_tenants,
        SHARED,
    ),
    "damaged": Family(
        "Every record is seen once, in time: 5 % lost, 1 % doubled, clocks off by 1 ms and cut to microseconds.",
        collectors.damaged,
        DAMAGED,
    ),
    "damaged_more": Family("The same with 10 % lost; no bounds, but it should say so.", collectors.damaged_more),
    "experts": Family(
        "There is only DP and PP: experts' all-to-all has sizes that a router decides.",
        parallelisms.experts,
        OTHER_PARALLELISM,
    ),
    "context_parallel": Family(
        "A size that repeats is a pipeline's: so does a context-parallel ring's.",
        parallelisms.context_parallel,
        OTHER_PARALLELISM,
    ),
    "fully_sharded": Family(
        "A step has a quiet gap: FSDP gathers and reduces throughout.", parallelisms.fully_sharded, OTHER_PARALLELISM
    ),
    "trees": Family("Gradients go round rings: here along double binary trees.", parallelisms.trees, OTHER_PARALLELISM),
    "interleaved": Family(
        "Pipelines are lines, and gradients one burst a step: stages send in rings, parameters come in the forward.",
        parallelisms.interleaved,
        OTHER_PARALLELISM,
    ),
    "tied_embeddings": Family(
        "A pipeline's pair has one size: first and last stage also reduce their shared matrix.",
        parallelisms.tied_embeddings,
        OTHER_PARALLELISM,
    ),
    "relayed": Family(
        "A NIC is a GPU: ranks talk across rails, some through another GPU's NIC.",
        parallelisms.relayed,
        OTHER_PARALLELISM,
    ),
    "short_steps": Family("Steps are far apart: here they last 0.2 to 1 s.", courses.short_steps, COURSES, minutes=2),
    "long_steps": Family("A step is shorter than a window: here up to 90 s.", courses.long_steps, COURSES, minutes=10),
    "lifecycle": Family(
        "Jobs run throughout: they start, stop, come back with a replaced host, and grow.",
        courses.lifecycle,
        COURSES,
        minutes=4,
    ),
    "one_after_another": Family(
        "A host has one job in a window: three follow each other on the same hosts.",
        courses.one_after_another,
        COURSES,
        minutes=4,
    ),
    "uneven": Family(
        "Steps are alike: lengths of samples, costs, pauses and drift make them differ.", courses.uneven, COURSES
    ),
    "narrow": Family(
        "A job has DP and PP and many hosts: some have one of them, or two hosts, or one that nobody can see.",
        tenancy.narrow,
        (*_at_least(1, "exact"), *NOTHING_INVENTED),
    ),
}
"""By name, in the order of the page."""

TROUBLES: Mapping[str, Family] = {
    name: Family(sentence, content, CULPRITS, minutes=troubles.MINUTES, published=4, methods=("joint",))
    for name, (sentence, content) in troubles.TROUBLES.items()
} | {
    "healthy": Family(
        "Nothing is wrong with twelve jobs of 384 GPUs.",
        troubles.healthy,
        _at_most(0.01, "false_per_job_hour"),
        minutes=troubles.HEALTHY_MINUTES,
        published=14,  # of 1.8 job-hours each: a quarter of a hundred
        methods=("joint",),
    ),
    "healthy_damaged": Family(
        "Nor with twelve jobs before a collector that loses 5 % of the records.",
        troubles.healthy_damaged,
        _at_most(0.01, "false_per_job_hour"),
        minutes=troubles.HEALTHY_MINUTES,
        published=7,
        methods=("joint",),
    ),
    "healthy_platform": Family(
        "Nor with 44 jobs of 2,880 GPUs, eight of which exchange in every layer.",
        troubles.healthy_platform,
        _at_most(0.01, "false_per_job_hour"),
        minutes=troubles.HEALTHY_MINUTES,
        published=15,  # of 6.8 job-hours each: a hundred
        methods=("joint",),
    ),
}
"""Those of the page on diagnosis, likewise."""
