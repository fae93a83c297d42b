"""Bayesian online change-point detection by the public package bayesian-changepoint-detection, as it comes.

Whoever follows the paper would take this package. Its answer is that of `bench.bocd.textbook`, more slowly, and it
keeps what it believed at all times, a square of the length of the series.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
from bayesian_changepoint_detection import online_changepoint_detection as package

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
    alpha = prior.scale_weight / 2
    law = package.StudentT(alpha, alpha * scale**2, float(prior.mean_weight), mean)
    lengths, _ = package.online_changepoint_detection(values, partial(package.constant_hazard, 1 / hazard), law)
    posterior: Floats = lengths[1, 1:] / (1 - hazard) if len(values) else np.zeros(0)
    posterior[:1] = 0  # nothing was before it
    return posterior
