"""One job: how likely it is that clusters of NICs on the same hosts are rails of one job.

Rails of one job begin together what they send, or they begin with the job, within a part of a step of each other; their
steps keep their distance, and whatever is done several times in a step waits for its end. Two jobs do none of it but
by chance. Each of these is a likelihood ratio, and they add up to the logarithm of the odds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmprism_tasks.contract.windows import NANOSECONDS_PER_MS
from llmprism_tasks.numerics.robust import MAJORITY, Flags, Floats, Integers
from llmprism_tasks.settings import RecognitionSettings
from llmprism_tasks.stages.recognition.kernels import coincidence

SAME_HOSTS = 0.9
"""Probability that clusters on similar hosts are rails of one job, before anything is seen of either: platforms rent
out whole hosts, mostly. Of clusters on a few of another's hosts it is as likely as not."""

CERTAIN = 100.0
"""Logarithm of the odds that stands for certainty."""

BEGINS_APART = 1 / 8
"""Ratio of the step: how far apart rails of one job begin on average. Stages begin one after another, half a step apart
at most."""

BEGINS_ANYWHERE = 0.01
"""Probability that a rail of a job begins at any other time."""

SEVERAL_AS_ONE = 0.02
"""Probability that a cluster of a job is seen to have one step where it has several: of one in fifty, single pairs show
every second step, or the steps that are slower than others."""

LEAST_DISTANCES = 3
"""Steps below which a series has no distances to speak of."""

LEAST_JITTER = 0.002
"""Ratio of the step by which ends are wrong, or steps vary, at least; if a few are more alike, it is by chance."""

UNLIKE_PERIODS = 1.5
"""Ratio of two periods from which their steps are not the same steps."""

SHARED_HOST_SLOWDOWN = 0.1
"""Ratio of its own step by which a job is slower, or quicker, on average while another one does something else on the
same hosts."""

MOST_SHIFTS = 2
"""Shifts of a distance that a job explains: where a fault, or a wrong cut, begins and where it ends."""

LAPLACE_WIDTH = 2 * float(np.e)
"""Over how wide a range something is even that is as unsure as a Laplace distribution of mean deviation 1."""

LEAST_MOMENTS = 10
"""Moments from which chance rarely lets most of what begins at them begin together."""


class Sent(NamedTuple):
    """What a cluster sends.

    Attributes
    ----------
    starts, sizes : of the transfers, ns and bytes, sorted by starts
    reach : share of the time that is near one of the starts
    begin_ns : when the first of them starts that is as large as its pair's others; -1 without any
    """

    starts: Integers
    sizes: Integers
    reach: float
    begin_ns: int


class Rail(NamedTuple):
    """A cluster of NICs.

    Attributes
    ----------
    ends, period_ns : of its steps, in order; none and 0 without steps
    sent : the transfers that it sends, if it has neighbours
    """

    ends: Integers
    period_ns: float
    sent: Sent


def odds(rail: Rail, other: Rail, seen_ns: tuple[int, int], settings: RecognitionSettings) -> float:
    """Return the logarithm of the odds that two rails are of one job, by what they send.

    Parameters
    ----------
    seen_ns : from when to when flows were seen
    """
    if in_step(rail.sent, other.sent, settings):
        return CERTAIN
    noise_ns = settings.phase_tolerance_ms * NANOSECONDS_PER_MS
    known = min(rail.ends.size, other.ends.size) >= LEAST_DISTANCES
    return _log_odds_of_begins(rail, other, seen_ns) + (_log_odds_of_steps(rail, other, noise_ns) if known else 0.0)


def probability(odds: float) -> float:
    """Return the probability of odds, given as their logarithm."""
    return float(1 / (1 + np.exp(-odds)))


def in_step(rail: Sent, other: Sent, settings: RecognitionSettings) -> bool:
    """Whether one of two rails begins most of what it sends together with the other, far more than chance explains.

    Layers, buckets and micro-batches of one job come up on all of its rails at the same moments, whether a step has a
    quiet gap or not. One of them may send more: gradients leave a host at a few of its NICs. Two jobs', even twins', do
    so by chance only.
    """
    tolerance = settings.phase_tolerance_ms * NANOSECONDS_PER_MS
    if min(rail.starts.size, other.starts.size) < LEAST_MOMENTS:
        return False
    met = coincidence.together(rail.starts, rail.sizes, other.starts, other.sizes, tolerance=tolerance)
    return any(
        chance <= MAJORITY
        and share >= chance + settings.least_together * (1 - chance)
        and _moments(sent, tolerance) >= LEAST_MOMENTS
        for sent, share, chance in zip((rail, other), met, (other.reach, rail.reach), strict=True)
    )


def _moments(sent: Sent, tolerance: float) -> float:
    """Return at how many moments bytes begin to be sent; those at which few do count for as much less.

    Transfers that begin together, as those of channels do, tell as much as one of them.
    """
    first = np.flatnonzero(np.diff(sent.starts, prepend=sent.starts[0] - 2 * tolerance) > tolerance)
    moved = np.add.reduceat(sent.sizes, first).astype(np.float64)
    return float(moved.sum() ** 2 / np.square(moved).sum())


def _log_odds_of_begins(rail: Rail, other: Rail, seen_ns: tuple[int, int]) -> float:
    """Return what the distance of both begins says: in one job it is a part of a step, of two jobs anything.

    What goes on when flows are seen first has not begun then. It is seen within a step, so that two begin near each
    other by chance.
    """
    since, until = seen_ns
    begins = sorted([rail.sent.begin_ns, other.sent.begin_ns])
    period = max(rail.period_ns, other.period_ns)
    if begins[0] < 0 or period <= 0:
        return 0.0
    usual = BEGINS_APART * period
    possible = max(usual, (until if begins[0] - since >= period else begins[1]) - since)
    together = np.exp(-(begins[1] - begins[0]) / usual) * possible / usual
    return float(np.log((1 - BEGINS_ANYWHERE) * together + BEGINS_ANYWHERE))


def _log_odds_of_steps(rail: Rail, other: Rail, noise_ns: float) -> float:
    """Return what the distances of the steps' ends say, and, if one of the series has several steps in each of the
    other's, whether it waits for these to end."""
    period = min(rail.period_ns, other.period_ns)
    kept = _log_odds_of_distances(rail.ends, other.ends, period, noise_ns)
    if max(rail.period_ns, other.period_ns) <= UNLIKE_PERIODS * period:
        return kept
    long, short = (rail, other) if rail.period_ns > other.period_ns else (other, rail)
    return kept + _log_odds_of_waits(short.ends, long.ends, period)


def _log_odds_of_distances(ends: Integers, others: Integers, period_ns: float, noise_ns: float) -> float:
    """Return what the distances between ends say: they are kept in one job, whatever its steps' jitter.

    Those of two jobs walk, by the difference of their periods, if it is ever so small, and by the jitter that they do
    not share, or are anything. Where a fault makes a ring slow, or a step was cut wrongly, the distance shifts and
    shifts back. A shift costs one distance, which tells nothing then, and the logarithm of how many steps it may be at.
    Some distances are far off, so they have Laplace distributions, whose likelihoods follow from mean absolute
    deviations.

    Parameters
    ----------
    ends, others : ns, sorted, at least `LEAST_DISTANCES` each
    noise_ns : by which an end may be wrong
    """
    few, many = (ends, others) if ends.size <= others.size else (others, ends)
    # Distances are phases: just under half a period ahead and just over it are neighbours.
    phases: Floats = 2 * np.pi * (_nearest_times(few, many) - few).astype(np.float64) / period_ns
    distances: Floats = np.unwrap(phases) / (2 * np.pi)
    least = max(LEAST_JITTER, noise_ns / period_ns)
    jitter = _own_jitter(ends, others) / period_ns
    said: list[float] = []
    # With as many shifts as changes, anything is kept.
    while len(said) <= MOST_SHIFTS and (free := few.size - 2 - len(said)) > 0:
        said.append(free * _log_odds_of_keeping(distances, jitter, least) - len(said) * np.log(few.size))
        distances = _without_largest_change(distances)
    return float(np.logaddexp.reduce(said) - np.log(len(said)))


def _log_odds_of_keeping(distances: Floats, jitter: float, least: float) -> float:
    """Return the logarithm of the odds, for each distance, that distances are kept, not walked through, nor anything.

    Parameters
    ----------
    distances : of the ends of steps, in steps
    jitter : of the steps of both, in steps
    least : by which an end may be wrong, in steps
    """
    changes = _shrunk_deviation(_deviation(np.diff(distances)), np.sqrt(2) * least, distances.size)
    kept = _shrunk_deviation(_deviation(distances), least, distances.size)
    # Of the jitter, two jobs on the same hosts share some: a change is between that of all and of none.
    by_walking, by_chance = np.sqrt(max(jitter, changes) * changes) / kept, 1 / (LAPLACE_WIDTH * kept)
    return float(np.log(min(by_walking, by_chance)))


def _log_odds_of_waits(short: Integers, long: Integers, period_ns: float) -> float:
    """Return what the steps say in which a longer one ends: micro-batches of one job wait for it, another job does not.

    Nor do steps of one job of which others were seen as one (`SEVERAL_AS_ONE`): of these, only the distances tell.

    Parameters
    ----------
    short, long : ends of the shorter and of the longer steps, ns
    period_ns : of the shorter
    """
    lasts: Floats = np.diff(short) / period_ns
    ended: Flags = np.diff(np.searchsorted(long, short)) > 0
    if not ended.any() or ended.all():
        return 0.0
    usual = np.median(lasts[~ended])
    spread = max(float(np.mean(np.abs(lasts[~ended] - usual))), SHARED_HOST_SLOWDOWN)
    longer: Floats = lasts[ended] - usual
    waits, goes_on = -np.maximum(longer, 0.0), -np.abs(longer) / spread - float(np.log(2 * spread))
    # A fault may make any step long. By Laplace's rule of succession, it does so once in two steps more than were seen.
    unseen = 1 / (lasts.size - ended.sum() + 2)
    goes_on = np.logaddexp(np.log(1 - unseen) + goes_on, np.log(unseen) + waits)
    are_parts = float(np.sum(waits - goes_on))
    return float(np.logaddexp(np.log(1 - SEVERAL_AS_ONE) + are_parts, np.log(SEVERAL_AS_ONE)))


def _without_largest_change(distances: Floats) -> Floats:
    """Return distances as if the change that is furthest from the others had been like them."""
    changes = np.diff(distances)
    beyond: Floats = changes - np.median(changes)
    furthest = int(np.argmax(np.abs(beyond)))
    later = np.arange(distances.size) > furthest
    return np.where(later, distances - beyond[furthest], distances)


def _own_jitter(ends: Integers, others: Integers) -> float:
    """Return the deviation of the difference of two jobs' steps, of which each has its own jitter, ns."""
    return float(np.hypot(_deviation(np.diff(ends)), _deviation(np.diff(others))))


def _shrunk_deviation(found: float, usual: float, count: int) -> float:
    """Return a deviation that was found in some steps, as if `LEAST_DISTANCES` more had the usual one."""
    return float(np.sqrt((count * found**2 + LEAST_DISTANCES * usual**2) / (count + LEAST_DISTANCES)))


def _nearest_times(times: Integers, others: Integers) -> Integers:
    """Return for each time the nearest of others, which are sorted; two at least."""
    after = np.clip(np.searchsorted(others, times), 1, others.size - 1)
    early = np.abs(others[after - 1] - times) < np.abs(others[after] - times)
    return np.where(early, others[after - 1], others[after])


def _deviation(values: Floats | Integers) -> float:
    """Return the mean absolute deviation from the median."""
    return float(np.mean(np.abs(values - np.median(values))))
