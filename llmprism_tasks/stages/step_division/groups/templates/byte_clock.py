"""The byte clock: how many bytes of a group's traffic a step is, told by what comes again after as many of them.

Steps last for different times, but every one moves the same bytes. So the traffic of a group is looked at by the bytes
that it has moved: how long each portion of them took, and which pairs moved it. After the bytes of a step both are the
same again, whether or not anybody was ever silent; so they are, less exactly, after those of a micro-batch or a layer.
What a period explains is taken away, as in the seasonal difference of a time series (Box and Jenkins 1970): where the
rest comes again with a longer period, the first was a part of a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from llmprism_tasks.numerics.robust import Flags, Floats, Integers

PORTIONS = 16384
"""Portions of the bytes that are looked at: 70 for each of 230 steps, several for each of their micro-batches."""

SMOOTH = (0.25, 0.5, 0.25)
"""How portions are averaged with their neighbours: a period is no whole number of them."""

MOST_PAIRS = 32
"""Pairs whose part of the portions is looked at, at most."""

SHORTEST_NS = 1_000_000
"""A portion that took less is as good as sent at once."""

SAME_PERIOD_PORTIONS = PORTIONS // 1000
"""Portions within which two periods are one."""

LEAST_CORRELATION = 0.1
"""Least correlation of portions that lie a step, or two, apart. In captured training 0.10 to 0.7, least where times
vary most; with independent portions 0.01."""

REMAINING_CORRELATION = 0.35
"""Ratio of its own correlation that is left to a longer period when a step is taken away: of micro-batches and layers
0.4 to 3, of steps 0.05 to 0.3, in captured training."""

CHANCE_CORRELATION = 0.06
"""Ratio of all that is left to a longer period by chance, at most."""

STEP_OVER_BEST = 0.7
"""Ratio of the best correlation that the one of a step has: the best may be of several steps."""


class _Traffic(NamedTuple):
    """Traffic by the bytes that it has moved.

    Attributes
    ----------
    starts : shape (records + 1,), ns; the last is the end of all
    sent : shape (records + 1,), bytes before each record, and in all
    moved : the same for some of the pairs
    """

    starts: Integers
    sent: Floats
    moved: list[Floats]


def step_bytes(starts: Integers, last_end: int, sizes: Integers, pair: Integers) -> Iterator[float]:
    """Yield how many bytes of a group's traffic may be a step, fewest first: nothing comes again with a longer period
    once these are taken away. What steps vary by hides that of layers at times.

    Parameters
    ----------
    starts, sizes : ns and bytes of its records, in order of their starts
    last_end : when the last of them ends
    pair : shape (records,), from 0
    """
    sent = np.concatenate([[0], np.cumsum(sizes)]).astype(np.float64)
    traffic = _Traffic(np.append(starts, last_end), sent, _cumulative_bytes_by_pair(sizes, pair))
    portion = sent[-1] / PORTIONS
    correlation = autocorrelation(_portion_features(traffic, portion))
    again = _mean_with_double_lag(correlation, PORTIONS // 3)
    places = np.flatnonzero(_is_peak(correlation)[: again.size])
    places = places[(places > SAME_PERIOD_PORTIONS) & (again[places] >= LEAST_CORRELATION)]
    places = places[again[places] >= STEP_OVER_BEST * again[places].max(initial=0.0)]
    exact = ((int(place), refine_period(correlation, int(place))) for place in places)
    yield from (float(lag * portion) for place, lag in exact if _is_step(traffic, portion, place, lag))


def _is_step(traffic: _Traffic, portion: float, place: int, exact: float) -> bool:
    """Say whether nothing comes again with a longer period once this one is taken away.

    The portions are made anew, so that the period is a whole number of them: else one of several steps fits better.
    """
    correlation = autocorrelation(_portion_features(traffic, portion * exact / place))
    own, left = (
        _mean_with_double_lag(correlation, correlation.size // 3)[place],
        _remaining_correlation(correlation, place),
    )
    return bool(left < REMAINING_CORRELATION * own or left * (1 - correlation[place]) < CHANCE_CORRELATION)


def refine_period(correlation: Floats, place: int) -> float:
    """Return a period to a fraction of a portion, by the peaks at twice, four times and so on of it: each is expected
    within a portion of twice the one before."""
    exact, times = float(place), 2
    while times * exact + times < correlation.size // 2:
        low = round(times * exact) - 1
        exact = (low + int(np.argmax(correlation[low : low + 3]))) / times
        times *= 2
    return exact


def _cumulative_bytes_by_pair(sizes: Integers, pair: Integers) -> list[Floats]:
    """Return what each of some pairs moved before every record and in all."""
    pairs = np.unique(pair)
    chosen = pairs[np.linspace(0, pairs.size - 1, min(pairs.size, MOST_PAIRS)).astype(np.int64)]
    return [np.concatenate([[0], np.cumsum(np.where(pair == one, sizes, 0))]).astype(np.float64) for one in chosen]


def _portion_features(traffic: _Traffic, portion: float) -> Floats:
    """Return what tells one portion of so many bytes from others, shape (portions, 1 + pairs): the logarithm of the
    time that it took, and the share of each pair, as deviations: the time weighs as much as all pairs."""
    sent = traffic.sent
    edges = np.arange(int(sent[-1] / portion * (1 + 1e-9)) + 1) * portion
    record = np.clip(np.searchsorted(sent, edges, side="right") - 1, 0, sent.size - 1)
    columns = [np.log(np.diff(traffic.starts[record]) + SHORTEST_NS)]
    columns += [np.diff(np.interp(edges, sent, one)) for one in traffic.moved]
    smooth = np.stack([np.convolve(column, SMOOTH, "same") for column in columns], axis=1)
    deviation = smooth - smooth.mean(axis=0)
    square = (deviation**2).mean(axis=0)
    weight = np.array([square[0], *[square[1:].sum()] * (square.size - 1)])
    scaled: Floats = deviation / np.sqrt(np.maximum(weight, np.finfo(np.float64).tiny))
    return scaled


def autocorrelation(columns: Floats) -> Floats:
    """Return the mean correlation of what lies so many portions apart, shape (portions,)."""
    rows = len(columns)
    spectrum = (np.abs(np.fft.rfft(columns, 2 * rows, axis=0)) ** 2).sum(axis=1)
    together = np.fft.irfft(spectrum)[:rows] / np.arange(rows, 0, -1)
    return together / together[0] if together[0] > 0 else np.zeros(rows)


def _mean_with_double_lag(correlation: Floats, upto: int) -> Floats:
    """Return the mean of what a lag and twice the lag have: a period has both, chance one of them."""
    around = sliding_window_view(
        np.pad(correlation, SAME_PERIOD_PORTIONS, constant_values=-1.0), 2 * SAME_PERIOD_PORTIONS + 1
    ).max(axis=1)
    lag = np.arange(min(upto, correlation.size // 2))
    both: Floats = (correlation[lag] + around[2 * lag]) / 2
    return both


def _is_peak(correlation: Floats) -> Flags:
    around = sliding_window_view(
        np.pad(correlation, SAME_PERIOD_PORTIONS, constant_values=-1.0), 2 * SAME_PERIOD_PORTIONS + 1
    ).max(axis=1)
    peak: Flags = correlation == around
    return peak


def _remaining_correlation(correlation: Floats, period: int) -> float:
    """Return the greatest correlation that is left to a longer period when this one is taken away."""
    lag = np.arange(correlation.size - period)
    left = 2 * correlation[lag] - correlation[np.abs(lag - period)] - correlation[lag + period]
    left /= max(2 * (1 - correlation[period]), np.finfo(np.float64).tiny)
    again = _mean_with_double_lag(left, (correlation.size - period) // 3)
    return float(again[int(1.5 * period) :].max(initial=0.0))
