"""The fit of templates: a group is cut at silences so that most segments move what a template says.

Templates are proposed by cutting at silences of different lengths, and each is made better by the segments that it
finds. The best cuts are a dynamic program (`kernels/template_cuts.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.contract.windows import NANOSECONDS_PER_MS
from llmprism_tasks.numerics.robust import MAJORITY, Flags, Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Silences, Traffic
from llmprism_tasks.stages.step_division.groups.templates.levels import (
    CLEAR_SIGMAS,
    NEARLY_ALL,
    SAME_TEMPLATE,
    Steps,
    bytes_from_step_to_step,
    clarity_of,
    explained_between,
)
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS
from llmprism_tasks.stages.step_division.kernels.template_cuts import best_cuts

SILENCES_PER_STEP = 8
"""Silences of each step that cuts are chosen from, the longest ones."""

CLOCKED_SILENCES_PER_STEP = 32
"""The same where the byte clock tells the steps: a step has fewer layers or micro-batches, and it may begin after none
of its longest silences."""

SILENCE_LEVELS = 24
"""Lengths of silences at which segments are looked at for templates, each a few less than the one before."""

MOST_TEMPLATES = 12
"""Templates that are tried, those that explain most first."""

MOST_STRETCHES = 1024
"""Stretches of a group's traffic that are asked what is moved in a step."""

REFINEMENTS = 2
"""Times that a template is made better."""

FOREVER = np.iinfo(np.int64).max
"""Up to when the last segment goes."""


class Fitting(NamedTuple):
    """What templates are fitted to: the traffic of a group, the silences at which it can be cut, and the ratio by which
    the bytes of steps that are alike may differ."""

    traffic: Traffic
    silences: Silences
    byte_tolerance: float

    @classmethod
    def of(cls, traffic: Traffic, settings: RhythmSettings) -> Fitting:
        """Return the fitting of templates to the traffic of a group."""
        return cls(traffic, traffic.silences(settings.shortest_quiet_ms * NANOSECONDS_PER_MS), settings.byte_tolerance)

    def proposed(self) -> list[Floats]:
        """Return the bytes of each stream in segments that come again between silences of some length, those first that
        make up most of all bytes; no two of them the same, and no more than are tried."""
        moved = self.traffic.moved(self.silences.at)
        of_all = moved.sum(axis=1)
        longest, found = np.argsort(-self.silences.length, kind="stable"), []
        for count in np.unique(np.geomspace(FEW_BURSTS, longest.size, SILENCE_LEVELS).astype(np.int64)):
            cuts = np.concatenate([[0], np.sort(longest[:count]) + 1, [len(moved) - 1]])
            in_all = np.diff(of_all[cuts])
            size = np.floor(np.log(in_all) / SAME_TEMPLATE).astype(np.int64)
            size -= size.min()
            # Bytes of the segments of each size and of the sizes beside it; a size that no segment has does not count.
            carried = np.convolve(np.bincount(size, in_all), (1, 1, 1))[1:-1]
            carried[np.bincount(size) == 0] = 0
            one = int(np.argmax(carried))
            alike = np.flatnonzero(np.abs(size - one) <= 1)
            if alike.size >= 2:
                segments = moved[cuts[alike + 1]] - moved[cuts[alike]]
                found.append((carried[one], np.median(segments, axis=0)))
        kept: list[Floats] = []
        for _, template in sorted(found, key=lambda one: -one[0]):
            if template.any() and all(abs(np.log(template.sum() / other.sum())) > SAME_TEMPLATE for other in kept):
                kept.append(template)
        return kept[:MOST_TEMPLATES]

    def template_of(self, step: float) -> Floats:
        """Return what each stream typically moves while all of them move so many bytes."""
        sent, moved = self.traffic.sent, self.traffic.moved(np.arange(1, self.traffic.stream.size))
        begins = np.flatnonzero(sent <= sent[-1] - step)
        begins = begins[np.linspace(0, begins.size - 1, min(begins.size, MOST_STRETCHES)).astype(np.int64)]
        typical: Floats = np.median(moved[np.searchsorted(sent, sent[begins] + step)] - moved[begins], axis=0)
        return typical

    def fit(self, template: Floats, *, clocked: bool = False) -> Steps | None:
        """Return what a template makes of the group, the segments of which have made it better; None where there are
        none.

        A template that lacks a burst cuts each step a burst sooner than the one before, and a few bursts are left over
        after several of them. What is moved from step to step lacks none. So that is tried as well, and the one that
        leaves less over is taken. Cuts that drift are at silences like all others. Where those between segments stand
        out, what is left over is a part of the step by itself, and only halves of the step, cut anywhere, lack none.

        Parameters
        ----------
        template : shape (streams,), bytes
        clocked : whether a clock says how many bytes a step is. Then there are more silences to choose from, and a cut
            at one of typical length is worth nothing: silences between layers last as long as those between steps, and
            where layers take long, a cut after each would be worth more than the segments that it spoils
        """
        found = self._refine(template, clocked=clocked)
        if found is None or found.explained < NEARLY_ALL or found.clarity >= CLEAR_SIGMAS:
            return found
        if explained_between(found, self.traffic) == 1.0:
            return found
        other = self._refine(bytes_from_step_to_step(found, self.traffic), clocked=clocked)
        if other is None or not other.is_likely():
            return found
        return max(found, other, key=lambda one: (one.is_likely(), explained_between(one, self.traffic)))

    def _refine(self, template: Floats, *, clocked: bool) -> Steps | None:
        """Return what a template makes of the group, the segments of which have made it better."""
        per_step = CLOCKED_SILENCES_PER_STEP if clocked else SILENCES_PER_STEP
        for _ in range(REFINEMENTS):
            if not template.any():
                return None
            # Else cuts at long silences would be worth more than the segments unlike the template that they make cost.
            longest = self.longest(per_step, template)
            worth = longest.length - np.median(longest.length) if clocked else longest.length
            cuts, segments = self._cuts(longest, worth, template)
            whole = self._are_like(segments, template)[:, template > 0].mean(axis=1) >= NEARLY_ALL
            if whole.sum() < FEW_BURSTS:
                return None
            template = np.median(segments[whole], axis=0)
        return self._steps(longest, cuts, segments, template)

    def longest(self, per_step: int, template: Floats) -> Silences:
        """Return the longest silences, so many of the bytes of each step.

        While a link is slow, all silences are short: the steps before would have all of the longest ones.
        """
        step = template.sum()
        steps = max(int(self.traffic.sizes.sum() / step), 1)
        portion = (self.traffic.sent[self.silences.at] / step).astype(np.int64)
        return self.silences.longest_of_each(portion, per_step * max(SILENCES_PER_STEP // steps, 1))

    def cut(self, silences: Silences, worth: Floats, template: Floats) -> Steps | None:
        """Return the steps of the group, cut at silences; None where hardly any segment is like the template.

        Parameters
        ----------
        worth : shape (silences,), of a cut at each, the logarithm of some time
        """
        steps = self._steps(silences, *self._cuts(silences, worth, template), template)
        return steps if steps.whole.sum() >= FEW_BURSTS else None

    def _cuts(self, silences: Silences, worth: Floats, template: Floats) -> tuple[Integers, Floats]:
        """Return the best cuts, and what each stream moves between them, shape (segments, streams)."""
        moved, there = self.traffic.moved(silences.at), template > 0
        cuts = best_cuts(
            *(moved[:, there] / template[there], np.concatenate([[0.0], worth, [0.0]])),
            tolerance=self.byte_tolerance,
            most=1 - NEARLY_ALL,
        )
        segments: Floats = np.diff(moved[cuts], axis=0)
        return cuts, segments

    def _are_like(self, segments: Floats, template: Floats) -> Flags:
        """Say whether each stream moves in each segment what it does in the template, shape (segments, streams)."""
        like: Flags = (np.abs(segments - template) <= self.byte_tolerance * template) & (template > 0)
        return like

    def _steps(self, silences: Silences, cuts: Integers, segments: Floats, template: Floats) -> Steps:
        """Return what a template makes of the group, given what each stream moves in each segment."""
        traffic, total = self.traffic, self.traffic.moved(silences.at[:0])[-1]
        there, like = template > 0, self._are_like(segments, template)
        share = np.minimum(segments[:, there] / template[there], 1.0).mean(axis=1)
        at, inner = cuts[1:-1] - 1, np.ones(silences.at.size, np.bool_)
        inner[at] = False
        between, inside = silences.length[at], silences.length[inner]
        clarity = np.nan
        if inside.size >= MAJORITY * between.size > 0:
            clarity = clarity_of(between, inside)
        begins = silences.at[at]
        ends = np.append(traffic.latest[begins - 1], traffic.latest[-1])
        until = np.append((ends[:-1] + traffic.starts[begins]) // 2, FOREVER)
        whole = (like.mean(axis=1) >= NEARLY_ALL).sum()
        explained = float((np.minimum(whole * template, total) / total).mean())
        return Steps(template, until, ends, like, share, clarity, explained)
