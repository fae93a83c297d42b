"""Passes: where the backward pass ends in a job that sends throughout its steps, by how long its silences are.

Parameters that are gathered layer by layer leave silences everywhere in a step, and its longest one may be that between
forward and backward pass. But the backward pass computes twice as much for each layer as the forward pass does. So the
silences of a step are of two lengths: short ones, or none that a collector shows, and then long ones; and the step ends
where they become short again. The last gradients are reduced alone, for no layer is left to be gathered; with the first
gathers of the next step nobody waits for anything. So of the silences around that place it is the one after which most
is sent at once, over what was sent before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.robust import MAJORITY, THOUSANDFOLD_NATS, Floats, Integers, self_weighted_median
from llmprism_tasks.stages.step_division.groups.balance import MAIN_LINK_BYTES
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Silences, Traffic
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS

PLACES_PER_STEP = 96
"""Places of a step, by its bytes, at which silences are looked at: several for each layer that a pass is told by."""

SHORTEST_PASS = 0.2
"""Ratio of a step that a pass takes at least. Of the bytes, a third are gathered in the forward pass, or a quarter
where gradients are twice as large. Of the time, it takes a third. So where one silence is longer, or half of the bytes
are sent in bursts that are larger, one of the passes sends nothing, and nothing is told."""


class Backward(NamedTuple):
    """Where the backward pass ends.

    Attributes
    ----------
    ratio : of a step's bytes, from where most steps were cut
    places : shape (steps,), bytes that the group had sent until then in each step that moves what the others do
    moved : whether any of them was cut farther from there than half of a pass, or most of them than that in time
    burst : ratio of a step's bytes that are sent between two silences, typically
    """

    ratio: float
    places: Floats
    moved: bool
    burst: float

    def is_near(self, place: float) -> bool:
        """Say whether a ratio of a step's bytes, from where most steps were cut, is no more than a burst from there."""
        return bool(_distance(place, self.ratio) <= self.burst)


def end_of_backward(
    traffic: Traffic,
    silences: Silences,
    ends: Integers,
    *,
    same_bytes: float,
    jitter: float,
    parts: int = 1,
    by_bursts: bool = False,
) -> Backward | None:
    """Return where the backward pass ends; None if nothing tells.

    Parameters
    ----------
    ends : when the steps ended that were found, ns
    same_bytes : ratio by which the bytes of steps that are alike may differ
    jitter : variance of the logarithm of silences that are of one length
    parts : into how many smaller segments a smaller template cuts a step. Where silences are alike in all of these, the
        segments are steps, not layers of a forward and a backward pass
    by_bursts : whether bursts tell as well, where they are known to be of layers: in the backward pass those are larger
    """
    sent = traffic.sent
    first = np.searchsorted(traffic.starts, ends, side="right")
    step = np.diff(sent[first])
    alike = np.flatnonzero(np.abs(step - np.median(step)) <= same_bytes * np.median(step))
    length = traffic.starts[silences.at] - traffic.latest[silences.at - 1]
    if alike.size < FEW_BURSTS or not _has_only_short_silences(silences.at, length, first, ends, alike):
        return None
    at = sent[silences.at]
    bursts = np.diff(np.concatenate([[0.0], at, sent[-1:]]))
    burst = self_weighted_median(bursts)
    if burst >= SHORTEST_PASS * np.median(step):
        return None
    size, count = step[alike, np.newaxis], np.median(np.diff(np.searchsorted(silences.at, first))[alike])
    cycle = (np.arange(PLACES_PER_STEP) + 0.5) / PLACES_PER_STEP * size
    begins = sent[first][alike, np.newaxis]
    profiles = longest_silences(silences, at, begins + cycle, burst)
    turn = _turns(profiles, count, jitter)[:, np.newaxis]
    if turn.any():
        begins = begins + turn / PLACES_PER_STEP * size
        profiles = longest_silences(silences, at, begins + cycle, burst)
    # Who comes first sends what fits into buffers, and the rest when all are there: that ends nothing.
    at = at[bursts[:-1] >= MAIN_LINK_BYTES * burst]
    bursts = np.diff(np.concatenate([[0.0], at, sent[-1:]]))
    if by_bursts:
        profiles = profiles + np.log(bursts[np.searchsorted(at, begins + cycle)] / burst)
    edge = _falling_edge(np.median(profiles, axis=0), count, jitter, parts)
    if edge is None:
        return None
    grows = np.log(np.maximum(bursts[1:], 1.0) / np.maximum(bursts[:-1], 1.0))
    around = (at - begins) / size - edge
    near = np.abs(around) <= burst / np.median(step)
    told = near.any(axis=1)
    if not told.any():
        return None
    most = np.where(near, grows, -np.inf)[told].argmax(axis=1)
    ratio = float(np.median(around[told, most]) + edge) % 1.0
    off = _distance(ratio, -turn / PLACES_PER_STEP)
    places = (begins + ratio * size)[:, 0]
    next_ns = traffic.starts[np.minimum(np.searchsorted(sent, places), traffic.starts.size - 1)]
    later = _distance((next_ns - traffic.starts[first[alike]]) / np.median(np.diff(ends)), 0.0)
    moved = bool(max(np.max(off), np.median(later)) >= SHORTEST_PASS / 2)
    return Backward(ratio, places, moved, float(burst / np.median(step)))


def _distance(place: float, other: float | Floats) -> float | Floats:
    """Return how far two places of a cycle are apart, as ratios of it."""
    distance: float | Floats = np.abs((place - other + 0.5) % 1.0 - 0.5)
    return distance


def _turns(profiles: Floats, count: float, jitter: float) -> Integers:
    """Return by how many places each step was cut before the place of the cycle where most were cut, less than 0 for
    after it: 0 where it is not sure.

    Parameters
    ----------
    profiles : shape (steps, places), the longest silence about each place of a cycle
    count : how many silences a step has
    """
    places = profiles.shape[1]
    later = (np.arange(places)[:, np.newaxis] - np.arange(places)) % places
    typical = np.median(profiles, axis=0)
    off = ((profiles[:, np.newaxis, :] - typical[later.T]) ** 2).mean(axis=2)
    best = off.argmin(axis=1)
    gain = count / 2 * np.log((off[:, 0] + jitter) / (off.min(axis=1) + jitter))
    turn = np.where(gain >= THOUSANDFOLD_NATS, best, 0)
    signed: Integers = np.where(turn > places // 2, turn - places, turn)
    return signed


def _has_only_short_silences(at: Integers, length: Integers, first: Integers, ends: Integers, alike: Integers) -> bool:
    """Return whether most steps have no silence that is as long as a pass, and some silences."""
    step = np.searchsorted(first, at, side="left") - 1
    longest = np.zeros(ends.size, np.int64)
    np.maximum.at(longest, np.clip(step, 0, None), np.where(step >= 0, length, 0))
    ratio = longest[:-1] / np.diff(ends)
    return bool(0 < np.median(ratio[alike]) < SHORTEST_PASS)


def longest_silences(silences: Silences, at: Floats, places: Floats, burst: float) -> Floats:
    """Return the longest of the silences about some places, which are no farther than half a burst; 0 for none. Bursts
    of one pass may be larger than those of the other: if one is less than two, the nearest silence is about it.

    Parameters
    ----------
    at, places : bytes sent before each silence, ascending, and up to each place
    """
    low, high = (np.searchsorted(at, places + side * burst / 2) for side in (-1, 1))
    longest = np.zeros(places.shape)
    for off in range(int((high - low).max(initial=0))):
        there = low + off < high
        longest[there] = np.maximum(longest[there], silences.length[(low + off)[there]])
    after = np.clip(np.searchsorted(at, places), 1, at.size - 1)
    nearest = after - (places - at[after - 1] < at[after] - places)
    there = (low == high) & (at[after] - at[after - 1] <= 2 * burst)
    longest[there] = silences.length[nearest[there]]
    return longest


def _falling_edge(profile: Floats, count: float, jitter: float, parts: int) -> float | None:
    """Return at which ratio of a cycle a profile falls from the higher of two levels to the lower; None where it is not
    sure that it has two, or where its parts are more like each other than it is like two levels. Most of it is on the
    higher one: the backward pass gathers what the forward pass does, and reduces gradients besides.

    Parameters
    ----------
    profile : shape (places,), around the cycle
    count : how many observations it is made of
    parts : as `end_of_backward` takes it
    """
    places, least = profile.size, int(np.ceil(SHORTEST_PASS * profile.size))
    sums = np.append(0.0, np.cumsum(np.concatenate([profile, profile])))
    edges, lengths = np.arange(places)[:, np.newaxis], np.arange(round(MAJORITY * places), places - least + 1)
    above = sums[edges + places] - sums[edges + places - lengths]
    below = profile.sum() - above
    within = (profile @ profile - above**2 / lengths - below**2 / (places - lengths)) / places
    two = np.where(above / lengths > below / (places - lengths), within, np.inf)
    edge, best = np.unravel_index(int(two.argmin()), two.shape)
    if not np.isfinite(two[edge, best]):
        return None
    cycle = np.roll(profile, -int(edge))
    levels = cycle[: places - lengths[best]], cycle[places - lengths[best] :]
    # Single silences are of any length, as the optimizer's is: they count by how far off they are, not by its square.
    off = sum(float(np.abs(level - np.median(level)).sum()) for level in levels) / places
    alone = float(np.abs(profile - np.median(profile)).mean())
    part = np.median([np.roll(profile, -round(one * places / parts)) for one in range(parts)], axis=0)
    if parts > 1 and np.abs(profile - part).mean() <= off:
        return None
    sure = count * np.log((alone + np.sqrt(jitter)) / (off + np.sqrt(jitter))) >= THOUSANDFOLD_NATS
    return int(edge) / places if sure else None
