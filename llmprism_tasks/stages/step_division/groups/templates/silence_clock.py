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

from llmprism_tasks.numerics.robust import Floats, self_weighted_median
from llmprism_tasks.stages.step_division.groups.pooled_traffic import Silences, Traffic
from llmprism_tasks.stages.step_division.groups.templates import byte_clock, passes
from llmprism_tasks.stages.step_division.kernels.regularity import FEW_BURSTS, MANY_BURSTS

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
    even = without_pauses(silences)

    def correlated(portion: float) -> Floats | None:
        """Return how alike silences are that lie so many portions apart; None where all are of one length."""
        middles = (np.arange(int(total / portion * (1 + 1e-9))) + 0.5) * np.float64(portion)
        about = passes.longest_silences(even, at, middles, BURSTS_AROUND * burst)
        return None if about.std() < ONE_LENGTH else byte_clock.autocorrelation((about - about.mean())[:, np.newaxis])

    portion = total / places
    correlation = correlated(portion)
    if correlation is None:
        return None
    lag = np.arange(1, places // 4)
    again = np.append(0.0, (correlation[lag] + correlation[2 * lag[:, np.newaxis] + (-1, 0, 1)].max(axis=1)) / 2)
    below = np.flatnonzero(correlation[: again.size] <= 0)
    if not below.size:
        return None
    again[: below[0]] = 0.0
    peaks = 1 + np.flatnonzero((again[1:-1] >= again[:-2]) & (again[1:-1] >= again[2:]))
    for peak in peaks[again[peaks] >= max(byte_clock.STEP_OVER_BEST * again.max(), LEAST_CORRELATION)]:
        step = portion * byte_clock.refine_period(correlation, int(peak))
        # A whole number of portions: else one of several steps fits better.
        whole = correlated(step / int(peak))
        if whole is not None and not _is_part(whole[int(peak) : places // 2 : int(peak)]):
            return Again(float(step), float(again[peak]))
    return None


def _is_part(alike: Floats) -> bool:
    """Say whether silences are more alike after every few of a period than after any others of it, and so much more
    that a longer period is left once this one is taken away, as for the byte clock: then it is a part of a step.

    Parameters
    ----------
    alike : the correlation after each number of periods, from one on
    """
    number = 1 + np.arange(alike.size)
    for parts in range(2, alike.size // FEW_BURSTS + 1):
        whole, others = alike[number % parts == 0], alike[number % parts > 0]
        own = others.mean()
        more = whole.mean() - own
        least = max(byte_clock.REMAINING_CORRELATION * own * (1 - own), byte_clock.CHANCE_CORRELATION)
        if whole.min() > others.max() and more >= least:
            return True
    return False


def without_pauses(silences: Silences, share: float = PAUSES_SHARE) -> Silences:
    """Return silences, none of them longer than all but pauses are.

    Parameters
    ----------
    share : ratio of the silences that may be pauses
    """
    return silences._replace(length=np.minimum(silences.length, np.quantile(silences.length, 1 - share)))
