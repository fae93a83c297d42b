"""Accumulation: how many micro-batches a step is where each of them gathers parameters and reduces gradients.

All micro-batches of a step move the same bytes, so nothing that is sent tells them from steps. But between two of them
nobody waits: the first layers of the next one are gathered while the last gradients are still reduced. At the end of a
step everybody does: for the gradients, and then for the optimizer. So there is a place among the bytes of a micro-batch
at which all NICs are silent in every k-th of them, and not in the others; these are steps of k micro-batches. Where
everyone is silent there after each of them, they are steps. A silence that is longer than those inside is a pause
(a checkpoint, an evaluation), or it tells steps by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.robust import Flags, Floats, Integers
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Silences, Traffic
from llmprism_tasks.stages.step_division.groups.templates.passes import PLACES_PER_STEP
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS

LIKELIER_NATS = 4.6
"""Nats by which silences must be likelier to come once in a step than by chance, at any place and in any number of
micro-batches that is asked: a hundred times."""

MOST_BATCHES = 64
"""Micro-batches of a step at most: more of them are hardly ever accumulated, and a minute shows few such steps."""

PLACES_BESIDE = (-1, 0, 1)
"""Places beside each at which its silence may be, for records of queue pairs do not begin at once."""


class Accumulated(NamedTuple):
    """How steps are made of micro-batches.

    Attributes
    ----------
    batches : of a step
    first : shape (segments,), whether each is whole, and the micro-batch of a step in which the silence is
    place : ratio of a micro-batch's bytes at which the silence is
    """

    batches: int
    first: Flags
    place: float


def accumulated(
    traffic: Traffic, silences: Silences, until: Integers, alike: Flags, *, clear: float, jitter: float
) -> Accumulated | None:
    """Return how many micro-batches a step is; None where no silence comes once in several of them.

    Parameters
    ----------
    until : shape (segments,), when each micro-batch ends, ns
    alike : shape (segments,), whether each moves what the others do
    clear : standard deviations by which the silence must stand out
    jitter : variance of the logarithm of silences that are of one length
    """
    if not alike.any():
        return None
    longest, number = _longest_silences(traffic, silences, until), _micro_batch_numbers(traffic, until, alike)
    usual = np.median(longest[alike].max(axis=1))
    most, tried, found = 0.0, 1, (1, 0, 0)
    for batches in range(2, min(int(number[-1]) // FEW_BURSTS, MOST_BATCHES) + 1):
        tried += batches * PLACES_PER_STEP // len(PLACES_BESIDE)
        ours, z, gain = _compare_silences(longest[alike], number[alike] % batches, batches, jitter)
        gain[(z < clear) | (ours > usual)] = 0.0
        if gain.max() > most:
            most, best = float(gain.max()), divmod(int(gain.argmax()), PLACES_PER_STEP)
            found = (batches, *best)
    batches, turn, place = found
    first = (number % batches == turn) & alike
    if most == 0.0 or _nats_above_chance(longest[:, place], first, ~first & alike, jitter) <= LIKELIER_NATS + np.log(
        tried
    ):
        return None
    return Accumulated(batches, first, (place + 0.5) / PLACES_PER_STEP)


def _nats_above_chance(lengths: Floats, ours: Flags, others: Flags, jitter: float) -> float:
    """Return by how many nats it is likelier that silences of some micro-batches are as long as they are than that
    those of as many others would be by chance: lengths of chance are not normal, so they are counted."""
    own = lengths[ours]
    least = own.mean() - np.sqrt(own.var() + jitter)
    share, rate = (own >= least).mean(), ((lengths[others] >= least).sum() + 1) / (others.sum() + 1)
    return float(own.size * share * np.log(share / rate))


def _micro_batch_numbers(traffic: Traffic, until: Integers, alike: Flags) -> Integers:
    """Return the number of each micro-batch by the bytes that it moves: two that were not cut apart count as two."""
    sent = traffic.sent
    moved = np.diff(sent[np.append(0, np.searchsorted(traffic.starts, until))])
    return np.cumsum(np.round(moved / np.median(moved[alike]))).astype(np.int64)


def _longest_silences(traffic: Traffic, silences: Silences, until: Integers) -> Floats:
    """Return the longest silence about each place of each micro-batch, 0 for none, shape (segments, places)."""
    sent = traffic.sent
    begins = np.append(0, np.searchsorted(traffic.starts, until))
    within = np.searchsorted(begins, silences.at, side="right") - 1
    within = np.minimum(within, until.size - 1)
    low, high = sent[begins[within]], sent[begins[within + 1]]
    place = np.floor((sent[silences.at] - low) / np.maximum(high - low, 1.0) * PLACES_PER_STEP).astype(np.int64)
    longest = np.zeros((until.size, PLACES_PER_STEP))
    for aside in PLACES_BESIDE:
        beside = place + aside
        there = (beside >= 0) & (beside < PLACES_PER_STEP)
        np.maximum.at(longest, (within[there], beside[there]), silences.length[there])
    return longest


def _compare_silences(known: Floats, turn: Integers, batches: int, jitter: float) -> tuple[Floats, Floats, Floats]:
    """Compare the silences of every k-th micro-batch with those of the others, from each of the first k on, at each
    place: shape (k, places).

    Parameters
    ----------
    known : shape (micro-batches, places)
    turn : which of k each is, from 0

    Returns
    -------
    how long the silences are; by how many standard deviations they stand above the others, 0 for too few; and by how
    many nats they are likelier to be of two lengths than of one
    """
    count = np.bincount(turn, minlength=batches)
    sums, squares = (np.zeros((batches, PLACES_PER_STEP)) for _ in range(2))
    np.add.at(sums, turn, known)
    np.add.at(squares, turn, known**2)
    here, rest = (np.maximum(some, 1)[:, np.newaxis] for some in (count, count.sum() - count))
    ours, others = sums / here, (sums.sum(axis=0) - sums) / rest
    spread = [squares / here - ours**2, (squares.sum(axis=0) - squares) / rest - others**2]
    ours_vary, others_vary = (np.maximum(some, 0.0) for some in spread)
    part = here / (here + rest)
    within = part * ours_vary + (1 - part) * others_vary + jitter
    gain = count.sum() / 2 * np.log1p(part * (1 - part) * (ours - others) ** 2 / within)
    z = (ours - others) / np.sqrt(ours_vary + others_vary + jitter)
    z[count < FEW_BURSTS] = 0.0
    return ours, z, gain
