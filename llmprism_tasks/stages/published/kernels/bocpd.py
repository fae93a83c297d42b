"""Bayesian online change-point detection: where a series of numbers starts to follow another law.

R. P. Adams and D. J. C. MacKay, "Bayesian Online Changepoint Detection", 2007, arXiv 0710.3742. Within a run the
numbers are normal with a mean and a variance of their own, both unknown (conjugate prior: normal-inverse-gamma;
predictive: Student's t). Runs end with a constant hazard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.numerics.jit import FLOAT64, FLOAT64S, INT64S, kernel, named_tuple, vector_subroutine
from llmprism_tasks.numerics.robust import Floats, Integers, as_series
from llmprism_tasks.stages.published.kernels.log_functions import LEAST_EXPONENT, exponentials, logarithms

LANES = 8
"""Numbers that one vector instruction may take; what is left over of a loop goes one by one, and takes as long."""


class ByLength(NamedTuple):
    """What depends on a run's length alone, for lengths from 0.

    Attributes
    ----------
    to_mean, to_beta : what goes of an observation's distance to the mean, and of its square to the rate
    shape : of the inverse gamma law
    constant : the part of the log predictive density that the length decides
    """

    to_mean: Floats
    to_beta: Floats
    shape: Floats
    constant: Floats


BY_LENGTH = named_tuple(ByLength, FLOAT64S, FLOAT64S, FLOAT64S, FLOAT64S)


@dataclass(frozen=True)
class Prior:
    """What is believed of a run before its first observation, in words of observations.

    Attributes
    ----------
    mean : where a run's mean is expected; one for all series or one for each, shape (series,)
    scale : the standard deviation expected within a run, > 0; likewise
    mean_weight : how many observations the belief in `mean` is worth, > 0. A run's mean lies about
        `scale / sqrt(mean_weight)` from `mean`, so 0.01 means ten scales away.
    scale_weight : how many observations the belief in `scale` is worth, > 0. With few, a run may widen its scale to
        take in what stands out, and outliers that recur are soon ordinary: of gaps ten scales wide at every fifth of
        200 observations, a weight of 10 marks 5 %, 100 marks 80 % and 1000 marks all (hazard 0.1).

    In the paper's terms: kappa = mean_weight, alpha = scale_weight / 2, beta = alpha * scale ** 2.
    """

    mean: npt.ArrayLike
    scale: npt.ArrayLike
    mean_weight: float = 0.01
    scale_weight: float = 1000.0


def change_points(
    values: npt.ArrayLike,
    offsets: npt.ArrayLike | None = None,
    *,
    hazard: float,
    prior: Prior,
    threshold: float = 0.95,
    max_run_length: int = 64,
    negligible: float = 1e-8,
) -> npt.NDArray[np.bool_]:
    """Mark the observations that do not belong to the run before them.

    Parameters
    ----------
    values : shape (n,), finite, any unit; many series laid end to end. Intervals are best given as logarithms: they
        vary by factors, and a normal law of the intervals themselves would call the longest of each series a change.
    offsets : shape (series + 1,), where each series begins; None when all values are one series
    hazard : the probability that a run ends at any one observation, between 0 and 1: about one over
        the observations per run; where outliers are what is looked for, 0.1 serves well
    prior : what is believed of a run before it is seen
    threshold : the posterior probability of a start above which an observation is marked
    max_run_length : the observations a run remembers, > 0. A run may last longer; the older ones then fade.
    negligible : a run this many times as probable as the likeliest is forgotten, 0 or more, below 1. More is faster,
        and departs from the paper: of gaps that recur, the belief that they are all one wide run is what is forgotten.

    Returns
    -------
    bool, shape (n,). The first observation of a series is never marked, for nothing is before it.

    Notes
    -----
    A lone outlier is a run by itself: both it and the return from it are marked. To find only large gaps, keep the
    marked values above the one before. Two outliers in a row are one run, so the second is not marked, and a series of
    nothing but large gaps has no change at all. Time is linear in n.
    """
    return (
        start_posterior(
            values, offsets, hazard=hazard, prior=prior, max_run_length=max_run_length, negligible=negligible
        )
        > threshold
    )


def start_posterior(
    values: npt.ArrayLike,
    offsets: npt.ArrayLike | None = None,
    *,
    hazard: float,
    prior: Prior,
    max_run_length: int = 64,
    negligible: float = 1e-8,
) -> Floats:
    """Return the posterior probability, given all up to each observation, that a run starts with it.

    The paper's run length r_t counts the observations since the last change, and r_t = 0 means that a change lies
    between x_t and x_t+1. Nothing has been seen of that new run, so P(r_t = 0 | x_1..t) is the hazard, always, and says
    nothing. What can be known at t is whether x_t was itself the first of a run:

        P(r_t-1 = 0 | x_1..t) = P(r_t = 1 | x_1..t) / (1 - hazard)

    That is what is returned: 0 is "surely of the run before", 1 "surely not". It is 0 for the first of a series.
    """
    series, bounds = as_series(values, offsets, nan_allowed=False)
    groups = len(bounds) - 1
    kappa, alpha = float(prior.mean_weight), float(prior.scale_weight) / 2
    mean = np.ascontiguousarray(np.broadcast_to(np.asarray(prior.mean, dtype=np.float64), (groups,)))
    scale = np.ascontiguousarray(np.broadcast_to(np.asarray(prior.scale, dtype=np.float64), (groups,)))
    _check(0 < hazard < 1, "hazard", hazard, "a number between 0 and 1, both excluded")
    _check(max_run_length >= 1, "max_run_length", max_run_length, "1 or more")
    _check(0 <= negligible < 1, "negligible", negligible, "a number from 0 to below 1")
    _check(kappa > 0 and math.isfinite(kappa), "prior.mean_weight", kappa, "a finite number above 0")
    _check(alpha > 0 and math.isfinite(alpha), "prior.scale_weight", alpha * 2, "a finite number above 0")
    _check(bool(np.isfinite(mean).all()), "prior.mean", prior.mean, "finite numbers")
    _check(bool((np.isfinite(scale) & (scale > 0)).all()), "prior.scale", prior.scale, "finite numbers above 0")
    by_length = _by_length(kappa, alpha, max_run_length)
    return _start_posterior(series, bounds, mean, alpha * scale**2, by_length, hazard, negligible)


def _check(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise SettingsError(found=f"{name} = {value!r}", expected=expected, todo="Correct the value.")


def _by_length(kappa: float, alpha: float, max_run_length: int) -> ByLength:
    lengths = np.arange(max_run_length + 1)
    k, a = kappa + lengths, alpha + lengths / 2
    gammas = np.array([math.lgamma(shape + 0.5) - math.lgamma(shape) for shape in a])
    return ByLength(1 / (k + 1), k / (2 * (k + 1)), a, gammas + np.log(k / (k + 1)) / 2)


class Runs(NamedTuple):
    """The runs that may still be going on, oldest first, and room for what is computed of them.

    Attributes
    ----------
    length : the observations of each as far as it remembers them
    mean : their mean
    beta, log_beta : the rate of the inverse gamma law, and its logarithm
    log_mass, mass : how probable each run is against the likeliest
    log_grown : the logarithm of the rate with one more observation
    room : for what the logarithms and exponentials need
    """

    length: Integers
    mean: Floats
    beta: Floats
    log_beta: Floats
    log_mass: Floats
    mass: Floats
    log_grown: Floats
    room: Floats


@vector_subroutine
def _fade_oldest_run(by_length: ByLength, runs: Runs, count: int) -> int:
    """Keep the oldest run at the longest it remembers: the older observations fade, and its rate goes back to its
    shape. Return how many runs are left.

    The next one, as long now, cannot be told apart from here on: the likelier stands for both.
    """
    length, mean, beta, log_beta, log_mass = runs.length, runs.mean, runs.beta, runs.log_beta, runs.log_mass
    shape = by_length.shape
    longest = len(shape) - 1
    length[0] = longest
    beta[0] *= shape[longest] / (shape[longest] + 0.5)
    log_beta[0] = math.log(beta[0])
    if count == 1 or length[1] < longest:
        return count
    likelier = 1 if log_mass[1] > log_mass[0] else 0
    log_mass[0] = np.logaddexp(log_mass[0], log_mass[1])
    mean[0], beta[0], log_beta[0] = mean[likelier], beta[likelier], log_beta[likelier]
    for run in range(1, count - 1):
        mean[run], beta[run], log_beta[run] = mean[run + 1], beta[run + 1], log_beta[run + 1]
        length[run], log_mass[run] = length[run + 1], log_mass[run + 1]
    return count - 1


@vector_subroutine
def _drop_negligible_runs(runs: Runs, count: int, negligible: float) -> int:
    """Forget the runs of negligible probability, and return how many are left."""
    length, mean, beta, log_beta, log_mass, mass, _, _ = runs
    kept = 0
    while kept < count and mass[kept] >= negligible:
        kept += 1
    for run in range(kept, count):  # no branch to guess wrong
        mean[kept], beta[kept], log_beta[kept] = mean[run], beta[run], log_beta[run]
        length[kept], log_mass[kept], mass[kept] = length[run], log_mass[run], mass[run]
        kept += mass[run] >= negligible
    return kept


@kernel(FLOAT64S, INT64S, FLOAT64S, FLOAT64S, BY_LENGTH, FLOAT64, FLOAT64, vectors=True)
def _start_posterior(
    values: Floats,
    offsets: Integers,
    prior_mean: Floats,
    prior_beta: Floats,
    by_length: ByLength,
    hazard: float,
    negligible: float,
) -> Floats:
    """Take the runs that may still be going on through each series (the paper's algorithm 1).

    With a the shape of the inverse gamma law, and b and c its rate without and with x, the predictive density of x is
    b ** a / c ** (a + 1/2) times a constant of the run's length: one logarithm for each run. What they take in is not
    in a function of its own, because that takes nearly twice as long.
    """
    to_mean, to_beta, shape, constant = by_length
    longest = len(shape) - 1
    start = math.log(hazard) - math.log1p(-hazard)  # against a run that goes on
    posterior = np.zeros(len(values))
    most = longest + 2 + LANES
    length, mean, beta, log_beta = np.empty(most, np.int64), np.empty(most), np.ones(most), np.empty(most)
    log_mass, mass, log_grown, room = np.zeros(most), np.empty(most), np.empty(most), np.empty(most)
    runs = Runs(length, mean, beta, log_beta, log_mass, mass, log_grown, room)
    beta_bits, room_bits = beta.view(np.int64), room.view(np.int64)
    for series in range(len(offsets) - 1):
        count, total, log_prior = 0, 1.0, math.log(prior_beta[series])
        for t in range(offsets[series], offsets[series + 1]):
            length[count], mean[count], log_mass[count] = 0, prior_mean[series], start + math.log(total)
            beta[count], log_beta[count] = prior_beta[series], log_prior
            count += 1
            whole = count + -count % LANES
            for run in range(count):  # each takes in the observation
                off = values[t] - mean[run]
                mean[run] += off * to_mean[length[run]]
                beta[run] += off * off * to_beta[length[run]]
            logarithms(beta_bits, room_bits, room, log_grown, whole)
            best = -np.inf
            for run in range(count):  # what that makes each run's probability
                a = shape[length[run]]
                log_mass[run] += constant[length[run]] + a * log_beta[run] - (a + 0.5) * log_grown[run]
                log_beta[run] = log_grown[run]
                best = max(best, log_mass[run])
            for run in range(count):
                log_mass[run] = max(log_mass[run] - best, LEAST_EXPONENT)
            exponentials(log_mass, room_bits, room, mass, whole)
            share = mass[count - 1]
            count = _drop_negligible_runs(runs, count, negligible)
            total = 0.0
            for run in range(count):  # the others grow
                total += mass[run]
                length[run] += 1
            if length[0] > longest:
                count = _fade_oldest_run(by_length, runs, count)
            if t > offsets[series]:
                posterior[t] = share / total
    return posterior
