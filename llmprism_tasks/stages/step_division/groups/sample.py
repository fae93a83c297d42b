"""What is looked at of a group: some of its senders, with what never pauses and without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.robust import MAJORITY, Flags, Integers
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Times, Traffic, pausing, pooled
from llmprism_tasks.stages.step_division.groups.templates.levels import Steps

SAMPLED_PAIRS = 32
"""Pairs of a group that are looked at, as far as `LEAST_SENDERS` senders have no more: they all tell of the same
steps."""

LEAST_SENDERS = 8
"""Senders that are looked at, at least: one or two may be disturbed."""


class Sample(NamedTuple):
    """What is looked at of a group.

    Attributes
    ----------
    traffic : of some senders
    pairs : shape (pairs of the group,), whether these senders have it
    foreign : shape (pairs of these senders,), whether most of it was left out, for it never pauses
    """

    traffic: Traffic
    pairs: Flags
    foreign: Flags


def samples(times: Times, offsets: Integers, place: Integers, sender: Integers) -> list[Sample]:
    """Return what is looked at of a group: its traffic without what never pauses and, if that is less, all of it.

    Parameters
    ----------
    times, offsets : as `pooled_traffic.pooled` takes them
    place, sender : shape (pairs,), of the group's pairs
    """
    senders = int(sender.max()) + 1
    looked_at = min(senders, max(SAMPLED_PAIRS * senders // place.size, LEAST_SENDERS))
    chosen = np.isin(sender, np.linspace(0, senders - 1, looked_at).astype(np.int64))
    traffic = pooled(times, offsets, place[chosen], sender[chosen])
    pauses = pausing(traffic)
    foreign = np.bincount(traffic.pair, traffic.sizes * pauses) < MAJORITY * np.bincount(traffic.pair, traffic.sizes)
    found = [Sample(traffic.of(pauses), chosen, foreign)] if pauses.any() else []
    return found if pauses.all() else [*found, Sample(traffic, chosen, np.zeros_like(foreign))]


def likeliest(asked: list[Sample], find: Callable[[Traffic], Steps | None]) -> tuple[Sample | None, Steps | None]:
    """Return the steps that are told, or whose ends are, and explain most bytes, or else the first ones; and the sample
    that shows them.

    What never pauses may be a copy of files, which hides the steps, or the steps of a ring that has become slow.
    """
    found = [(sample, find(sample.traffic)) for sample in asked]

    def likelihood(one: tuple[Sample, Steps | None]) -> tuple[bool, float]:
        steps = one[1]
        if steps is None:
            return False, 0.0
        return True, float((steps.told or steps.ended) * steps.whole.sum() * steps.template.sum())

    return max(found, key=likelihood, default=(None, None))
