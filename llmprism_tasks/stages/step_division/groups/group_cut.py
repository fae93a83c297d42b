"""The steps of one group, cut out of what its pairs move: by a template, or where its pipelines are empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics import asof, grouped_sort
from llmprism_tasks.numerics.robust import MAJORITY, Floats, Integers
from llmprism_tasks.settings import RhythmSettings
from llmprism_tasks.stages.step_division.groups import balance
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Silences, Times, Traffic
from llmprism_tasks.stages.step_division.groups.templates.fit import FOREVER
from llmprism_tasks.stages.step_division.groups.templates.levels import NEARLY_ALL, SAME_TEMPLATE, Steps


class Cut(NamedTuple):
    """The steps of a group.

    Attributes
    ----------
    until_ns, number : shape (segments,): up to when each goes, and which step it is, -1 for none
    period_ns, clarity : of the steps; `templates/`
    alike : shape (pairs, steps), bytes of steps that are like others
    """

    until_ns: Integers
    number: Integers
    period_ns: float
    clarity: float
    alike: Floats


def steps_by_template(steps: Steps, each: Floats, back: Integers, settings: RhythmSettings) -> Cut | None:
    """Return the steps that a template makes of a group; None where bytes come back later than in the segment that
    they were sent in, for then segments are parts of steps.

    Parameters
    ----------
    each : shape (pairs, segments), bytes
    back : of each pair, as `balance.answers` returns
    """
    step = steps.share >= MAJORITY
    step[-1] &= steps.share[-1] >= settings.least_step  # the rest of it may be still to come
    if balance.unreturned(_bytes_per_step(each, np.flatnonzero(step)), back) > balance.UNRETURNED:
        return None
    number = np.where(step, np.cumsum(step) - 1, -1)
    return Cut(steps.until_ns, number, steps.period_ns, steps.clarity, each[:, steps.whole])


def steps_between_empty_pipelines(
    traffic: Traffic, silences: Silences, moved_until: Callable[[Integers], Floats], back: Integers
) -> Cut | None:
    """Return the steps of a group whose pipelines are empty between them; None without two such moments.

    Parameters
    ----------
    moved_until : given the times up to which segments go, what each pair moves in each, shape (pairs, segments)
    back : of each pair, as `balance.answers` returns
    """
    if not silences.at.size:
        return None
    last_ends = np.append(traffic.latest[silences.at - 1], traffic.latest[-1])
    until = np.append((last_ends[:-1] + traffic.starts[silences.at]) // 2, FOREVER)
    each = moved_until(until)
    ends = balance.ends_of_steps(each, back)
    if ends.size < 2:
        return None
    of_steps = _bytes_per_step(each, ends)
    in_all = of_steps.sum(axis=0)
    alike = np.abs(in_all / np.median(in_all) - 1) <= SAME_TEMPLATE
    if alike.mean() < NEARLY_ALL:
        return None
    segment = np.arange(until.size)
    number = np.where(segment <= ends[-1], np.searchsorted(ends, segment), -1)
    return Cut(until, number, float(np.median(np.diff(last_ends[ends]))), 0.0, of_steps[:, alike])


def bytes_per_segment(times: Times, offsets: Integers, place: Integers, until_ns: Integers) -> Floats:
    """Return what some pairs move in each of several segments, given up to when they go: shape (pairs, segments)."""
    segments = until_ns.size
    rows, within = grouped_sort.spread(offsets, place)
    low, high = np.zeros(place.size, np.int64), np.full(place.size, segments)
    segment = asof.first_from(times[0][rows], within, until_ns, low, high)
    cell = np.repeat(np.arange(place.size), np.diff(within)) * segments + segment
    each: Floats = np.bincount(cell, times[2][rows], place.size * segments).astype(np.float64)
    return each.reshape(place.size, segments)


def _bytes_per_step(each: Floats, ends: Integers) -> Floats:
    """Return what is moved in each step but the first, shape (pairs, steps), given the last segment of each step."""
    moved = np.cumsum(each, axis=1)[:, ends]
    steps: Floats = np.diff(moved, axis=1)
    return steps
