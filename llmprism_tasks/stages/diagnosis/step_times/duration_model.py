"""Duration model: how rarely a healthy job needs as long as that for one step.

The logarithms of a job's step lengths follow Student's t distribution about their median. The deviation is that of
their median absolute deviation, which slow steps hardly change, shrunk to that of other jobs. Of few steps the
deviation is uncertain, so their distribution has a heavier tail; so do jobs whose steps differ much, for the deviation
itself is larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from llmprism_tasks.numerics import binomial
from llmprism_tasks.numerics.robust import normal_deviations, sigma_of, student_factor
from llmprism_tasks.settings import DiagnosisSettings

MEDIAN_EFFICIENCY = 0.37
"""Values from which a standard deviation is as certain as from one absolute deviation's median: 0.37 of them, for
normal values (Rousseeuw and Croux 1993)."""

MOST_DEGREES_OF_FREEDOM = 8.0
"""Most degrees of freedom. Steps have a heavier tail than the normal distribution however many were seen: the longest
of hundreds of healthy steps lies six to eight deviations above the median."""

PRIOR_DEVIATION, PRIOR_FREEDOM = 0.04, 1.0
"""Deviation that half of captured jobs exceed, and how many degrees of freedom it counts for: jobs differ from each
other by a factor of several, so it is worth little beside a dozen steps (a scaled inverse chi-squared distribution of
the variance; Gelman and others, Bayesian Data Analysis, section 3.3)."""

WORTH_A_ROW = 0.25
"""Ratio of the usual step by which a step must be longer to be worth a row; the jitter of a whole job is less."""

MOST_DEVIATIONS = 8.0
"""Deviations of the normal distribution above which a chance is no smaller number: 1e-15."""


@dataclass(frozen=True)
class DurationModel:
    """The distribution of a job's step lengths: median of the logarithms of ns, their deviation, degrees of freedom."""

    middle: float
    deviation: float
    freedom: float

    @property
    def usual_ns(self) -> float:
        """The median length of a step, in ns."""
        return math.exp(self.middle)

    def longest_ns(self, chance: float) -> float:
        """Return the length that a step exceeds with a chance."""
        normal = max(-NormalDist().inv_cdf(chance), 0.0)
        student = normal * student_factor(self.freedom + 1, normal) if normal else 0.0
        return math.exp(min(self.middle + student * self.deviation, 700.0))

    def least_ns(self, settings: DiagnosisSettings) -> float:
        """Return the length above which a step is told: healthy jobs exceed it as seldom as the settings say."""
        worth_ns = max(WORTH_A_ROW * self.usual_ns, settings.least_single_s * 1e9)
        return max(self.longest_ns(settings.chance_within(self.usual_ns)), self.usual_ns + worth_ns)

    def chance(self, length_ns: float) -> float:
        """Return the chance that a step takes at least as long."""
        above = self.deviations(length_ns)
        return (
            0.5 if above <= 0 else NormalDist().cdf(-min(normal_deviations(self.freedom + 1, above), MOST_DEVIATIONS))
        )

    def deviations(self, length_ns: float) -> float:
        """Return by how many deviations a step is longer than the usual one."""
        return (math.log(max(length_ns, 1.0)) - self.middle) / self.deviation


def fitted(lengths_ns: Sequence[int] | npt.NDArray[np.int64]) -> DurationModel | None:
    """Return the model of a job's steps; None if too few were seen to tell any chance.

    Parameters
    ----------
    lengths_ns : at least 1 ns each
    """
    logarithms = np.log(np.maximum(np.asarray(lengths_ns, dtype=np.float64), 1.0))
    seen = MEDIAN_EFFICIENCY * (logarithms.size - 1)
    if seen < 1:
        return None
    freedom = min(PRIOR_FREEDOM + seen, MOST_DEGREES_OF_FREEDOM)
    own, prior = (freedom - PRIOR_FREEDOM) * sigma_of(logarithms) ** 2, PRIOR_FREEDOM * PRIOR_DEVIATION**2
    return DurationModel(float(np.median(logarithms)), math.sqrt((own + prior) / freedom), freedom)


def chance_of_so_many(some_ns: npt.NDArray[np.int64], every_ns: npt.NDArray[np.int64]) -> float:
    """Return the chance that so many steps of a job are as long as the shortest of some, if they vary by chance.

    The deviation is that of all steps. If the long ones were left out, half of any distribution would stand out.

    Parameters
    ----------
    some_ns : lengths of some of the steps, or of the pauses in them; of none, the chance is 1
    every_ns : the same of all steps, these among them
    """
    model = fitted(every_ns)
    if model is None or not some_ns.size:
        return 1.0
    return binomial.tail(some_ns.size, every_ns.size, model.chance(float(some_ns.min())))
