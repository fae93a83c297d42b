"""What a template makes of a group, and which of two templates is the step: layers and micro-batches are smaller ones.

What comes once in a larger template is left out by smaller ones: gradients that are reduced, or the embedding beside
the layers. Several steps have nothing that one has not; and the silences between them are no longer than those between
two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.robust import MAJORITY, Flags, Floats, Integers
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Traffic
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS

NEARLY_ALL = 0.75
"""Ratio that stands for nearly all: of the streams alike in a step, of the segments that are steps, of the bytes that
steps explain. Lost records leave more, foreign traffic and chance less."""

CLEAR_SIGMAS = 2.0
"""How many standard deviations of their logarithms the silences between steps must be above those inside them. In
training whose ranks all synchronise it is 2.1 to 12, least in pipelines with replicas and in rings of context; of
buckets, micro-batches and several steps together 0 to 2. Seen in the captures that the model was built with."""

CLOCKED_CLEAR_SIGMAS = 0.7
"""The same where the byte clock tells the steps, too: optimizer and first layer are computed between them, and bursts
of micro-batches and layers are nearer to each other. Steps of captured training have 0.9 to 2.3; micro-batches and hops
of a ring that the byte clock took for steps, since a minute held less than three of these, -0.3 to 0.5."""

EXPLAINED_BYTES = 0.95
"""Ratio of the bytes that a template must explain to be one of steps where its silences are not clear: layers of a
sharded model were seen to explain 0.6 to 0.92, its steps 0.96 to 1."""

LEAST_VARIANCE = 0.05
"""Least variance of the logarithm of silences: they differ by a fifth whatever causes them."""


SCATTER_AND_GATHER = 2
"""Parts of a step where the optimizer is sharded: gradients are scattered, and as many bytes of parameters gathered."""

SAME_TEMPLATE = 0.05
"""Ratio within which two templates are the same, and segments one template's."""


class Steps(NamedTuple):
    """What a template makes of a group.

    Attributes
    ----------
    template : bytes of each stream
    until_ns : shape (segments,), the middle of the silence after each
    ends_ns : shape (segments,), the last end in each
    like : shape (segments, streams), whether a stream moved in a segment what it does in the template
    share : shape (segments,), ratio of the template's bytes that were moved, all streams alike
    clarity : see `CLEAR_SIGMAS`; NaN where most segments have no silence inside
    explained : ratio of the streams' bytes that are in steps, all streams alike
    told : whether silences or bytes tell that these are the steps, and not parts of them
    ended : whether the optimizer's silence, or the end of the backward pass, tells where they end, too
    clarity_of_parts : the greatest of a smaller template that explains all, whether its segments are likely to be steps
        or not
    """

    template: Floats
    until_ns: Integers
    ends_ns: Integers
    like: Flags
    share: Floats
    clarity: float
    explained: float
    told: bool = False
    ended: bool = False
    clarity_of_parts: float = -np.inf

    @property
    def whole(self) -> Flags:
        """Say which segments are like the template."""
        whole: Flags = self.like.mean(axis=1) >= NEARLY_ALL
        return whole

    @property
    def period_ns(self) -> float:
        """Return the typical time from the end of one step to that of the next."""
        return float(np.median(np.diff(self.ends_ns[self.whole])))

    def is_likely(self) -> bool:
        """Say whether most segments are like the template, and explain most of what is sent. In the first and the last
        one the data may begin and end: these are no reason against it."""
        whole = self.whole
        asked = whole[int(not whole[0]) : whole.size - int(not whole[-1])]
        return bool(whole.sum() >= FEW_BURSTS and asked.mean() >= NEARLY_ALL and self.explained >= NEARLY_ALL)

    def turns_once(self, turn_ns: float) -> bool:
        """Say whether links turn once in each step, given how long they take from one turn to the next; NaN if none
        does."""
        return bool(abs(np.log(self.period_ns / turn_ns)) <= SAME_TEMPLATE)

    def is_clear(self) -> bool:
        """Say whether the template explains all that is sent, and the silences between segments are longer ones, more
        so than with a smaller template: two steps explain all that one does."""
        return bool(
            self.explained >= EXPLAINED_BYTES and self.clarity >= max(CLOCKED_CLEAR_SIGMAS, self.clarity_of_parts)
        )


def clarity_of(between: Floats, inside: Floats) -> float:
    """Return by how many standard deviations the logarithms of silences between steps are above those inside them."""
    return float((between.mean() - inside.mean()) / np.sqrt(between.var() + inside.var() + LEAST_VARIANCE))


def is_between_longer(larger: Steps, smaller: Steps) -> bool:
    """Say whether the silences between smaller segments are longer where larger ones end, too, and not by chance: those
    between several steps are as long as those between two.

    Chance has as many tries as there are smaller segments in a larger one: it may end after each of them, and was cut
    where the silences are longest.
    """
    silence = np.log(np.maximum(2.0 * (smaller.until_ns - smaller.ends_ns)[:-1], 1.0))
    both = np.isin(smaller.until_ns[:-1], larger.until_ns[:-1])
    if min(both.sum(), (~both).sum()) < FEW_BURSTS:
        return False
    ours, others = silence[both], silence[~both]
    error = sum((some.var() + LEAST_VARIANCE) / some.size for some in (ours, others))
    tries = larger.template.sum() / smaller.template.sum()
    sigmas = np.sqrt(CLEAR_SIGMAS**2 + 2 * np.log(tries))  # the tail of a normal distribution, for each of the tries
    return bool(ours.mean() - others.mean() >= sigmas * np.sqrt(error))


def is_several(larger: Steps, smaller: Steps, traffic: Traffic) -> bool:
    """Say whether a template is just several of a smaller one."""
    return bool(
        larger.template.sum() >= smaller.template.sum() / NEARLY_ALL
        and not has_more(larger, smaller, traffic)
        and not is_between_longer(larger, smaller)
    )


def times_of(larger: Steps, tried: list[Steps]) -> list[int]:
    """Return how many a template is of each of some smaller ones that explain as much, where it is a whole number of
    them.

    A single burst is left out: nothing tells whether it is a step or a layer.
    """
    least = larger.explained / (1 + SAME_TEMPLATE)
    smaller = [one for one in tried if one.explained >= least and not np.isnan(one.clarity)]
    times = [float(larger.template.sum() / one.template.sum()) for one in smaller]
    return [round(one) for one in times if round(one) > 1 and abs(np.log(one / round(one))) <= SAME_TEMPLATE]


def is_scatter_and_gather(step: Steps, part: Steps) -> bool:
    """Say whether a template is the two halves of a step, which a sharded optimizer keeps apart: the silences after
    every other half are longer than those after the others, and not by chance. Pauses after every other step look the
    same, and are rare."""
    twice = abs(np.log(step.template.sum() / part.template.sum() / SCATTER_AND_GATHER)) <= SAME_TEMPLATE
    return bool(twice and is_between_longer(step, part))


def has_same_pairs(steps: Steps, traffic: Traffic) -> bool:
    """Say whether most of what is sent is sent by pairs that take part in a template: a forward and a backward pass may
    move equal bytes of each sender, to others."""
    each = bytes_of_pairs(traffic, steps.until_ns)
    steady = takes_part(each[steps.whole]) if steps.whole.any() else np.zeros(each.shape[1], np.bool_)
    return bool(each[:, steady].sum() >= MAJORITY * each.sum())


def explained_between(steps: Steps, traffic: Traffic) -> float:
    """Return the ratio of the bytes from the first whole step to the last one that are in whole steps: where steps are
    long, the two that the data cut off are many, and so may be those that are slow and cannot be cut. Layers leave
    something in each step."""
    moved = np.diff(np.append(0.0, traffic.sent[np.searchsorted(traffic.starts, steps.until_ns)]))
    whole = np.flatnonzero(steps.whole)
    return float(moved[whole].sum() / moved[whole[0] : whole[-1] + 1].sum()) if whole.size else 0.0


def bytes_from_step_to_step(steps: Steps, traffic: Traffic) -> Floats:
    """Return what each stream moves from one whole step to the next, on the mean from the first to the last, shape
    (streams,). What lies between them counts. There must be such a step."""
    whole = np.flatnonzero(steps.whole)
    begins = np.append(0, np.searchsorted(traffic.starts, steps.until_ns))
    rows = slice(begins[whole[0]], begins[whole[-1] + 1])
    moved: Floats = np.bincount(traffic.stream[rows], traffic.sizes[rows], steps.template.size) / whole.size
    return moved


def bytes_of_pairs(traffic: Traffic, until: Integers) -> Floats:
    """Return what each pair moves in each of several segments, shape (segments, pairs)."""
    pairs, cell = int(traffic.pair.max()) + 1, np.searchsorted(until, traffic.starts)
    each = np.bincount(cell * pairs + traffic.pair, traffic.sizes, until.size * pairs).astype(np.float64)
    moved: Floats = each.reshape(until.size, pairs)
    return moved


def has_more(larger: Steps, smaller: Steps, traffic: Traffic) -> bool:
    """Say whether something comes once in a larger template that smaller ones leave out, in nearly all of its segments:
    then the smaller one is a part of it, such as a layer. Several steps have nothing that one has not."""
    ours, theirs = (np.searchsorted(one.until_ns, traffic.starts) for one in (smaller, larger))
    kept = np.bincount(theirs, traffic.sizes * smaller.whole[ours], larger.until_ns.size)
    share = kept / np.maximum(np.bincount(theirs, traffic.sizes, larger.until_ns.size), 1)
    return bool((share[larger.whole] < EXPLAINED_BYTES).mean() >= NEARLY_ALL)


def leaves_out(one: Steps, fitted: list[Steps], traffic: Traffic) -> bool:
    """Say whether a larger template has something that this one leaves out.

    It has to explain most of what is sent. How many segments are like it does not count: steps may have long silences
    on both sides of something small, and leave as many small segments between them.
    """
    explaining = (other for other in fitted if other.explained >= NEARLY_ALL)
    return any(other.template.sum() > one.template.sum() and has_more(other, one, traffic) for other in explaining)


def takes_part(segments: Floats) -> Flags:
    """Say which pairs move in most segments about what they typically do: shape (segments, pairs) -> (pairs,)."""
    typical = np.median(segments, axis=0)
    there = (segments >= MAJORITY * typical) & (segments <= typical / MAJORITY)
    part: Flags = (typical > 0) & (there.mean(axis=0) > MAJORITY)
    return part
