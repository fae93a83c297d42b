"""The silence clock: how many bytes of a group's traffic a step is, told by how long its silences are.

Parameters that are gathered layer by layer leave silences everywhere in a step, and none of them need stand out. But
those of the backward pass are longer than those of the forward pass, and after the bytes of a step they are as long
again. A layer comes again as well, so what is compared is the longest silence about each place, within the bursts of a
layer: between two layers of one pass it hardly differs. Pauses after some steps are longer than any of these silences,
and count as one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.numerics.robust import self_weighted_median
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Silences, Traffic
from llmprism_tasks.stages.step_division.groups.templates import byte_clock, passes
from llmprism_tasks.stages.step_division.kernels.regularity import MANY_BURSTS

PLACES_PER_BURST = 4
"""Places at which silences are looked at, for each burst of the typical size."""

BURSTS_AROUND = 2
"""Bursts of a typical size about each place among which the longest silence is looked for: those of a layer, whose
parameters are gathered and whose gradients are reduced."""

LEAST_CORRELATION = 0.3
"""Least correlation of silences that lie a step, or two, apart. With steps of 3 to 32 layers, jitter up to 0.35 and a
factor of sigma 0.35 on each step it is 0.34 to 1; of silences of any length, after 60 or 240 equal bursts, at most
0.26."""

PAUSES_SHARE = 0.02
"""Ratio of the silences that may be pauses: of a step of eight silences one follows every sixth."""

ONE_LENGTH = 0.02
"""Least deviation of the logarithm of silences: what differs by less is of one length, as far as clocks and steps of
milliseconds go. Of steps of sharded parameters it is 0.04 at least, where all silences are as long as the collector
shows."""


class Again(NamedTuple):
    """After how many bytes silences are as long again, and their correlation."""

    step: float
    correlation: float


def step_bytes(traffic: Traffic, silences: Silences) -> Again | None:
    """Return how many bytes of a group's traffic come between silences that are as long again; None where none do.

    The correlation falls below 0 before it comes back: what is alike up to there is one pass.
    """
    if silences.at.size < MANY_BURSTS:
        return None
    sent = traffic.sent
    at, total = sent[silences.at], sent[-1]
    burst = self_weighted_median(np.diff(np.concatenate([[0.0], at, [total]])))
    places = min(int(PLACES_PER_BURST * total / burst), byte_clock.PORTIONS)
    about = passes.longest_silences(
        without_pauses(silences), at, (np.arange(places) + 0.5) * total / places, BURSTS_AROUND * burst
    )
    if about.std() < ONE_LENGTH:
        return None
    correlation = byte_clock.autocorrelation((about - about.mean())[:, np.newaxis])
    lag = np.arange(1, places // 4)
    again = np.append(0.0, (correlation[lag] + correlation[2 * lag[:, np.newaxis] + (-1, 0, 1)].max(axis=1)) / 2)
    below = np.flatnonzero(correlation[: again.size] <= 0)
    if not below.size:
        return None
    again[: below[0]] = 0.0
    peaks = 1 + np.flatnonzero((again[1:-1] >= again[:-2]) & (again[1:-1] >= again[2:]))
    peaks = peaks[again[peaks] >= max(byte_clock.STEP_OVER_BEST * again.max(), LEAST_CORRELATION)]
    if not peaks.size:
        return None
    exact = byte_clock.refine_period(correlation, int(peaks[0]))
    return Again(exact * total / places, float(again[peaks[0]]))


def without_pauses(silences: Silences, share: float = PAUSES_SHARE) -> Silences:
    """Return silences, none of them longer than all but pauses are.

    Parameters
    ----------
    share : ratio of the silences that may be pauses
    """
    return silences._replace(length=np.minimum(silences.length, np.quantile(silences.length, 1 - share)))
