"""How far a value stands from those of its peers, or of its own past."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmprism_tasks.contract.errors import SettingsError
from llmprism_tasks.numerics.jit import FLOAT64, FLOAT64S, INT64S, kernel
from llmprism_tasks.numerics.robust import Floats, Integers, as_series, medians, sigmas


def k_sigma(
    values: npt.ArrayLike, k: float, *, floor: float = 0.0, offsets: npt.ArrayLike | None = None
) -> npt.NDArray[np.bool_]:
    """Mark the values that stand far above those of their peers.

    Parameters
    ----------
    values : shape (n,), any unit; NaN for a member with nothing to compare
    k : standard deviations above the mean of the others, > 0
    floor : the smallest standard deviation believed, in the unit of values: where the others are all equal, the least
        excess would otherwise be infinitely many deviations
    offsets : shape (groups + 1,), where each group of peers begins; None when all values are one group

    Returns
    -------
    bool, shape (n,); all False in a group with fewer than 3 values, for two cannot outvote each other.
    Each value is left out of its own mean and deviation: left in, it could never lie more than (n - 1) / sqrt(n)
    sample deviations away, so 3 sigma would stay silent in every group of ten or fewer.

    Notes
    -----
    Two culprits in one group hide each other; `robust_score` sees both.
    """
    if not k > 0:
        raise SettingsError(found=f"k = {k!r}", expected="a number above 0", todo="Correct the value.")
    series, bounds = as_series(values, offsets, nan_allowed=True)
    return _k_sigma(series, bounds, medians(series, bounds), k, max(floor, 0.0))


def robust_score(values: npt.ArrayLike, *, floor: float, offsets: npt.ArrayLike | None = None) -> Floats:
    """Return how many deviations each value lies above the median of its group.

    Parameters
    ----------
    values : shape (n,), any unit; NaN for a member with nothing to compare
    floor : the smallest deviation believed, in the unit of values, > 0: the noise below which no difference counts
    offsets : shape (groups + 1,), where each group of peers begins; None when all values are one group

    Returns
    -------
    float64, shape (n,): (value - median) / max(1.4826 * MAD, floor). 0 is the median itself, negative is below it;
    among healthy members scores follow a standard normal law, so 3 is rare. With durations that vary by 2 %, a member
    twice as slow scores 50. Up to half of a group may be outliers without hiding one another; beyond that, the rest
    look odd. NaN stays NaN; a member alone scores 0.
    """
    if not floor > 0:
        raise SettingsError(found=f"floor = {floor!r}", expected="a number above 0", todo="Correct the value.")
    series, bounds = as_series(values, offsets, nan_allowed=True)
    lengths = np.diff(bounds)
    centres = medians(series, bounds)
    deviations = np.fmax(sigmas(series, bounds, centres), floor)
    scores: Floats = (series - np.repeat(centres, lengths)) / np.repeat(deviations, lengths)
    return scores


@kernel(FLOAT64S, INT64S, FLOAT64S, FLOAT64, FLOAT64)
def _k_sigma(values: Floats, offsets: Integers, centres: Floats, k: float, floor: float) -> npt.NDArray[np.bool_]:
    """Sum the others from both sides: taking a value out of the sum of all would lose digits to an outlier."""
    marks, members, off = np.zeros(len(values), np.bool_), np.empty(len(values), np.int64), np.empty(len(values))
    for group in range(len(offsets) - 1):
        n = 0
        for i in range(offsets[group], offsets[group + 1]):
            if not np.isnan(values[i]):
                members[n], off[n] = i, values[i] - centres[group]
                n += 1
        if n < 3:
            continue
        sums, squares = np.zeros(n), np.zeros(n)
        left_sum, left_squares, right_sum, right_squares = 0.0, 0.0, 0.0, 0.0
        for i in range(n):
            sums[i] += left_sum
            squares[i] += left_squares
            left_sum += off[i]
            left_squares += off[i] * off[i]
            j = n - 1 - i
            sums[j] += right_sum
            squares[j] += right_squares
            right_sum += off[j]
            right_squares += off[j] * off[j]
        for i in range(n):
            mean = sums[i] / (n - 1)
            variance = max(0.0, squares[i] - (n - 1) * mean * mean) / (n - 2)
            marks[members[i]] = off[i] - mean > k * max(np.sqrt(variance), floor)
    return marks
