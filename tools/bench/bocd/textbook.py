"""Bayesian online change-point detection in plain Python: Adams and MacKay's algorithm 1 as it is printed.

A step of the loop takes in one observation; what is known of the runs that may still be going on are arrays of numpy,
one number for each, and no run is forgotten. This is as fast as Python goes; `bench.bocd.library` is what is public.
The law of a run is that of `llmprism_tasks.stages.published.kernels.bocpd`, whose answer is the same.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from llmprism_tasks.stages.published.kernels.bocpd import Prior

Floats = npt.NDArray[np.float64]


def start_posterior(values: Floats, *, hazard: float, prior: Prior) -> Floats:
    """Return the posterior probability, given all up to each observation, that a run starts with it.

    Parameters
    ----------
    values : one series
    hazard : the probability that a run ends at any one observation
    prior : what is believed of a run before it is seen, the same for all series
    """
    mean, scale = (float(np.asarray(each)) for each in (prior.mean, prior.scale))
    kappa, alpha = prior.mean_weight, prior.scale_weight / 2
    beta = alpha * scale**2
    normaliser = _normaliser(alpha, len(values))
    means, betas, joint = np.array([mean]), np.array([beta]), np.array([1.0])
    posterior = np.zeros(len(values))
    for t, x in enumerate(values):
        lengths = np.arange(t + 1)
        k, a = kappa + lengths, alpha + lengths / 2
        squared = betas * (k + 1) / (a * k)
        predictive = normaliser[: t + 1] * (1 + (x - means) ** 2 / (2 * a * squared)) ** -(a + 0.5) / np.sqrt(squared)
        mass = joint * predictive
        joint = np.concatenate([[hazard * mass.sum()], (1 - hazard) * mass])
        joint /= joint.sum()
        if t:
            posterior[t] = joint[1] / (1 - hazard)
        betas = np.concatenate([[beta], betas + k * (x - means) ** 2 / (2 * (k + 1))])
        means = np.concatenate([[mean], (k * means + x) / (k + 1)])
    return posterior


def _normaliser(alpha: float, count: int) -> Floats:
    """Return Student's t's factor of the degrees of freedom alone, for runs of 0 to `count` observations."""
    shapes = [alpha + n / 2 for n in range(count)]
    return np.array([math.exp(math.lgamma(a + 0.5) - math.lgamma(a)) / math.sqrt(2 * math.pi * a) for a in shapes])
